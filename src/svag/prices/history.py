r"""N/G along a run, and the plan that follows from it: phases that are short at the start.

N/G often rises tenfold along a run, so one gain from its average is too large at the start, where training is most
fragile. The history gives every phase the gain

$$\mathrm{gain} = \frac{\kappa(1+\rho)}{\kappa+\rho}, \qquad \rho = \frac{\sum\eta^2 N}{\sum\eta^2 G}$$

from its own readings. Phases end at 1.25, 2.5, 5 and 10% of the run and then at every tenth; phases of few readings
are joined. The gain is a convex function of an estimate of G, so noise in G makes the plain gain too large on average.
Where D is not resolved to 10%, the one-sided 90% lower limit of ρ is used instead, which gives a smaller gain.

The error of ρ within a phase is that of `svag.stats.ratios.successive_moments`. Blocks of ten autocorrelation times, as
in `svag.prices.averages`, would leave two of 20 readings. Every reading uses fresh batches, so the errors of readings
are independent; changes of N and G along a phase and between runs are what is being averaged, not errors of the
average. Batches drawn without replacement need no correction here: D is that of the measured N, at the batch size at
which it was measured.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from svag.arrays import FloatArray
from svag.as_json import JsonRow
from svag.noise.reading import Reading
from svag.prices.averages import Averages
from svag.prices.estimate import Estimate
from svag.prices.plan import GainPlan
from svag.prices.windows import runs_of
from svag.printed import Printed
from svag.stats.ratios import PairMoments, fieller, pair_moments, successive_moments
from svag.stats.samples import probability
from svag.theory import domain
from svag.theory.gain import gain as gain_of
from svag.theory.optimizers import Rule, optimizer_kind

BOUNDARIES = (0.0125, 0.025, 0.05, *(tenth / 10 for tenth in range(1, 11)))
"""Where phases end, as fractions of the run."""

MIN_READINGS = 20
"""Minimum number of readings in a phase, all runs together."""

RESOLVED = 0.1
"""Largest standard error of log D at which the estimate of ρ itself is used."""

LIMIT = 0.9
"""Confidence level of the one-sided limit that is used otherwise."""

# Quantiles of the normal law: of that limit, and of the 95% interval by which a frozen reading states its error.
_ONE_SIDED = NormalDist().inv_cdf(LIMIT)
_TWO_SIDED = NormalDist().inv_cdf(0.975)
# Times the baseline's batch, for which a history prints its prices.
_PRINTED = (8, 32)


@dataclass(frozen=True, repr=False)
class Phase(JsonRow):
    """One stretch of the baseline and its N/G.

    Attributes:
        start: its first baseline step.
        end: the step after its last one; None when the readings have no steps.
        readings: how many were averaged, all runs together.
        noise_to_signal: ρ = N/G with its sampling interval; the value is infinite where the average G is not positive.
        lower: one-sided 90% lower limit of ρ; infinite where the upper limit of G is not positive.
        upper: one-sided 90% upper limit of ρ.
        signal_error: standard error of G/N = 1/ρ; infinite where the readings are too few to tell.
    """

    start: int
    end: int | None
    readings: int
    noise_to_signal: Estimate
    lower: float
    upper: float
    signal_error: float

    @property
    def sensitivity(self) -> float:
        """The one-sided 90% lower limit that ρ would have if G were estimated as 0.

        Where the estimate of G happens to fall below 0, `lower` may be arbitrarily large. Readings of this precision
        cannot tell a ρ above the sensitivity from an infinite one, so no batch size should rest on a larger one.

        >>> phase = Phase(0, 100, 50, Estimate(math.inf, 90.0, math.inf), math.inf, math.inf, signal_error=0.05)
        >>> round(phase.sensitivity, 6)  # 1/(1.2816 × 0.05)
        15.606083
        """
        return 1 / (_ONE_SIDED * self.signal_error) if self.signal_error > 0 else math.inf

    def log_error(self, kappa: float) -> float:
        r"""Standard error of log D at κ times the batch.

        $$\mathrm{se}(\log D) = \frac{(\kappa-1)\rho}{(\kappa+\rho)(1+\rho)}\,\mathrm{se}(\log\rho)
          = \frac{\kappa-1}{(\kappa\gamma+1)(\gamma+1)}\,\mathrm{se}(\gamma), \qquad \gamma = 1/\rho$$

        The second form also holds where G is not resolved from 0.

        >>> phase = Phase(0, 100, 50, Estimate(2.0, 1.6, 2.5), 1.7, 2.3, signal_error=0.05)
        >>> round(phase.log_error(4.0), 12)  # 3·2/(6·3) × 0.05·2
        0.033333333333
        """
        signal = self._signal
        if math.isinf(signal) or kappa == 1:
            return 0.0
        return abs(kappa - 1) * self.signal_error / ((kappa * signal + 1) * (signal + 1))

    def resolved(self, kappa: float) -> bool:
        """Whether D at κ times the batch is known to 10%, so that the estimate of ρ is used rather than its limit."""
        return math.isfinite(self.noise_to_signal.value) and self.log_error(kappa) <= RESOLVED

    def ratio_used(self, kappa: float) -> float:
        """ρ for the gain at κ times the batch: the estimate if resolved, otherwise the limit with the smaller gain.

        The gain grows with ρ for κ > 1 and falls for κ < 1, so the limit is the lower or the upper one. A lower limit
        beyond the sensitivity comes from an average G that happens to be near 0 or below, and is not relied on: with
        it, every second plan from 26 readings had a phase at the full gain κ.
        """
        if self.resolved(kappa):
            return self.noise_to_signal.value
        return min(self.lower, self.sensitivity) if kappa >= 1 else self.upper

    def __repr__(self) -> str:
        steps = "all steps" if self.end is None else f"steps {self.start} to {self.end - 1}"
        return f"<svag.Phase of {steps}: N/G = {self.noise_to_signal}, {self.readings} readings>"

    @property
    def _signal(self) -> float:
        rho = self.noise_to_signal.value
        return 1 / rho if rho > 0 else math.inf


@dataclass(frozen=True, repr=False)
class History(JsonRow, Printed):
    """N/G, gain and price along a run.

    >>> rising = [Reading(1.0, 2.0 if step < 50 else 14.0, 1.0, 16, 4, step=step) for step in range(100)]
    >>> found = run_history(rising)
    >>> [(phase.start, phase.end, phase.noise_to_signal.value) for phase in found.phases][2:4]
    [(40, 60, 8.0), (60, 80, 14.0)]
    >>> found.plan(64).phases  # 4·3/6, 4·9/12 and 4·15/18
    ((0, 2.0), (40, 3.0), (60, 3.3333333333333335))
    >>> round(found.examples(64), 12)  # .4·2 + .2·4/3 + .4·1.2
    1.546666666667

    Attributes:
        batch_size: of the run.
        base_steps: length of the run in steps, or None when unknown.
        phases: in the order of time.
        starts_at: step of the first reading, or None when readings have no steps.
        starts_late: whether the readings miss the start of training, so that the gain of the first phase is only
            assumed before `starts_at`.
        runs: how many runs were pooled.
        rule: how the optimizer's settings follow a gain.
        decoupled: whether its weight decay does so too.
        population: number of examples that batches are drawn from without replacement, or None.
        confidence: level of the intervals of N/G.
    """

    batch_size: int
    base_steps: int | None
    phases: tuple[Phase, ...]
    starts_at: int | None
    starts_late: bool = False
    runs: int = 1
    rule: Rule = "linear"
    decoupled: bool = False
    population: int | None = None
    confidence: float = 0.95

    @property
    def readings(self) -> int:
        """How many readings the phases hold."""
        return sum(phase.readings for phase in self.phases)

    def ratios_used(self, kappa: float) -> list[float]:
        """ρ of every phase for the gain at κ times the batch.

        An unresolved phase between two resolved ones uses at most the larger ρ of these two: an average G below 0 in
        one of ten phases is mostly chance, and a gain that jumps up for a tenth of the run can ruin it.
        """
        used = [phase.ratio_used(kappa) for phase in self.phases]
        known = [index for index, phase in enumerate(self.phases) if phase.resolved(kappa)]
        for index in range(len(used)):
            before, after = ([phase for phase in known if phase < index], [phase for phase in known if phase > index])
            if kappa > 1 and index not in known and before and after:
                used[index] = min(used[index], max(used[before[-1]], used[after[0]]))
        return used

    def gains(self, kappa: float) -> list[float]:
        """Gain of every phase at κ times the batch."""
        return [gain_of(ratio, kappa) for ratio in self.ratios_used(kappa)]

    def plan(self, batch_size: int) -> GainPlan:
        """Return the plan of a run at another batch size.

        The first phase begins at step 0 whether or not readings do, and adjacent phases of the same gain are one.
        """
        kappa = self._kappa(batch_size)
        pairs: list[tuple[float, float]] = []
        for phase, gain in zip(self.phases, self.gains(kappa), strict=True):
            if not pairs or gain != pairs[-1][1]:
                pairs.append((float(phase.start) if pairs else 0.0, gain))
        return GainPlan(self.batch_size, batch_size, tuple(pairs), self.base_steps, self.rule, self.decoupled)

    def examples(self, batch_size: int) -> float:
        """How many times the examples of the run its plan at another batch size takes: ∫D dτ/T over the whole run.

        This is `plan(batch_size).price()`. If the readings miss the start, D of the first phase is assumed there.
        """
        plan = self.plan(batch_size)
        # without steps there is one phase, and its price at any length
        return plan.price(self.base_steps or 1)

    def log_error(self, batch_size: int) -> float:
        """Standard error of the logarithm of `examples`, from the sampling error of N/G alone."""
        kappa = self._kappa(batch_size)
        costs = [share * kappa / gain for share, gain in zip(self._shares(), self.gains(kappa), strict=True)]
        errors = [cost * phase.log_error(kappa) for cost, phase in zip(costs, self.phases, strict=True)]
        return math.hypot(*errors) / math.fsum(costs)

    def __str__(self) -> str:
        sizes = [times * self.batch_size for times in _PRINTED]
        if self.population is not None:
            sizes = [size for size in sizes if size <= self.population]
        length = "" if self.base_steps is None else f" along {self.base_steps} steps"
        runs = "" if self.runs == 1 else f" of {self.runs} runs"
        rows = [["from step", "readings", "N/G", *(f"examples at {size}" for size in sizes)]]
        kappas = [size / self.batch_size for size in sizes]
        gains = [self.gains(kappa) for kappa in kappas]
        for number, phase in enumerate(self.phases):
            prices = [
                f"{'' if phase.resolved(kappa) else '≤ '}{kappa / gain[number]:.2f}×"
                for kappa, gain in zip(kappas, gains, strict=True)
            ]
            rows.append([str(phase.start), str(phase.readings), str(phase.noise_to_signal), *prices])
        rows.append(["all", str(self.readings), "", *(f"{self.examples(size):.2f}×" for size in sizes)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"N/G at batch size {self.batch_size}{length}, from {self.readings} readings{runs}."]
        for row in rows:
            cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
            cells[2] = row[2].ljust(widths[2])
            lines.append("  ".join(cells).rstrip())
        if self.starts_late:
            lines.append(f"Nothing was read before step {self.starts_at}: the first row is assumed to hold there.")
        return "\n".join(lines)

    def _shares(self) -> list[float]:
        """Share of the run that each phase of the plan takes; the first reaches back to step 0."""
        if self.base_steps is None:
            return [1.0]
        starts = [0, *(phase.start for phase in self.phases[1:]), self.base_steps]
        return [(end - start) / self.base_steps for start, end in pairwise(starts)]

    def _kappa(self, batch_size: int) -> float:
        size = domain.whole("batch_size", batch_size)
        if self.population is not None and size > self.population:
            raise ValueError(f"batch_size ({size}) exceeds the population of {self.population}: there is no such batch")
        return size / self.batch_size


def run_history(readings: Iterable[Reading], base_steps: int | None = None, confidence: float = 0.95) -> History:
    """Cut the readings of a run, or of several runs of the same setting, into phases and estimate N/G in each.

    Runs, told apart by `Reading.run`, are pooled by step. Readings without steps, or fewer than 20, give one phase.

    >>> constant = [Reading(1.0, 8.0, 1.0, 16, 4) for _ in range(30)]
    >>> run_history(constant).plan(64).phases  # 4·9/12
    ((0, 3.0),)

    Args:
        readings: of one batch size and optimizer; the learning rate may vary.
        base_steps: length of the run in steps. By default one reading's distance after the last reading.
        confidence: level of the intervals of N/G.
    """
    given = list(readings)
    if not given:
        raise ValueError("there are no readings: take them from a NoiseProbe, measure_noise or load_readings")
    probability("confidence", confidence)
    for field in ("batch_size", "optimizer", "ell", "population"):
        values = list(dict.fromkeys(getattr(reading, field) for reading in given))
        if len(values) > 1:
            raise ValueError(
                f"readings of different {field} ({values[0]}, {values[1]}) have no common history: give one at a time"
            )
    if base_steps is not None:
        base_steps = domain.whole("base_steps", base_steps)
    runs = runs_of(given)
    steps = [reading.step for reading in given if reading.step is not None]
    kind = optimizer_kind(given[0].optimizer)
    if len(steps) < len(given):
        length, late, starts_at = base_steps, False, None
        phases: tuple[Phase, ...] = (_phase(runs, 0, base_steps, confidence),)
    else:
        spacing = _spacing(runs)
        length = max(steps) + spacing if base_steps is None else base_steps
        if max(steps) >= length:
            raise ValueError(
                f"base_steps is {length}, but there is a reading of step {max(steps)}: give a larger number"
            )
        starts_at = min(steps)
        late = starts_at > max(BOUNDARIES[0] * length, spacing)
        cuts = _cuts(sorted(steps), length)
        phases = tuple(
            _phase(_between(runs, start, end), starts_at if late and start == 0 else start, end, confidence)
            for start, end in pairwise(cuts)
        )
    return History(
        batch_size=given[0].batch_size,
        base_steps=length,
        phases=phases,
        starts_at=starts_at,
        starts_late=late,
        runs=len(runs),
        rule=kind.rule or "linear",
        decoupled=kind.decoupled,
        population=given[0].population,
        confidence=confidence,
    )


def _cuts(steps: Sequence[int], length: int) -> list[int]:
    """Steps at which phases begin, and the last end, so that each has at least `MIN_READINGS` readings if possible.

    A phase is extended to the next boundary until it has them; what is left at the end joins the last. To join every
    short phase to the one before it instead would make a single phase of any run with less than 20 readings a tenth.
    """
    cuts, at = [0], np.asarray(steps)
    for boundary in (round(fraction * length) for fraction in BOUNDARIES):
        inside = np.count_nonzero((at >= cuts[-1]) & (at < boundary))
        if inside >= MIN_READINGS:
            cuts.append(boundary)
    rest = np.count_nonzero(at >= cuts[-1])
    if len(cuts) > 1 and rest < MIN_READINGS:
        cuts.pop()
    return [*cuts, length]


def _phase(runs: Sequence[Sequence[Reading]], start: int, end: int | None, confidence: float) -> Phase:
    readings = [reading for run in runs for reading in run]
    weights = Averages(tuple(readings)).weights
    num = weights * np.array([reading.noise_trace for reading in readings])
    den = weights * np.array([reading.grad_sq for reading in readings])
    noise, signal = max(float(num.mean()), 0.0), float(den.mean())
    value = noise / signal if signal > 0 else math.inf
    pairs = _moments(num, den, [len(run) for run in runs if run])
    if pairs is not None:
        low, high = _limits(pairs, confidence)
        lower, upper = _limits(pairs, 2 * LIMIT - 1)
        error = _signal_error(pairs)
    else:
        stated = [reading.relative_error for reading in readings if reading.relative_error is not None]
        if len(stated) < len(readings) or not math.isfinite(value):
            low, high, lower, upper, error = 0.0, math.inf, 0.0, math.inf, math.inf
        else:
            spread = max(stated) / _TWO_SIDED  # take the worst of these few: their average is hardly more precise
            quantile = NormalDist().inv_cdf((1 + confidence) / 2)
            low, high = value * math.exp(-quantile * spread), value * math.exp(quantile * spread)
            lower, upper = value * math.exp(-_ONE_SIDED * spread), value * math.exp(_ONE_SIDED * spread)
            error = spread / value if value > 0 else math.inf
    return Phase(start, end, len(readings), Estimate(value, low, high), lower, upper, error)


def _moments(num: FloatArray, den: FloatArray, lengths: Sequence[int]) -> PairMoments | None:
    """Means and their errors: from successive differences within runs, or else from the spread of several runs."""
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    if num.size - len(lengths) >= 2:
        return successive_moments(num, den, starts)
    return pair_moments(num, den) if len(lengths) >= 3 else None


def _limits(pairs: PairMoments, confidence: float) -> tuple[float, float]:
    """Fieller's limits of ρ; infinite if the set is empty because G is significantly negative."""
    found = fieller(pairs, confidence)
    if found is not None:
        return found
    return (math.inf, math.inf) if pairs.den < 0 else (0.0, 0.0)


def _signal_error(pairs: PairMoments) -> float:
    """Standard error of G/N by the delta method, at G = 0 where the average is negative."""
    if not pairs.num > 0:
        return math.inf
    signal = max(pairs.den, 0.0) / pairs.num
    variance = pairs.var_den - 2 * signal * pairs.cov + signal**2 * pairs.var_num
    return math.sqrt(max(variance, 0.0)) / pairs.num


def _between(runs: Sequence[Sequence[Reading]], start: int, end: int) -> list[list[Reading]]:
    return [[reading for reading in run if start <= (reading.step or 0) < end] for run in runs]


def _spacing(runs: Sequence[Sequence[Reading]]) -> int:
    """Median number of steps from one reading to the next."""
    apart = [(after.step or 0) - (before.step or 0) for run in runs for before, after in pairwise(run)]
    return max(round(float(np.median(apart))), 1) if apart else 1
