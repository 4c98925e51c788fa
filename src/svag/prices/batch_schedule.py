r"""A batch size that grows along the run, at a price that is at most d everywhere.

D(κ, ρ) ≤ d holds up to κ = d + (d − 1)ρ. As N/G rises along a run, so does the batch that this price allows:

$$B(\tau) = \min_{\tau'\ge\tau}\, \big(d\,B_0 + (d-1)\,B_\mathrm{simple}(\tau')\big), \qquad
  B_\mathrm{simple} = \rho B_0$$

The minimum over the rest of the run means that B never shrinks. ρ is the one-sided lower limit of each phase, and B is
rounded down to B₀ times a power of two, so that a price above d is unlikely in any phase.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from svag.as_json import JsonRow
from svag.prices.history import History
from svag.printed import Printed
from svag.theory import domain
from svag.theory.gain import Factors


@dataclass(frozen=True)
class ScheduleRow(JsonRow):
    """The settings to train with from a given number of examples on.

    Attributes:
        from_examples: examples seen so far.
        batch_size: batch size from there.
        factors: what to multiply the settings of the baseline by.
        from_step: the baseline step that this corresponds to.
        gain: baseline steps that one step is worth there.
    """

    from_examples: int
    batch_size: int
    factors: Factors
    from_step: int
    gain: float


@dataclass(frozen=True, repr=False)
class BatchSchedule(JsonRow, Printed):
    """Batch sizes by examples seen, with the settings of the gain rule at each.

    Give `svag.GainRule` the batch size of the next step; it then measures the gain itself, counts baseline time, and
    the factors of the rows are not needed::

        rule = svag.GainRule(probe, base_batch_size=schedule.base_batch_size, base_steps=schedule.base_steps)
        examples = 0
        while not rule.done:
            probe.batch_size = schedule.batch_size_at(examples)
            loss = probe.backward(loss_fn, next_batch(probe.batch_size))
            rule.step()
            examples += probe.batch_size

    Without it, multiply learning rate, weight decay and eps of the baseline by the factors, and follow the baseline's
    schedule at the baseline step that has been reached.

    >>> from svag.noise.reading import Reading
    >>> from svag.prices.history import run_history
    >>> rising = [Reading(1.0, 2.0 if step < 40 else 14.0, 1.0, 16, 4, step=step) for step in range(100)]
    >>> found = batch_schedule(run_history(rising), max_price=1.5)
    >>> [(row.from_examples, row.batch_size) for row in found.rows]  # 1.5 + .5·2 = 2.5 and 1.5 + .5·14 = 8.5 times 16
    [(0, 32), (853, 128)]
    >>> print(found)
    At most 1.5 times the examples: 62% fewer steps than at batch size 16, for 1.41 times the examples in all.
    from example  batch size  learning rate
               0          32  × 1.5
             853         128  × 5.45

    Attributes:
        base_batch_size: batch size of the baseline.
        max_price: d, the price that no phase exceeds.
        rows: in the order of training.
        base_steps: length of the baseline in steps, or None when unknown.
        price: how many times the examples of the baseline the whole run takes.
        steps_saved: share of the baseline's steps that are saved, 1 − mean(1/gain).
    """

    base_batch_size: int
    max_price: float
    rows: tuple[ScheduleRow, ...]
    base_steps: int | None
    price: float
    steps_saved: float

    def batch_size_at(self, examples: int) -> int:
        """Batch size of the step that begins after `examples` examples."""
        seen = domain.whole("examples", examples, at_least=0)
        return self.rows[bisect_right(self.rows, seen, key=lambda row: row.from_examples) - 1].batch_size

    def __str__(self) -> str:
        if len(self.rows) == 1 and self.rows[0].batch_size == self.base_batch_size:
            return f"No larger batch costs at most {self.max_price:g} times the examples: allow a higher price."
        head = (
            f"At most {self.max_price:g} times the examples: {self.steps_saved:.0%} fewer steps than at batch size "
            f"{self.base_batch_size}, for {self.price:.3g} times the examples in all."
        )
        lines = [head, "from example  batch size  learning rate"]
        lines += [f"{row.from_examples:>12}  {row.batch_size:>10}  × {row.factors.lr:.3g}" for row in self.rows]
        return "\n".join(lines)


def batch_schedule(history: History, max_price: float = 1.1) -> BatchSchedule:
    """Return the fastest growing batch size whose price stays within `max_price` in every phase of a history.

    Args:
        history: of the run at the smaller batch.
        max_price: d, how many times as many examples each phase may take.
    """
    if not domain.finite("max_price", max_price) > 1:
        raise ValueError(f"max_price must exceed 1, got {max_price}: a larger batch always takes more examples")
    base = history.batch_size
    sizes = _sizes(history, max_price)
    gains = [history.gains(size / base)[index] for index, size in enumerate(sizes)]  # those that a plan has
    starts = [0, *(phase.start for phase in history.phases[1:])]
    length = history.base_steps or 1
    rows: list[ScheduleRow] = []
    steps = seen = 0.0
    for (start, end), size, gain in zip(pairwise([*starts, length]), sizes, gains, strict=True):
        if not rows or (size, gain) != (rows[-1].batch_size, rows[-1].gain):
            factors = Factors.at(gain, history.rule, decoupled=history.decoupled)
            rows.append(ScheduleRow(round(seen), size, factors, start, gain))
        steps += (end - start) / gain
        seen += size * (end - start) / gain
    return BatchSchedule(base, max_price, tuple(rows), history.base_steps, seen / (length * base), 1 - steps / length)


def _sizes(history: History, max_price: float) -> list[int]:
    """Batch size of each phase: B₀ times the largest power of two that this phase and all later ones allow."""
    base = history.batch_size
    # with a population, the largest possible batch
    most = math.inf if history.population is None else history.population / base
    sizes: list[int] = []
    allowed = most
    for phase in reversed(history.phases):
        # if the estimate of G happens to be below 0, `lower` alone would allow any batch
        ratio = min(phase.lower, phase.sensitivity)
        allowed = min(allowed, max_price + (max_price - 1) * ratio)
        if math.isinf(allowed):
            raise ValueError(
                "the readings show no gradient at all, only noise, so any batch size would do: take more readings"
            )
        sizes.append(base * 2 ** _doublings(allowed))
    return sizes[::-1]


def _doublings(kappa: float) -> int:
    """The largest k with 2^k ≤ κ, at least 0.

    >>> _doublings(8.0), _doublings(7.99), _doublings(0.5)
    (3, 2, 0)
    """
    return max(math.frexp(kappa)[1] - 1, 0)
