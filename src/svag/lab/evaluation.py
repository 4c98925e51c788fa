"""Loss and accuracy over a whole set, and the row that an evaluation leaves."""

from collections.abc import Sequence
from math import fsum
from typing import Any

import torch
from torch import Tensor, nn

from svag.lab.parallel.ranks import ALONE, Ranks
from svag.lab.steppers.full_pass import CHUNK
from svag.lab.training import Training
from svag.noise.measured import square_norm
from svag.records.process_spec import GdSpec, GlsrSpec, substeps
from svag.records.reading import Reading
from svag.records.spec import RunSpec
from svag.theory.equilibrium import momentum_balance, svag_balance


def loss_and_accuracy(model: nn.Module, images: Tensor, labels: Tensor, ranks: Ranks = ALONE) -> tuple[float, float]:
    """Mean loss and share of right answers, in evaluation mode; the model goes back to training afterwards."""
    loss = torch.zeros((), dtype=torch.float64, device=images.device)
    right = torch.zeros((), dtype=torch.int64, device=images.device)
    model.eval()
    with torch.no_grad():
        share = ranks.share(len(labels))
        for start in range(share.start, share.stop, CHUNK):
            rows = slice(start, min(start + CHUNK, share.stop))
            logits, answers = model(images[rows]), labels[rows]
            loss += nn.functional.cross_entropy(logits, answers, reduction="sum")
            right += (logits.argmax(dim=1) == answers).sum()
    model.train()
    return ranks.total(loss).item() / len(labels), ranks.total(right).item() / len(labels)


def evaluate(training: Training) -> dict[str, float]:
    """Test loss and accuracy, R, and the same of the training set if the spec asks for it."""
    data, ranks = training.data, training.ranks
    ranks.same_buffers(training.model)
    test_loss, test_accuracy = loss_and_accuracy(training.model, data.test_x, data.test_y, ranks)
    found = {"test_loss": test_loss, "test_accuracy": test_accuracy}
    if training.spec.evaluate.train:
        loss, accuracy = loss_and_accuracy(training.model, data.train_x, data.train_y, ranks)
        found |= {"train_set_loss": loss, "train_set_accuracy": accuracy}
    trained = [parameter for parameter in training.model.parameters() if parameter.requires_grad]
    return {**found, "param_sq": float(square_norm(trained))}


def noise_summary(spec: RunSpec, readings: Sequence[Reading]) -> dict[str, Any]:
    """Averages of G, N and R over the readings since the last evaluation, and how near they are to equilibrium.

    `balance` is growth over decay of the weight norm, 1 at equilibrium of a scale-invariant loss: a ratio of averages.
    It is None for a network that is not declared scale invariant, where the loss itself pulls on the norm, without
    weight decay, and when the learning rate changed among the readings.
    """
    grad_sq, noise_trace, param_sq = (
        fsum(getattr(reading, name) for reading in readings) / len(readings)
        for name in ("grad_sq", "noise_trace", "param_sq")
    )
    return {
        "readings": len(readings),
        "batch_size": readings[0].batch_size,
        "grad_sq": grad_sq,
        "noise_trace": noise_trace,
        "param_sq": param_sq,
        "balance": _balance(spec, readings, grad_sq, noise_trace, param_sq),
        **({"approximate": True} if any(reading.approximate for reading in readings) else {}),
        **({} if readings[-1].parts_ratio is None else {"parts_ratio": readings[-1].parts_ratio}),
    }


def _balance(
    spec: RunSpec, readings: Sequence[Reading], grad_sq: float, noise_trace: float, param_sq: float
) -> float | None:
    rates = {reading.lr for reading in readings}
    lr = rates.pop()
    known = spec.model.scale_invariant and spec.weight_decay > 0 and param_sq > 0
    if rates or not lr or not known:  # at a learning rate of 0 the weights neither grow nor decay
        return None
    # the ladder's readings are already those of its own smaller batches and rates
    ell = 1 if isinstance(spec.process, GlsrSpec) else substeps(spec.process)
    if spec.momentum:
        velocities = [reading.velocity_sq for reading in readings if reading.velocity_sq is not None]
        if ell > 1 or len(velocities) < len(readings):
            return None
        velocity_sq = fsum(velocities) / len(velocities)
        return momentum_balance(
            param_sq, velocity_sq, lr=lr, weight_decay=spec.weight_decay, momentum=spec.momentum
        ).ratio
    noise = 0.0 if isinstance(spec.process, GdSpec) else noise_trace
    return svag_balance(param_sq, grad_sq, noise, lr=lr, weight_decay=spec.weight_decay, ell=ell).ratio
