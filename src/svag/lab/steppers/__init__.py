"""One effective step of each process, on batches that the run draws itself."""
