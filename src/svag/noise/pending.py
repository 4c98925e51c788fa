"""Readings stay on the device until they are asked for, and can be appended to a file."""

import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, overload

from torch import Tensor

from svag.noise.optimizer import ReadingSettings
from svag.noise.reading import PartialWriteError, Reading, append_readings, columns_of, load_readings, readings_of
from svag.noise.uninterrupted import Uninterrupted
from svag.theory.estimators import NoiseEstimate, disjoint_parts, weighted_parts

# Fetch readings from the device in blocks of this size: memory stays bounded, and waiting is rare.
_FETCH_EVERY = 1024
# Number of readings kept in memory if they go to a file; the averages for a logger are over the same number.
KEPT = 1000
# Tolerance for the sum of weights, which are quotients of whole numbers, possibly in single precision.
_ROUNDING = 1e-5


@dataclass(frozen=True)
class StepSums:
    """Sums over the parts' gradients g_i of one step, in tensors not yet synchronised.

    `reading` does the remaining arithmetic on plain numbers, as every operation on a tensor would slow the training
    step.

    Attributes:
        product: ⟨x, Σg_i/n⟩; with weights ⟨x, Σw_i g_i⟩.
        norms: |x|, |Σc_i|, and then numbers whose squares add up to Σ|c_i|².
        times: g_i = times · c_i; with weights it is 1, and c_i = w_i g_i.
        parts: their number n; a tensor if it is a sum over ranks.
        own_parts: how many of them this rank had.
        scaled: whether a GradScaler was used, so that an occasional overflow is expected.
        loss: the mean loss of the step, if it was given.
        weights: Σw_i and Σw_i², if the parts have weights.
        expected: how many parts all ranks together must have had, if this rank knows.
    """

    product: Tensor
    norms: Tensor
    parts: int | Tensor
    own_parts: int
    scaled: bool
    loss: Tensor | None
    times: float = 1.0
    weights: Tensor | None = None
    expected: int | None = None


def sums_of_weights(weights: Sequence[float | None], *, whole: bool = True) -> tuple[float, float] | None:
    """Return Σw and Σw² of the parts of a step, or None if none has a weight; refuse invalid weights.

    The weights of a `whole` step must add up to 1.
    """
    known = [weight for weight in weights if weight is not None]
    if not known:
        return None
    if len(known) < len(weights):
        raise ValueError(
            f"{len(known)} of {len(weights)} micro-batches of a step came with a weight: give one to each of them, or "
            "to none when all count the same"
        )
    if whole:
        _refuse_weights(sum(known))
    return sum(known), sum(weight**2 for weight in known)


def _refuse_weights(total: float) -> None:
    """Refuse weights that do not add up to 1."""
    if abs(total - 1) > _ROUNDING:
        raise ValueError(
            f"the weights of a step's micro-batches must add up to 1, got {total:.6g}: give each its share of all the "
            "tokens or examples of the step, by which its loss was weighted"
        )


class Pending(Protocol):
    """What one reading will be made from: numbers that are still on the device, and the settings of its step."""

    @property
    def step(self) -> int:
        """The step it belongs to."""
        ...

    @property
    def may_overflow(self) -> bool:
        """Whether a GradScaler was used: it skips a step whose gradients are not finite, and so does the probe."""
        ...

    def fetch(self) -> list[float]:
        """Return the measured numbers; this waits for the device."""
        ...

    def reading(self, numbers: list[float]) -> Reading:
        """Make the reading from the fetched numbers."""
        ...


