"""An outcome, not an error."""


class Diverged(Exception):  # noqa: N818
    """Loss, gradients or weights are no longer finite; the message says when."""
