"""The progress of a measurement, and the number of steps still needed for a price list."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from svag.noise.reading import Reading
from svag.prices.averages import Averages, of_one_batch_size
from svag.prices.basis import FEWEST, doubts, limits_of, one_sided, plain_ratio, window_only
from svag.prices.estimate import Estimate, short
from svag.prices.reasons import Code, Reason
from svag.prices.windows import Choice, choose_window


def steps_needed(readings: Sequence[Reading], every: int = 1) -> int:
    """Approximate number of steps still needed to resolve N/G, if every `every`-th step is measured.

    0 if it is resolved, or if more steps would not help. Only a share of the readings still to come is averaged if the
    list leaves out a start in which weights or noise were still settling.

    >>> few = [Reading(1.0, 8.0, 1.0, 32, 4, step=k) for k in range(10)]
    >>> steps_needed(few), steps_needed(few, every=10), steps_needed(few * 40)
    (190, 1900, 0)
    """
    if not readings:
        return FEWEST * every
    return _Standing.of(readings).steps_needed(every)


def progress(readings: Sequence[Reading], steps: int, every: int, batch_size: int) -> str:
    """Describe the progress of a measurement in one or two lines.

    >>> few = [Reading(1.0, 8.0, 1.0, 32, 4, step=k) for k in range(10)]
    >>> print(progress(few, 10, 1, 32))
    NoiseProbe at batch size 32: 10 readings in 10 steps.
    About 190 more steps are needed for a price list.
    >>> print(progress(few * 40, 400, 1, 32))
    NoiseProbe at batch size 32: 400 readings in 400 steps, N/G = 8 [8, 8].
    Enough for a price list: print(probe.price_list()).
    """
    readings = of_one_batch_size(readings)
    start = f"NoiseProbe at batch size {batch_size}: {len(readings)} readings in {steps} steps"
    if not readings:
        return f"{start}.\nAbout {FEWEST * every} more steps are needed for a price list."
    standing = _Standing.of(readings)
    needed, list_exists = standing.steps_needed(every), "Enough for a price list: print(probe.price_list())."
    if standing.one_sided:  # of such readings there is a list, whose plan uses the lower limit of N/G
        resolved = f" About {needed} more steps would resolve G." if needed else ""
        return f"{start}, N/G ≥ {short(standing.ratio.low)}.\n{list_exists}{resolved}"
    if needed and standing.window_only:  # of these there is a list too, about this window of this run
        first = "print(probe.price_list()) gives a first price list"
        return f"{start}.\n{first}; about {needed} more steps are needed for a reliable one."
    if needed:
        return f"{start}.\nAbout {needed} more steps are needed for a price list."
    if standing.doubts:
        return f"{start}.\n{standing.doubts[0]}"
    return f"{start}, N/G = {standing.ratio}.\n{list_exists}"


@dataclass(frozen=True)
class _Standing:
    """What is known of N/G from the window that a price list would average.

    Attributes:
        ratio: N/G with its interval.
        one_sided: whether it has a lower limit only, because G is not resolved.
        window_only: whether it is about the average over this window only.
        doubts: why it is not resolved.
        averaged: number of readings in the window.
        readings: number of all readings.
        grows: whether readings still to come belong to the window; False if it is a phase of the schedule that is over.
    """

    ratio: Estimate
    one_sided: bool
    window_only: bool
    doubts: tuple[Reason, ...]
    averaged: int
    readings: int
    grows: bool

    @classmethod
    def of(cls, readings: Sequence[Reading]) -> "_Standing":
        chosen = choose_window(readings)
        averages = Averages.over(chosen.readings)
        interval = plain_ratio(averages, 0.95)
        ratio = Estimate(*limits_of(interval))
        return cls(
            ratio=ratio,
            one_sided=one_sided(averages, interval),
            window_only=window_only(averages, interval),
            doubts=tuple(doubts(averages, interval, ratio.low, ratio.high)),
            averaged=len(chosen.readings),
            readings=len(readings),
            grows=chosen.choice is not Choice.LATE_PHASE,
        )

    def steps_needed(self, every: int) -> int:
        missing = max((_missing(reason, self.averaged) for reason in self.doubts), default=0)
        return math.ceil(missing * self.readings / self.averaged) * every if self.grows else 0


def _missing(reason: Reason, readings: int) -> int:
    """Number of readings that would resolve a doubt; 0 if more readings do not help."""
    values = reason.values
    if reason.code in (Code.TOO_FEW_READINGS, Code.TOO_FEW_FROZEN):
        return max(int(values["needed"] or 0) - readings, 1)
    return int(values["more"] or 0) if reason.code == Code.SIGNAL_UNRESOLVED else 0