@dataclass(frozen=True)
class StepReading:
    """The reading of one step that was cut into parts.

    Attributes:
        sums: the sums over its parts.
        velocity_sq: |v|², with momentum.
        step: number of the step.
        batch_size: examples of the step.
        population: size of the data set, when the examples of a batch are distinct.
        settings: of the optimizer at that step.
        approximate: BatchNorm saw the parts, not the batch.
        parts_ratio: N/G of parts over that of whole batches, if it is known.
        run: name of the run.
    """

    sums: StepSums
    velocity_sq: Tensor | None
    step: int
    batch_size: int
    population: int | None
    settings: Callable[[], ReadingSettings]
    approximate: bool
    parts_ratio: float | None
    run: str

    @property
    def may_overflow(self) -> bool:
        """Whether a GradScaler was used."""
        return self.sums.scaled

    def fetch(self) -> list[float]:
        """|v|² if there is one, ⟨x, g⟩, and the squares of the norms, which may overflow."""
        velocity = [] if self.velocity_sq is None else [self.velocity_sq.item()]
        return [*velocity, self.sums.product.item(), *(norm * norm for norm in self.sums.norms.tolist())]

    def estimate(self) -> NoiseEstimate | None:
        """Fetch only G and N, waiting for the device once; None if gradients are not finite."""
        _, *squares = (norm * norm for norm in self.sums.norms.tolist())
        return self._estimate(squares)[0] if all(map(math.isfinite, squares)) else None

    def reading(self, numbers: list[float]) -> Reading:
        """Make the reading, or refuse parts of different sizes on different ranks."""
        extra = 0 if self.velocity_sq is None else 1
        velocity, (param_dot_grad, param_sq, *squares) = numbers[:extra], numbers[extra:]
        estimate, n, weights_sq = self._estimate(squares)
        return Reading(
            grad_sq=estimate.grad_sq,
            noise_trace=estimate.noise_trace,
            param_sq=param_sq,
            batch_size=self.batch_size,
            n=n,
            step=self.step,
            **self.settings().reading_fields(),
            population=self.population,
            velocity_sq=velocity[0] if velocity else None,
            param_dot_grad=param_dot_grad,
            approximate=self.approximate,
            parts_ratio=self.parts_ratio,
            run=self.run,
            weights_sq=weights_sq,
        )

    def _estimate(self, squares: list[float]) -> tuple[NoiseEstimate, int, float | None]:
        """G and N from |Σc_i|² and numbers that add up to Σ|c_i|², with the number of parts and Σw_i²."""
        sq_sum, sum_sq = (square * self.sums.times**2 for square in (squares[0], sum(squares[1:])))
        n, expected = round(float(self.sums.parts)), self.sums.expected
        size, population = self.batch_size, self.population
        if self.sums.weights is not None:
            added, weights_sq = self.sums.weights.tolist()
            _refuse_weights(added)
            found = weighted_parts(sum_sq, sq_sum, weights_sq, batch_size=size, population=population)
            return found, n, weights_sq
        if expected not in (None, n):
            raise ValueError(
                f"the ranks had {n} parts in step {self.step}, but batch_size={size} is {expected} parts of "
                "the size that they have on this rank: give every rank its own share, cut into parts of one size"
            )
        found = disjoint_parts(sum_sq, sq_sum, n, part_size=size / n, batch_size=size, population=population)
        return found, n, None


@dataclass(frozen=True, eq=False)
class ClosedStep:
    """The step that a probe closed last; every step gets a new object.

    Attributes:
        batch_size: examples of the step; None where only the other ranks know, in a short batch.
        reading: what was measured, not yet fetched; None in a step that was not measured.
    """

    batch_size: int | None
    reading: StepReading | None = None


class Readings(Sequence[Reading]):
    """The readings up to one moment: a view of a list that only grows, so that nothing is copied.

    It compares equal to a list of the same readings, and a slice of it is a list.
    """

    def __init__(self, kept: list[Reading]) -> None:
        self._kept, self._present = kept, range(len(kept))

    def __len__(self) -> int:
        return len(self._present)

    @overload
    def __getitem__(self, index: int) -> Reading: ...

    @overload
    def __getitem__(self, index: slice) -> list[Reading]: ...

    def __getitem__(self, index: int | slice) -> Reading | list[Reading]:
        if isinstance(index, slice):
            return [self._kept[number] for number in self._present[index]]
        return self._kept[self._present[index]]

    def __iter__(self) -> Iterator[Reading]:
        return islice(self._kept, len(self))

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | Readings) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        if not self:
            return "<no readings>"
        return f"<{len(self)} readings, the last: {self[-1]}>"


