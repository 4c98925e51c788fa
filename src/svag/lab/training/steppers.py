"""One effective step of each process of a spec, on batches that the run draws itself.

`SgdStepper` takes steps of SGD and of the coupled ladder (def:glsr), `SvagStepper` of SVAG (eq:svag_iter),
`GainStepper` of the gain rule, where one update is worth several effective steps, and `FullPassStepper` of the
processes that use all data in every update: GD, NGD, and the SDE by Euler–Maruyama (eq:noisy_gd, eq:em). Several ranks
each use their share of every batch; losses and readings are those of the whole batch.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import fsum
from typing import Any

import torch
from torch import Tensor

from svag.dynamics.gain_rule import GainRule
from svag.dynamics.noisy_gd import NoisyGD, refuse_random
from svag.dynamics.refined_step import RunningStatistics
from svag.dynamics.svag import SVAG
from svag.lab.specs.fields import SpecError
from svag.lab.specs.parts import GainSpec, GdSpec, GlsrSpec, InRunProbe, NgdSpec, SdeSpec, SgdSpec, SvagSpec
from svag.lab.specs.spec import examples_per_step, plan_of
from svag.lab.training.streams import BatchStream, LabelledBatch, stream
from svag.lab.training.training import Training
from svag.noise.batches import split
from svag.noise.probe import NoiseProbe
from svag.noise.reading import Reading
from svag.noise.undisturbed import undisturbed

# Examples in one forward pass. This affects the last bits of sums, so it is not a setting.
CHUNK = 1000


class Stepper(ABC):
    """A process that takes effective steps, can measure them, and can be saved."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def seen(self, step: int) -> int:
        """Number of examples used when `step` effective steps are done."""
        return step * round(examples_per_step(self._training.spec, self._training.examples))

    def set_rate(self, lr: float) -> None:
        """Set η of the next effective step; a process that divides it does so itself."""
        self._training.set_rate(lr)

    @abstractmethod
    def step(self, number: int, *, measure: bool) -> Tensor:
        """Take effective step `number`; return its mean loss, detached."""

    def collect(self) -> list[Reading]:
        """The readings of the steps measured since the last call, one per step."""
        return []

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """The state of the process; valid when all readings have been collected."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""

    def close(self) -> None:  # noqa: B027  # most processes change nothing but the weights
        """Restore the model, apart from its weights."""


def stepper_for(training: Training) -> Stepper:
    """The stepper of a spec's process. SVAG with ell = split = 1 is SGD bit for bit, and is run as SGD."""
    process, probe = training.spec.process, training.spec.probe
    probe_parts = probe.parts if isinstance(probe, InRunProbe) else 0
    match process:
        case SgdSpec():
            return SgdStepper(training, probe_parts)
        case GlsrSpec():
            return SgdStepper(training, probe_parts, smaller=process.parts)
        case SvagSpec():
            return SgdStepper(training, probe_parts) if process.is_sgd else SvagStepper(training, process)
        case GainSpec():
            return GainStepper(training, process, probe_parts)
    return FullPassStepper(training, process)


