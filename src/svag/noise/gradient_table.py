"""Batch gradients as a table of numbers, for questions about their law rather than about G and N."""

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from svag.arrays import FloatArray
from svag.noise.losses import gradients_of, mean_loss
from svag.noise.measured import measured_parameters
from svag.noise.undisturbed import undisturbed
from svag.theory import domain

Batch = TypeVar("Batch")


def gradient_table(
    model: nn.Module,
    loss_fn: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    *,
    coordinates: int = 400,
    parameters: Iterable[Tensor] | None = None,
) -> FloatArray:
    """Return the gradients of independent batches at the present weights, one row each, and leave no trace.

    Of large networks only so many `coordinates` are kept, spread evenly over all of them. `svag.findings.heavy_tails`
    reads the table (sec:app_heayvtailed).

    >>> model = nn.Linear(2, 1, bias=False)
    >>> batches = [torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]])]  # the loss w·x has the gradient x
    >>> gradient_table(model, lambda x: model(x).mean(), batches)
    array([[1., 2.],
           [3., 4.]])

    Args:
        model: the model, used in the mode it is in.
        loss_fn: takes a batch, returns its mean loss.
        batches: independent batches of one size; finite.
        coordinates: how many numbers of each gradient to keep.
        parameters: of these only; all trainable ones by default.
    """
    domain.whole("coordinates", coordinates)
    measured = list(measured_parameters(model, parameters).values())
    total = sum(parameter.numel() for parameter in measured)
    kept = torch.from_numpy(np.linspace(0, total - 1, min(coordinates, total)).round().astype(np.int64))
    rows = []
    with undisturbed(model):
        for batch in batches:
            gradient = torch.cat([part.reshape(-1) for part in gradients_of(mean_loss(loss_fn, batch), measured)])
            rows.append(gradient[kept.to(gradient.device)].double().cpu().numpy())
    if not rows:
        raise ValueError("there are no batches: give at least one")
    return np.stack(rows)
