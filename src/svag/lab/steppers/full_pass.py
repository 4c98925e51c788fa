"""Processes that look at all data in every update: GD, NGD, and the SDE by Euler–Maruyama (eq:noisy_gd, eq:em)."""

import math
from typing import Any

import torch
from torch import Tensor

from svag.dynamics.noisy_gd import NoisyGD
from svag.lab.streams import Batch, stream
from svag.lab.training import Training
from svag.records.process_spec import GdSpec, NgdSpec, SdeSpec
from svag.records.reading import Reading

# Examples in one forward pass. It moves the last bits of the sums, hence is not a setting.
CHUNK = 1000


class FullPass:
    """Weighted passes over the data, `refine` of them in an effective step, at η/refine."""

    def __init__(self, training: Training, process: NgdSpec | GdSpec | SdeSpec) -> None:
        self._training = training
        self._refine = process.refine if isinstance(process, SdeSpec) else 1
        spec, n = training.spec, training.examples
        self._ngd = NoisyGD(
            training.model,
            training.optimizer,
            batch_size=math.inf if isinstance(process, GdSpec) else spec.batch_size,
            dataset_size=n,
            sampling="with_replacement" if spec.sampling == "with_replacement" else "without_replacement",
            refine=self._refine,
            generator=stream(spec.seed, "noise"),
            share=training.ranks.share(n),
            average=training.average_gradients,
        )
        images, labels = (whole[training.ranks.share(n)] for whole in (training.data.train_x, training.data.train_y))
        self._chunks: list[Batch] = list(zip(images.split(CHUNK), labels.split(CHUNK), strict=True))

    @property
    def examples(self) -> int:
        """Examples that one effective step looks at."""
        return self._refine * self._training.examples

    def set_rate(self, lr: float) -> None:
        """Set η of the next effective step; a refined process itself divides it."""
        self._training.set_rate(lr)

    def step(self, number: int, *, measure: bool) -> Tensor:  # there are no batches to measure
        """Take one effective step."""
        losses = [self._ngd.step(self._training.losses, self._chunks) for _ in range(self._refine)]
        return torch.stack(losses).mean()

    def collect(self) -> list[Reading]:
        """Nothing: the frozen probe measures these processes."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Where the process is, its noise included."""
        return self._ngd.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._ngd.load_state_dict(state)

    def close(self) -> None:
        """Nothing was changed."""
