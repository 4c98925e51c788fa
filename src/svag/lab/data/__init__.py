"""Data sets as tensors on the device: found on disk, fetched from their official places, or a user's own."""
