"""Charts of the theory and of the atlas."""
