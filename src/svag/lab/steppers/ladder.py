"""SGD, and the ladder coupled to it: the same draws, cut into smaller batches at smaller rates (def:glsr)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from svag.dynamics.batch_norm import RunningStatistics
from svag.lab.parallel.probe import SharedProbe
from svag.lab.steppers.stepper import one_per_step, without_broken
from svag.lab.streams import Batch, BatchStream
from svag.lab.training import Training
from svag.noise.batches import split
from svag.noise.probe import NoiseProbe
from svag.records.examples import examples_per_step
from svag.records.reading import Reading


class Ladder:
    """Batches of B/parts at η/parts, `parts` of them in an effective step; one part is SGD itself.

    Args:
        training: what is trained.
        parts: into how many batches each draw is cut.
        probe_parts: into how many parts a measured step cuts each of its batches; 0 when nothing is measured.
    """

    def __init__(self, training: Training, parts: int, probe_parts: int) -> None:
        self._training = training
        self._parts, self._probe_parts = parts, probe_parts
        self._batches = BatchStream(training.data, training.spec, "batches", training.spec.batch_size)
        self._statistics = {
            False: RunningStatistics(training.model, updates=parts),
            True: RunningStatistics(training.model, updates=parts * max(training.ranks.count(probe_parts), 1)),
        }
        self._probe = self._fresh_probe() if probe_parts else None

    @property
    def examples(self) -> int:
        """Examples that one effective step looks at."""
        return examples_per_step(self._training.spec, self._training.examples)

    def set_rate(self, lr: float) -> None:
        """Set η of the next effective step: the optimizer runs at η/parts."""
        self._training.set_rate(lr / self._parts)

    def step(self, number: int, *, measure: bool) -> Tensor:
        """Take one effective step."""
        batch = self._batches.draw()
        if self._parts == 1 and not measure:
            return self._update(number, batch, measure=False)
        with self._slowed_statistics(measure):
            losses = [self._update(number, piece, measure=measure) for piece in split(batch, self._parts)]
        return torch.stack(losses).mean()

    def collect(self) -> list[Reading]:
        """The readings since the last call."""
        if self._probe is None:
            return []
        probe, self._probe = self._probe, self._fresh_probe()
        probe.close()
        return one_per_step(without_broken(lambda: probe.readings))

    def state_dict(self) -> dict[str, Any]:
        """Where the process is."""
        return {"batches": self._batches.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._batches.load_state_dict(state["batches"])

    def close(self) -> None:
        """Take the probe off the model."""
        if self._probe is not None:
            self._probe.close()

    def _update(self, number: int, batch: Batch, *, measure: bool) -> Tensor:
        optimizer = self._training.optimizer
        optimizer.zero_grad()
        if measure and self._probe is not None:
            loss = self._probe.backward(self._training.whole_loss, batch, self._probe_parts, step=number)
        else:
            loss = self._training.loss(batch)
            loss.backward()
            self._training.average_gradients()
            loss = loss.detach()
        optimizer.step()  # x ← x − (η/parts) ∇L_γ
        return loss

    @contextmanager
    def _slowed_statistics(self, measure: bool) -> Iterator[None]:
        """BatchNorm's running statistics see several batches in the time of one."""
        self._statistics[measure].refine()
        try:
            yield
        finally:
            self._statistics[measure].restore()

    def _fresh_probe(self) -> NoiseProbe | SharedProbe:
        training = self._training
        size = training.spec.batch_size // self._parts
        if training.ranks.size > 1:
            return SharedProbe(training, size, self._probe_parts)
        return NoiseProbe(training.model, training.optimizer, batch_size=size, population=training.population)
