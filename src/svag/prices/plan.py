r"""The plan of a run at a larger batch: the gain along the steps of the baseline.

Time τ is counted in steps of the baseline. One step at κ times the batch, with the baseline's learning rate times
gain(τ), is worth gain(τ) baseline steps, so that the run follows the baseline's schedule and needs

$$\frac{1}{T}\int_0^T D\,d\tau = \kappa\cdot\overline{1/\mathrm{gain}}$$

times the examples of the baseline. The gain is held within a phase; `svag.prices.history` finds the phases.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, get_args

from svag.as_json import JsonRow
from svag.printed import Printed
from svag.theory import domain
from svag.theory.gain import Factors
from svag.theory.optimizers import Rule

# Relative to a gain: times are sums of many gains, so a remainder this small is rounding and not a step.
_ROUNDING = 1e-6


@dataclass(frozen=True, repr=False)
class GainPlan(JsonRow, Printed):
    """How to train at another batch size: the gain from each baseline step on.

    `svag.GainRule.planned(optimizer, plan)` trains by it; `lr_lambda` is for loops that only have a scheduler.

    >>> plan = GainPlan(16, 128, ((0, 2.0), (10, 4.0)), base_steps=30)
    >>> plan.kappa, plan.gain_at(9.5), plan.gain_at(10)
    (8.0, 2.0, 4.0)
    >>> plan.steps(), plan.price()  # 10/2 + 20/4 steps; 8·(10/2 + 20/4)/30
    (10, 2.6666666666666665)
    >>> GainPlan.from_json(plan.to_json()) == plan
    True
    >>> print(plan)
    Batch size 128 instead of 16: 2.67 times the examples in 10 steps instead of 30.
    from baseline step  gain  learning rate
                     0     2  × 2
                    10     4  × 4

    Attributes:
        base_batch_size: batch size of the baseline.
        batch_size: batch size of the planned run.
        phases: pairs (first baseline step, gain); the first begins at 0, the last has no end.
        base_steps: length of the recorded baseline in steps, or None when unknown.
        rule: how a gain changes the settings: "linear" for SGD, "square_root" for Adam and its kin.
        decoupled: whether weight decay is decoupled from the gradient, as in AdamW; only then does it change.
    """

    base_batch_size: int
    batch_size: int
    phases: tuple[tuple[float, float], ...]
    base_steps: int | None = None
    rule: Rule = "linear"
    decoupled: bool = False

    def __post_init__(self) -> None:
        given = vars(self)
        given["base_batch_size"] = domain.whole("base_batch_size", self.base_batch_size)
        given["batch_size"] = domain.whole("batch_size", self.batch_size)
        given["phases"] = _pairs(self.phases)
        if self.base_steps is not None:
            given["base_steps"] = domain.whole("base_steps", self.base_steps)
        domain.one_of("rule", self.rule, get_args(Rule))
        if not isinstance(self.decoupled, bool):
            raise TypeError(f"decoupled must be true or false, got {domain.shown(self.decoupled)}")
        starts = [start for start, _ in self.phases]
        if starts[0] != 0 or any(later <= earlier for earlier, later in pairwise(starts)):
            raise ValueError(f"phases must begin at step 0 and at increasing steps, got {domain.shown(starts)}")
        least, most = min(1.0, self.kappa), max(1.0, self.kappa)
        for start, gain in self.phases:
            if not least * (1 - 1e-9) <= gain <= most * (1 + 1e-9):
                raise ValueError(
                    f"the gain from step {start:g} on must lie between {least:g} and {most:g} at batch size "
                    f"{self.batch_size} instead of {self.base_batch_size}, got {gain:g}"
                )

    @property
    def kappa(self) -> float:
        """κ, how many times the batch of the baseline this is."""
        return self.batch_size / self.base_batch_size

    def gain_at(self, step: float) -> float:
        """Gain at a baseline step, which may be fractional; the last phase has no end."""
        return self.phases[self._phase_at(step)][1]

    def factors_at(self, step: float) -> Factors:
        """Return what to multiply learning rate, weight decay and eps of the baseline by at a baseline step.

        >>> GainPlan(16, 64, ((0, 2.0), (10, 4.0)), rule="square_root").factors_at(10)
        Factors(lr=2.0, weight_decay=1.0, eps=0.5)
        """
        return self.factors_of(self.gain_at(step))

    def factors_of(self, gain: float) -> Factors:
        """Return the factors of one gain, such as that of a step cut by `next_step`."""
        return Factors.at(gain, self.rule, decoupled=self.decoupled)

    def next_step(self, time: float, base_steps: int | None = None) -> tuple[float, float]:
        """Return the gain of the step taken at baseline time `time`, and the time after it.

        The gain is that of the phase, cut so that the step ends where the phase ends and where the baseline ends. The
        last step of a phase may therefore be shorter than the others. If there is no next phase and the length is
        unknown, nothing is cut.

        >>> plan = GainPlan(16, 128, ((0, 4.0), (10, 8.0)), base_steps=20)
        >>> plan.next_step(0), plan.next_step(8), plan.next_step(18)
        ((4.0, 4.0), (2.0, 10.0), (2.0, 20.0))

        Args:
            time: baseline steps passed so far.
            base_steps: length of the baseline to follow; by default that of the recorded one, if known.
        """
        end, length = math.inf, self._length(base_steps)
        if length is not None and time >= length:
            raise ValueError(f"the planned run ends at baseline step {length}, and {time:g} have passed")
        phase = self._phase_at(time)
        gain = self.phases[phase][1]
        if phase + 1 < len(self.phases):
            end = float(self.phases[phase + 1][0])
        if length is not None:
            end = min(end, float(length))
        if time + gain * (1 + _ROUNDING) >= end:
            return end - time, end
        return gain, time + gain

    def steps(self, base_steps: int | None = None) -> int:
        """Exact number of steps of a planned run, by the cuts of `next_step`.

        Each phase of length L at gain g takes ⌈L/g⌉ steps, the last of them cut. The sum can exceed ∫dτ/gain by almost
        one step for each phase.

        >>> GainPlan(16, 128, ((0, 4.0), (10, 8.0))).steps(20)  # 4 + 4 + 2, then 8 + 2
        5

        Args:
            base_steps: length of the baseline to follow; by default that of the recorded one.
        """
        spans = self._spans(self._needed(base_steps))
        return sum(max(math.ceil((end - start) / gain - _ROUNDING), 1) for start, end, gain in spans)

    def price(self, base_steps: int | None = None) -> float:
        """How many times the examples of the baseline the plan takes: ∫D dτ/T = κ·mean(1/gain).

        The mean is over baseline time and ignores cuts: `kappa * steps() / base_steps` counts them as well, and exceeds
        the price by at most κ/T for each phase.

        >>> GainPlan(16, 128, ((0, 4.0), (10, 8.0))).price(20)  # 8·(10/4 + 10/8)/20
        1.5
        """
        length = self._needed(base_steps)
        return self.kappa * math.fsum((end - start) / gain for start, end, gain in self._spans(length)) / length

    def lr_lambda(self, base_lambda: Callable[[int], float], base_steps: int | None = None) -> Callable[[int], float]:
        """Return the schedule of the planned run for `torch.optim.lr_scheduler.LambdaLR`, stepped once a step.

        At step k, which covers baseline time [τ, τ′], it is the factor of the learning rate for its gain τ′ − τ, times
        the mean of the baseline's schedule over [τ, τ′]. The baseline's schedule is constant within a baseline step, so
        this mean is a sum over the steps covered, with fractions at both ends. After the last step it keeps its value.

        Only the learning rate is planned this way. `svag.GainRule.planned` changes weight decay and eps as well.

        >>> halves = GainPlan(16, 64, ((0, 2.0),)).lr_lambda(lambda step: 1.0 if step < 3 else 0.5, base_steps=6)
        >>> [halves(step) for step in range(4)]  # 2 × the mean of steps 0 and 1, of 2 and 3, of 4 and 5; then held
        [2.0, 1.5, 1.0, 1.0]

        Args:
            base_lambda: schedule of the baseline as a function of its steps; constantly 1 for a constant rate.
            base_steps: length of the baseline to follow; by default that of the recorded one.
        """
        values = [
            self.factors_of(gain).lr * _mean(base_lambda, time, after)
            for time, gain, after in self._walk(self._needed(base_steps))
        ]
        return lambda step: values[min(step, len(values) - 1)]

    def rows(self) -> list[dict[str, float | None]]:
        """Return one row a phase, for a DataFrame.

        Each has `start` and `end` in baseline steps (None where the plan has no end), `gain`, `price` (D = κ/gain
        there), and the factors `lr`, `weight_decay` and `eps`.
        """
        ends = [*(start for start, _ in self.phases[1:]), self.base_steps]
        return [
            {"start": start, "end": end, "gain": gain, "price": self.kappa / gain, **vars(self.factors_of(gain))}
            for (start, gain), end in zip(self.phases, ends, strict=True)
        ]

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "GainPlan":
        """Read what `to_dict` wrote.

        >>> GainPlan.from_dict({"base_batch_size": 16, "batch_size": 32, "phases": [[0, 1.5]]}).gain_at(7)
        1.5
        """
        known = [field.name for field in fields(cls)]
        for name in saved:
            if name not in known:
                raise ValueError(f"{domain.shown(name)} is not a field of a plan: it has {', '.join(known)}")
        for name in known[:3]:
            if name not in saved:
                raise ValueError(f"the plan has no {name}: save it with to_dict() or to_json()")
        return cls(**saved)

    def to_json(self) -> str:
        """Return the plan as JSON text; floats are written in full and come back the same."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> "GainPlan":
        """Read what `to_json` wrote."""
        try:
            saved = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"the plan is not JSON ({error}): save it with to_json()") from None
        if not isinstance(saved, dict):
            raise ValueError(f"the plan is {domain.shown(saved)} and not a JSON object: save it with to_json()")
        return cls.from_dict(saved)

    def __str__(self) -> str:
        head = f"Batch size {self.batch_size} instead of {self.base_batch_size}"
        if self.base_steps is not None:
            head += f": {self.price():.3g} times the examples in {self.steps()} steps instead of {self.base_steps}"
        lines = [f"{head}.", "from baseline step  gain  learning rate"]
        for start, gain in self.phases:
            lines.append(f"{start:>18.6g}  {gain:>4.3g}  × {self.factors_of(gain).lr:.3g}")
        return "\n".join(lines)

    def _phase_at(self, step: float) -> int:
        return bisect_right(self.phases, domain.non_negative("step", step), key=lambda phase: phase[0]) - 1

    def _length(self, base_steps: int | None) -> int | None:
        return self.base_steps if base_steps is None else domain.whole("base_steps", base_steps)

    def _needed(self, base_steps: int | None) -> int:
        length = self._length(base_steps)
        if length is None:
            raise ValueError("the plan does not know how long the baseline was: give base_steps, its number of steps")
        return length

    def _spans(self, length: int) -> list[tuple[float, float, float]]:
        """Start, end and gain of the phases that begin before `length`, cut there."""
        ends = [start for start, _ in self.phases[1:]] + [math.inf]
        return [
            (start, min(end, float(length)), gain)
            for (start, gain), end in zip(self.phases, ends, strict=True)
            if start < length
        ]

    def _walk(self, length: int) -> Iterator[tuple[float, float, float]]:
        """Baseline time before each step of the planned run, its gain, and the time after it."""
        time = 0.0
        while time < length:
            gain, after = self.next_step(time, length)
            yield time, gain, after
            time = after


def _pairs(phases: object) -> tuple[tuple[float, float], ...]:
    """Phases as a tuple of pairs of floats, from JSON or from the user."""
    if not isinstance(phases, Sequence) or isinstance(phases, str) or not phases:
        raise ValueError(f"phases must be pairs (first baseline step, gain), got {domain.shown(phases)}")
    pairs = []
    for phase in phases:
        if not isinstance(phase, Sequence) or isinstance(phase, str) or len(phase) != 2:
            raise ValueError(f"a phase must be a pair (first baseline step, gain), got {domain.shown(phase)}")
        start, gain = domain.non_negative("first baseline step", phase[0]), domain.positive("gain", phase[1])
        # keep whole steps as ints when printed and saved
        pairs.append((int(start) if start.is_integer() else start, gain))
    return tuple(pairs)


def _mean(schedule: Callable[[int], float], start: float, end: float) -> float:
    """Mean over [start, end] of a schedule that is constant within each whole step."""
    parts = []
    for step in range(math.floor(start), math.ceil(end)):
        covered = min(end, step + 1) - max(start, step)
        parts.append(covered * schedule(step))
    return math.fsum(parts) / (end - start)
