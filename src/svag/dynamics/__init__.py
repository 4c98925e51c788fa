"""Stepping a torch model: SVAG, noisy gradient descent, and the batches they need."""