class SgdStepper(Stepper):
    """SGD, or the coupled ladder: SGD with a batch size and rate that are `smaller` times smaller, on the same draws.

    Args:
        training: what is trained.
        probe_parts: number of parts into which a measured update cuts its batch; 0 if nothing is measured.
        smaller: number of batches into which each draw is cut, one update for each; 1 is SGD itself.
    """

    def __init__(self, training: Training, probe_parts: int, smaller: int = 1) -> None:
        super().__init__(training)
        self._smaller, self._probe_parts = smaller, probe_parts
        self._batches = BatchStream(training.data, training.spec, "batches", training.spec.batch_size)
        self._statistics = {
            False: RunningStatistics(training.model, updates=smaller),
            True: RunningStatistics(training.model, updates=smaller * max(training.ranks.count(probe_parts), 1)),
        }
        self._probe = self._fresh_probe() if probe_parts else None

    @property
    def probe(self) -> NoiseProbe | None:
        """The probe of the next updates; `collect` replaces it."""
        return self._probe

    def set_rate(self, lr: float) -> None:
        """Set η of the next effective step: the optimizer runs at η/smaller."""
        self._training.set_rate(lr / self._smaller)

    def step(self, number: int, *, measure: bool) -> Tensor:
        """Take one effective step."""
        batch = self._batches.draw()
        if self._smaller == 1 and not measure:
            return self._update(number, batch, measure=False)
        with self._slowed_statistics(measure):
            losses = [self._update(number, piece, measure=measure) for piece in split(batch, self._smaller)]
        return torch.stack(losses).mean()

    def collect(self) -> list[Reading]:
        """The readings since the last call."""
        if self._probe is None:
            return []
        probe = self._probe
        found = without_broken(lambda: probe.readings)
        probe.close()
        self._probe = self._fresh_probe()
        return one_per_step(found)

    def state_dict(self) -> dict[str, Any]:
        """The state of the process."""
        return {"batches": self._batches.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._batches.load_state_dict(state["batches"])

    def close(self) -> None:
        """Remove the probe from the model."""
        if self._probe is not None:
            self._probe.close()

    def _update(self, number: int, batch: LabelledBatch, *, measure: bool) -> Tensor:
        training = self._training
        training.optimizer.zero_grad()
        if measure and self._probe is not None:
            mine, parts = training.share(batch, self._probe_parts), training.ranks.count(self._probe_parts)
            loss = self._probe.backward(training.loss, mine, parts, step=number)
        else:
            mine = training.share(batch)
            loss = training.loss(mine)
            loss.backward()
            loss = training.average_gradients(loss.detach(), len(mine[1]))
        training.clip_gradients()
        training.optimizer.step()  # x ← x − (η/smaller) ∇L_γ
        return loss

    @contextmanager
    def _slowed_statistics(self, measure: bool) -> Iterator[None]:
        """Slow down BatchNorm's running statistics, which see several batches in the time of one."""
        self._statistics[measure].refine()
        try:
            yield
        finally:
            self._statistics[measure].restore()

    def _fresh_probe(self) -> NoiseProbe:
        training = self._training
        return NoiseProbe(
            training.model,
            training.optimizer,
            batch_size=training.spec.batch_size // self._smaller,
            population=training.population,
            check_loss=False,  # the laboratory's losses are means
            process_group=training.ranks.group.process_group,
        )


class GainStepper(Stepper):
    """The gain rule: an update at the larger batch is worth `gain` effective steps of the baseline.

    Args:
        training: what is trained; its settings are those of the baseline.
        process: batch size of the baseline, and the plan if there is one.
        probe_parts: number of parts into which a measured update cuts its batch; 0 if nothing is measured.
    """

    def __init__(self, training: Training, process: GainSpec, probe_parts: int) -> None:
        super().__init__(training)
        self._process = process
        self._sgd = SgdStepper(training, probe_parts)
        self._steps = training.spec.steps(training.examples)
        self._wanted: set[int] = set()  # effective steps that are to be measured
        self._updates = 0
        self._rule = self._fresh_rule()

    @property
    def updates(self) -> int:
        """Number of updates that are done."""
        return self._updates

    @property
    def time(self) -> float:
        """Effective steps that are done, not necessarily a whole number."""
        return self._rule.time

    @property
    def gain(self) -> float:
        """Effective steps of the last update; 0 before the first."""
        return self._rule.gain or 0.0

    def previous(self) -> int:
        """Whole effective steps that were done before the last update; -1 before the first."""
        return math.floor(self._rule.state_dict()["before"]) if self._updates else -1

    def row(self) -> dict[str, float | int | None]:
        """The columns of the rule in metrics: baseline time, gain of the last update, price and examples so far."""
        rule = self._rule
        return {
            "baseline_time": rule.time,
            "gain": rule.gain,
            "price": rule.price,
            "examples": self.seen(0),
        }

    def seen(self, step: int) -> int:  # counted in updates, whatever the step
        """Number of examples used so far."""
        return self._updates * self._training.spec.batch_size

    def step(self, number: int, *, measure: bool) -> Tensor:
        """Take one update, which begins at effective step `number`."""
        if measure:
            self._wanted.add(number)
        loss = self._sgd.step(number, measure=measure or self._process.plan is None)
        self._updates += 1
        return loss

    def collect(self) -> list[Reading]:
        """The readings since the last call that the spec asks for; a measured gain takes more."""
        found = [reading for reading in self._sgd.collect() if reading.step in self._wanted]
        self._wanted.clear()
        if self._process.plan is None:
            self._continue(self._rule.state_dict())  # with the new probe
        return found

    def state_dict(self) -> dict[str, Any]:
        """The state of the process."""
        return {"sgd": self._sgd.state_dict(), "rule": self._rule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._sgd.load_state_dict(state["sgd"])
        self._continue(state["rule"])
        self._updates = state["rule"]["steps"]

    def close(self) -> None:
        """Remove the rule from the optimizer, and the probe from the model."""
        self._rule.close()
        self._sgd.close()

    def _continue(self, state: dict[str, Any]) -> None:
        self._rule.close()
        self._rule = self._fresh_rule()
        self._rule.load_state_dict(state)

    def _fresh_rule(self) -> GainRule:
        plan, probe = plan_of(self._training.spec), self._sgd.probe
        if plan is not None:
            return GainRule.planned(self._training.optimizer, plan, self._steps)
        assert probe is not None  # by the checks of the spec
        return GainRule(probe, self._process.base_batch_size, self._steps)


class SvagStepper(Stepper):
    """SVAG(ell, split): `ell` pairs of batches of B/split examples per effective step, at η/ell."""

    def __init__(self, training: Training, process: SvagSpec) -> None:
        super().__init__(training)
        self._process = process
        size = training.spec.batch_size // process.split
        self._first = BatchStream(training.data, training.spec, "batches", size)
        self._second = BatchStream(training.data, training.spec, "second batches", size)
        self._pairs = self._endless_pairs()
        self._measures = False
        self._found: list[Reading] = []
        self._sim = self._fresh(None)

    def step(self, number: int, *, measure: bool) -> Tensor:  # SVAG counts steps itself
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
        """The state of the process."""
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
        """Restore BatchNorm's momentum."""
        self._sim.__exit__(None, None, None)

    def _endless_pairs(self) -> Iterator[tuple[LabelledBatch, LabelledBatch]]:
        while True:
            yield self._training.share(self._first.draw()), self._training.share(self._second.draw())

    def _measure(self, wanted: bool) -> None:
        """Start to measure noise, or stop and keep the readings."""
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
            process_group=self._training.ranks.group.process_group,
        )
        if state is not None:
            sim.load_state_dict(state)
        return sim.__enter__()


class FullPassStepper(Stepper):
    """Weighted passes over the data, `refine` of them per effective step, at η/refine.

    There are no batches to measure: the frozen probe measures these processes.
    """

    def __init__(self, training: Training, process: NgdSpec | GdSpec | SdeSpec) -> None:
        super().__init__(training)
        self._refine = process.refine if isinstance(process, SdeSpec) else 1
        data, batch_size, share = training.data, training.spec.batch_size, training.ranks.share(training.examples)
        images, labels = data.train_x[share], data.train_y[share]
        self._chunks: list[LabelledBatch] = list(zip(images.split(CHUNK), labels.split(CHUNK), strict=True))
        try:
            self._ngd = self._noisy_gd(math.inf if isinstance(process, GdSpec) else batch_size)
            # refused here, as the first step would do so only after a folder with a failed run has been made
            with undisturbed(training.model):
                refuse_random(training.losses, self._chunks[0])
        except SpecError:
            raise
        except ValueError as error:
            raise SpecError("model.arch", f"{process.kind} cannot train this network: {error}") from error

    def step(self, number: int, *, measure: bool) -> Tensor:
        """Take one effective step."""
        losses = [self._ngd.step(self._training.losses, self._chunks) for _ in range(self._refine)]
        return torch.stack(losses).mean()

    def state_dict(self) -> dict[str, Any]:
        """The state of the process, with that of its noise."""
        return self._ngd.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._ngd.load_state_dict(state)

    def _noisy_gd(self, batch_size: float) -> NoisyGD:
        spec = self._training.spec
        return NoisyGD(
            self._training.model,
            self._training.optimizer,
            batch_size=batch_size,
            dataset_size=self._training.examples,
            generator=stream(spec.seed, "noise"),
            sampling="with_replacement" if spec.sampling == "with_replacement" else "without_replacement",
            refine=self._refine,
            process_group=self._training.ranks.group.process_group,
        )


def one_per_step(readings: Sequence[Reading]) -> list[Reading]:
    """Average the readings of the sub-steps of each effective step: G, N and R, never their ratios."""
    by_step: dict[int | None, list[Reading]] = {}
    for reading in readings:
        by_step.setdefault(reading.step, []).append(reading)
    return [_average(group) if len(group) > 1 else group[0] for group in by_step.values()]


_AVERAGED = ("grad_sq", "noise_trace", "param_sq", "velocity_sq", "second_moment", "param_dot_grad")


def _average(group: list[Reading]) -> Reading:
    """The means of all numbers that every reading of the group has."""
    columns = {name: [getattr(reading, name) for reading in group] for name in _AVERAGED}
    means: dict[str, Any] = {
        name: None if None in column else fsum(column) / len(group) for name, column in columns.items()
    }
    return replace(group[0], **means, n=sum(reading.n for reading in group))


def without_broken(collect: Callable[[], Iterable[Reading]]) -> list[Reading]:
    """Readings of the steps with finite gradients, without the warning about the others.

    Divergence is detected by the loss, so missing last readings are not an error.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return list(collect())
