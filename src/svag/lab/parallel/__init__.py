"""One run on several processes: each takes its share of every batch, and all hold the same weights."""
