"""From readings of the gradient noise to what a larger batch costs."""
