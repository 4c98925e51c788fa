"""SVAG on two independent streams of batches (eq:svag_iter)."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from svag.dynamics.svag import SVAG
from svag.lab.steppers.stepper import one_per_step, without_broken
from svag.lab.streams import Batch, BatchStream
from svag.lab.training import Training
from svag.records.examples import examples_per_step
from svag.records.process_spec import SvagSpec
from svag.records.reading import Reading


class Amplified:
    """SVAG(ell, split): in an effective step, `ell` pairs of batches of B/split examples, at η/ell."""

    def __init__(self, training: Training, process: SvagSpec) -> None:
        self._training, self._process = training, process
        size = training.spec.batch_size // process.split
        self._first = BatchStream(training.data, training.spec, "batches", size)
        self._second = BatchStream(training.data, training.spec, "second batches", size)
        self._pairs = self._endless_pairs()
        self._measures = False
        self._found: list[Reading] = []
        self._sim = self._fresh(None)

    @property
    def examples(self) -> int:
        """Examples that one effective step looks at."""
        return examples_per_step(self._training.spec, self._training.examples)

    def set_rate(self, lr: float) -> None:
        """Set η of the next effective step; SVAG itself divides it."""
        self._training.set_rate(lr)

    def step(self, number: int, *, measure: bool) -> Tensor:  # SVAG counts by itself
        """Take one effective step."""
        if measure != self._measures:
            self._measure(measure)
        return self._sim.step(self._training.loss, self._pairs)

    def collect(self) -> list[Reading]:
        """The readings since the last call, averaged over the sub-steps of each effective step."""
        if self._measures:
            self._measure(False)  # the next measured step starts with an empty list
        found, self._found = self._found, []
        return one_per_step(found)

    def state_dict(self) -> dict[str, Any]:
        """Where the process is."""
        return {
            "sim": self._sim.state_dict(),
            "first": self._first.state_dict(),
            "second": self._second.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._sim.load_state_dict(state["sim"])
        self._first.load_state_dict(state["first"])
        self._second.load_state_dict(state["second"])

    def close(self) -> None:
        """Give BatchNorm its own momentum back."""
        self._sim.__exit__(None, None, None)

    def _endless_pairs(self) -> Iterator[tuple[Batch, Batch]]:
        while True:
            yield self._first.draw(), self._second.draw()

    def _measure(self, wanted: bool) -> None:
        """Begin to keep noise, or stop and put what was found aside."""
        sim = self._sim
        if self._measures:
            self._found += without_broken(lambda: sim.noise)
        self._measures = wanted
        state = sim.state_dict()
        self.close()
        self._sim = self._fresh(state)

    def _fresh(self, state: dict[str, Any] | None) -> SVAG:
        sim = SVAG(
            self._training.model,
            self._training.optimizer,
            ell=self._process.ell,
            split=self._process.split,
            momentum_limit=self._process.momentum_limit,
            track_noise=self._measures,
            population=self._training.population,
            average=self._training.average_gradients,
        )
        if state is not None:
            sim.load_state_dict(state)
        return sim.__enter__()
