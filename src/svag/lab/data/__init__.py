"""Data sets as tensors on the device: found on disk, downloaded from their official sites, or a user's own."""
