"""Readings at frozen weights in the middle of a run, from batches that the run itself never sees."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from svag.lab.diverged import Diverged
from svag.lab.parallel.stepper import own_randomness
from svag.lab.streams import Batch, BatchStream
from svag.lab.training import Training
from svag.noise.frozen import measure_noise
from svag.noise.losses import gradients_of
from svag.noise.measured import square_norm
from svag.records.consistency import smallest_batch
from svag.records.probe_spec import FrozenProbe
from svag.records.process_spec import GlsrSpec, substeps
from svag.records.reading import Reading


class FrozenReadings:
    """Measures G and N at the weights as they are, with batches of the size the process trains with.

    A split SVAG is measured at B, the batch of the SGD run that it describes; the ladder at its own B/parts.
    """

    def __init__(self, training: Training, probe: FrozenProbe) -> None:
        spec = training.spec
        self._training, self._count = training, probe.batches
        ladder = isinstance(spec.process, GlsrSpec)
        size = smallest_batch(spec) if ladder else spec.batch_size
        self._batches = BatchStream(training.data, spec, "probe", size, independent=True)
        self._ell = 1 if ladder else substeps(spec.process)

    def read(self, step: int) -> Reading:
        """One reading before effective step `step`; the learning rate of that step must be set."""
        training = self._training
        trained = [parameter for parameter in training.model.parameters() if parameter.requires_grad]
        own_randomness(training.ranks, training.spec.seed, f"reading {step}")
        with training.ranks.averaging(trained):
            try:
                reading = measure_noise(
                    training.model, training.loss, self._draws(), optimizer=training.optimizer, step=step
                )
            except ValueError as error:
                if self._overflows():
                    raise Diverged(f"the gradients are not finite before effective step {step}") from error
                raise
        # drawn independently, but each without replacement: N is the without-replacement one
        return replace(reading, population=training.population, ell=self._ell)

    def state_dict(self) -> dict[str, Any]:
        """Where the stream of batches is."""
        return self._batches.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._batches.load_state_dict(state)

    def _overflows(self) -> bool:
        """Whether some batch has gradients that are not finite."""
        trained = [parameter for parameter in self._training.model.parameters() if parameter.requires_grad]
        squares = (square_norm(gradients_of(self._training.loss(batch), trained)) for batch in self._draws())
        return not all(bool(torch.isfinite(square)) for square in squares)

    def _draws(self) -> Iterator[Batch]:
        return (self._batches.draw() for _ in range(self._count))
