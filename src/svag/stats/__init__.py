"""Intervals, equivalence tests and curve tests, independent of SGD."""
