"""The mean loss of a batch, as a user's function returns it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

Batch = TypeVar("Batch")


def mean_loss(loss_fn: Callable[[Batch], Tensor], batch: Batch) -> Tensor:
    """Return `loss_fn(batch)`, or refuse what is not one number with a gradient."""
    loss = loss_fn(batch)
    if not isinstance(loss, Tensor):
        raise TypeError(f"loss_fn must return a tensor, got {type(loss).__name__}")
    if loss.numel() != 1:
        raise ValueError(f"loss_fn must return the mean loss as a scalar, got shape {tuple(loss.shape)}: take its mean")
    if not loss.requires_grad:
        raise ValueError(
            "the loss does not depend on any trainable parameter: is it computed under no_grad or detached?"
        )
    return loss.reshape(())


def gradients_of(loss: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Gradient of a loss, 0 where it does not depend on a parameter; `.grad` is left alone.

    A loss that depends on none of them is one of another model, a copy perhaps: refused.
    """
    found: tuple[Tensor | None, ...] = torch.autograd.grad(loss, list(parameters), allow_unused=True)
    if all(gradient is None for gradient in found):
        raise ValueError(
            "the loss does not depend on any of the measured parameters: give the model that loss_fn uses, not a copy"
        )
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
