"""Intervals, equivalence tests and curve tests. Knows nothing of SGD."""
