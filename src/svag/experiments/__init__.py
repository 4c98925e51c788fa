"""A question becomes a list of runs by pure functions; the figures of the paper are rows of data."""
