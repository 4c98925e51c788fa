"""Processes that look at all data in every update: GD, NGD, and the SDE by Euler–Maruyama (eq:noisy_gd, eq:em)."""

import math
from typing import Any

import torch
from torch import Tensor

from svag.dynamics.noisy_gd import NoisyGD
from svag.dynamics.per_example import refuse_random
from svag.lab.streams import Batch, stream
from svag.lab.training import Training
from svag.noise.undisturbed import undisturbed
from svag.records.examples import examples_per_step
from svag.records.process_spec import GdSpec, NgdSpec, SdeSpec
from svag.records.reading import Reading
from svag.records.refusal import SpecError

# Examples in one forward pass. It moves the last bits of the sums, hence is not a setting.
CHUNK = 1000


class FullPass:
    """Weighted passes over the data, `refine` of them in an effective step, at η/refine."""

    def __init__(self, training: Training, process: NgdSpec | GdSpec | SdeSpec) -> None:
        self._training = training
        self._refine = process.refine if isinstance(process, SdeSpec) else 1
        data, batch_size, share = training.data, training.spec.batch_size, training.ranks.share(training.examples)
        images, labels = data.train_x[share], data.train_y[share]
        self._chunks: list[Batch] = list(zip(images.split(CHUNK), labels.split(CHUNK), strict=True))
        try:
            self._ngd = self._process(math.inf if isinstance(process, GdSpec) else batch_size)
            # the first step would ask too, but by then there is a folder with a failed run in it
            with undisturbed(training.model):
                refuse_random(training.losses, self._chunks[0])
        except ValueError as error:
            raise SpecError("model.arch", f"{process.kind} cannot train this network: {error}") from error

    @property
    def examples(self) -> int:
        """Examples that one effective step looks at."""
        return examples_per_step(self._training.spec, self._training.examples)

    def set_rate(self, lr: float) -> None:
        """Set η of the next effective step; a refined process itself divides it."""
        self._training.set_rate(lr)

    def step(self, number: int, *, measure: bool) -> Tensor:  # there are no batches to measure
        """Take one effective step."""
        losses = [self._ngd.step(self._training.losses, self._chunks) for _ in range(self._refine)]
        return torch.stack(losses).mean()

    def _process(self, batch_size: float) -> NoisyGD:
        spec = self._training.spec
        return NoisyGD(
            self._training.model,
            self._training.optimizer,
            batch_size=batch_size,
            dataset_size=self._training.examples,
            sampling="with_replacement" if spec.sampling == "with_replacement" else "without_replacement",
            refine=self._refine,
            generator=stream(spec.seed, "noise"),
            share=self._training.ranks.share(self._training.examples),
            average=self._training.average_gradients,
        )

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
