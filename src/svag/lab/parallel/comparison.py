"""Batches whole and in parts, on several processes: both as the run and its probe see them there."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from svag.lab.parallel.stepper import own_randomness
from svag.lab.streams import Batch
from svag.lab.training import Training
from svag.noise.batches import split
from svag.noise.frozen import measure_noise
from svag.noise.ghost import PartsComparison


def compare_shared_parts(training: Training, batches: Sequence[Batch], parts: int) -> PartsComparison:
    """Measure batches that all ranks have drawn, at frozen weights; every rank gets the same answer.

    A batch counts as whole when each rank has its share of it, which is what BatchNorm normalises in a step that is not
    probed; in parts, each rank has some of them. Every gradient is averaged before it is looked at, so that all ranks
    see the same numbers, find them finite or not, and stop together.
    """
    ranks = training.ranks
    trained = [parameter for parameter in training.model.parameters() if parameter.requires_grad]

    def in_parts(batch: Batch) -> Tensor:
        mine = split(batch, parts)[ranks.share(parts)]
        return torch.stack([training.whole_loss(part) for part in mine]).sum() * (ranks.size / parts)

    own_randomness(ranks, training.spec.seed, "parts")
    with ranks.averaging(trained):
        whole = measure_noise(training.model, training.loss, batches)
        cut = measure_noise(training.model, in_parts, batches)
    return PartsComparison(whole, replace(cut, approximate=True))
