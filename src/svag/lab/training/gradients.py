"""Batch gradients of a network as a table of numbers, to study their distribution.

`gradient_table` takes any model, `run_gradients` the network that a run has trained (sec:app_heayvtailed).
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from svag.arrays import FloatArray
from svag.lab.records.record import read_record
from svag.lab.records.storage import CHECKPOINT
from svag.lab.training.state import CheckpointError, load_checkpoint
from svag.lab.training.streams import BatchStream
from svag.lab.training.training import load_inputs, pick_device, prepare
from svag.noise.batches import gradients_of, mean_loss
from svag.noise.parameters import measured_parameters
from svag.noise.undisturbed import undisturbed
from svag.theory import domain

Batch = TypeVar("Batch")


def gradient_table(
    model: nn.Module,
    loss_fn: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    *,
    coordinates: int = 400,
) -> FloatArray:
    """Return the gradients of independent batches at the current weights, one row each; the model does not change.

    Of a large network only `coordinates` numbers are kept, spread evenly over the gradient.
    `svag.paper.illustrations.heavy_tails` reads the table (sec:app_heayvtailed).

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
    """
    domain.whole("coordinates", coordinates)
    measured = list(measured_parameters(model).values())
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


def run_gradients(
    folder: str | Path,
    batches: int = 512,
    *,
    coordinates: int = 400,
    device: str = "auto",
    data_dir: str | Path | None = None,
) -> FloatArray:
    """Return the gradients of independent batches of the run's size at its last weights, one row each.

    Args:
        folder: the run directory, with its checkpoint.
        batches: how many; 512 make a steady `svag.paper.illustrations.heavy_tails.heavy_tails`.
        coordinates: how many numbers of each gradient to keep.
        device: where to compute.
        data_dir: where data files are.
    """
    record = read_record(Path(folder))
    spec = record.spec
    if spec is None:
        raise CheckpointError(f"{folder} is not a run that can be read: {record.problem}")
    if record.state == "diverged":
        raise CheckpointError(f"{folder} diverged: its gradients are not finite; take a run that finished")
    place = pick_device(device)
    state = load_checkpoint(record.path / CHECKPOINT, record.identity, place)
    if state is None:
        raise CheckpointError(f"{folder} has no checkpoint, so its weights are gone: run its spec again")
    training = prepare(spec, load_inputs(spec.data, data_dir, place))
    training.model.load_state_dict(state["model"])
    stream = BatchStream(training.data, spec, "tails", spec.batch_size, independent=True)
    draws = (stream.draw() for _ in range(batches))
    return gradient_table(training.model, training.loss, draws, coordinates=coordinates)