class PendingReadings:
    """Fetches many readings at a time, without making a training step wait for the device.

    A full disk loses nothing: readings stay queued, as plain numbers, until they are in the file. The error is raised
    only by `collect`, `state_dict` and `flush`, never in a training step.

    Args:
        step: what a step is called in a warning.
        unit: what several readings are called there.
        save_to: append them to this file as they arrive, and keep only the last ones.
        writes: whether this rank is the one that writes the file.
        run: name of the run that they belong to.

    Attributes:
        skipped: number of steps without a reading, because G or N was not finite.
        rates_known: whether steps are taken at the learning rate in their readings. While a gain rule takes them at
            another rate, the file and `everything`, from which prices are made, leave the rate out.
    """

    def __init__(
        self, step: str, unit: str, save_to: str | Path | None = None, *, writes: bool = True, run: str = ""
    ) -> None:
        if save_to is not None and not isinstance(save_to, str | os.PathLike):
            raise TypeError(f"save_to must be the path of a file, got a {type(save_to).__name__}")
        self._step, self._unit = step, unit
        self._path, self._run = None if save_to is None else Path(save_to), run
        self._writes = writes and self._path is not None
        if self._path is not None and self._writes and not self._path.absolute().parent.is_dir():
            raise ValueError(f"save_to names a file in {self._path.parent}, which is not there: make the folder first")
        self.skipped = 0
        self.rates_known = True
        self._told_of_skipped = self._told_of_zero = False
        self._waiting: list[Pending] = []
        self._readings: list[Reading] = []
        self._unwritten: list[Reading] = []
        self._failed: OSError | None = None
        self._try_again_at = 0
        self._refused: ValueError | None = None

    def add(self, found: Iterable[Pending]) -> None:
        """Queue these readings."""
        self._waiting.extend(found)
        if len(self._waiting) >= _FETCH_EVERY:
            self._fetch()

    def collect(self) -> Readings:
        """Return all readings. Steps with gradients that are not finite have none: they are counted in `skipped`."""
        found = self.in_memory()
        self.flush()
        return found

    def in_memory(self) -> Readings:
        """Return all readings without raising if the disk is full, for a logger."""
        self._fetch()
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused
        return Readings(self._readings)

    def everything(self) -> Sequence[Reading]:
        """All readings of this run: with a file, those in it and those that could not be written yet."""
        kept = self.in_memory()
        if not self._writes or self._path is None:
            return self._priced(kept)
        written = load_readings(self._path) if self._path.exists() else []
        return [reading for reading in written if reading.run == self._run] + self._unwritten

    def _priced(self, readings: Sequence[Reading]) -> Sequence[Reading]:
        """The readings as prices use them: without a learning rate unless it is known."""
        return readings if self.rates_known else [replace(reading, lr=None) for reading in readings]

    def flush(self) -> None:
        """Write what is not in the file yet; if that fails, keep the readings for the next call and raise."""
        self._fetch(again=True)
        if self._unwritten:
            assert self._failed is not None
            raise OSError(
                f"{len(self._unwritten)} readings could not be written to {self._path} "
                f"({self._failed.strerror or self._failed}) and wait in memory: make room there, then ask again or "
                "call close(), which writes them"
            ) from self._failed

    def _fetch(self, again: bool = False) -> None:
        """Turn the queue into readings, waiting for the device, and write them; `again` retries after a failure."""
        with Uninterrupted():  # a reading is queued or kept, never both, and is written once
            warn = self._keep()
            if self._writes:
                self._write(again)
            if self._path is not None and len(self._readings) > KEPT:
                self._readings = self._readings[-KEPT:]  # a new list: views of the old one stay what they are
        for sentence in warn:  # last: where warnings are errors, nothing is lost
            warnings.warn(sentence, stacklevel=3)

    def _keep(self) -> list[str]:
        """Turn the queue into readings one by one, so that an error loses none; return the warnings to give."""
        warn: list[str] = []
        while self._waiting:
            pending = self._waiting[0]
            numbers = pending.fetch()
            del self._waiting[0]
            if not all(math.isfinite(number) for number in numbers):
                self.skipped += 1
                if not pending.may_overflow and not self._told_of_skipped:
                    self._told_of_skipped = True
                    warn.append(
                        f"the gradients of {self._step} {pending.step} are not finite, so there is no reading of it, "
                        f"nor of other such {self._unit}: if more follow, the run has diverged: lower its learning rate"
                    )
                continue
            try:
                reading = pending.reading(numbers)
            except ValueError as error:  # a long run goes on; the error is raised when readings are asked for
                self._refused = self._refused or error
                continue
            self._readings.append(reading)
            if self._writes:
                self._unwritten += self._priced([reading])
            if reading.grad_sq == reading.noise_trace == 0 and not self._told_of_zero:
                self._told_of_zero = True
                warn.append(
                    f"all gradients of {self._step} {pending.step} are 0: check that the loss depends on the measured "
                    "parameters, and call zero_grad() after the step, never between backward() and close_step()"
                )
        return warn

    def _write(self, again: bool) -> None:
        """Append unwritten readings in blocks, so that a failed attempt costs one block; keep the error."""
        assert self._path is not None
        if self._failed is not None and not again and len(self._unwritten) < self._try_again_at:
            return
        try:
            while self._unwritten:
                append_readings(self._path, self._unwritten[:_FETCH_EVERY])
                del self._unwritten[:_FETCH_EVERY]
            self._failed = None
        except OSError as error:
            if isinstance(error, PartialWriteError):
                del self._unwritten[: error.readings]
            self._failed, self._try_again_at = error, len(self._unwritten) + _FETCH_EVERY

    def state_dict(self) -> dict[str, Any]:
        """The readings in memory, and where the file ends."""
        self.flush()
        saved = None
        if self._path is not None and self._writes:
            saved = self._path.stat().st_size if self._path.exists() else 0
        return {"readings": columns_of(self._readings), "saved": saved, "skipped": self.skipped}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called: what was saved after it is cut off."""
        if self._path is not None and self._writes and state["saved"] is not None:
            self._cut(self._path, state["saved"])
        self._waiting, self._unwritten, self._failed, self._refused = [], [], None, None
        self._readings = readings_of(state["readings"])
        self.skipped = state.get("skipped", 0)  # a checkpoint of version 0.1.0 has none

    def _cut(self, path: Path, end: int) -> None:
        content = path.read_bytes() if path.exists() else b""
        if len(content) < end:
            raise ValueError(
                f"{path} has {len(content)} bytes, and had {end} when the checkpoint was made: give the file that this "
                "run wrote as save_to"
            )
        later = [line for line in content[end:].decode().split("\n") if line.startswith("{") and line.endswith("}")]
        if others := sorted({json.loads(line).get("run", "") for line in later} - {self._run}):
            raise ValueError(
                f"{path} goes on with readings of run {others[0]!r}, which continuing this one would cut off: give "
                "every run a save_to of its own"
            )
        if len(content) > end:
            os.truncate(path, end)
