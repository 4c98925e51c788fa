"""Many ladders together: how good the predictions were."""
