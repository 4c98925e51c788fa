"""Where a measurement is, and how many steps are still needed for a price list."""

from collections.abc import Sequence

from svag.noise.reading import Reading
from svag.prices.averages import Averages, of_one_batch_size
from svag.prices.basis import doubts, limits_of, plain_ratio
from svag.prices.estimate import Estimate
from svag.prices.reasons import Code, Reason
from svag.prices.windows import choose_window

FEWEST = 200
"""Readings that a price list needs: 20 blocks of 10, if readings are independent."""


def steps_needed(readings: Sequence[Reading], every: int = 1) -> int:
    """Steps that are still needed for a price list, about: 0 when there is one; each `every`-th step is read.

    >>> few = [Reading(1.0, 8.0, 1.0, 32, 4, step=k) for k in range(10)]
    >>> steps_needed(few), steps_needed(few, every=10), steps_needed(few * 40)
    (190, 1900, 0)
    """
    if not readings:
        return FEWEST * every
    return max((_missing(reason, len(readings)) for reason in _doubts(readings)), default=0) * every


def progress(readings: Sequence[Reading], steps: int, every: int, batch_size: int) -> str:
    """Say where a measurement is, in one or two lines.

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
    needed = steps_needed(readings, every)
    if needed:
        return f"{start}.\nAbout {needed} more steps are needed for a price list."
    others = [] if not readings else _doubts(readings)
    if others:
        return f"{start}.\n{others[0]}"
    interval = plain_ratio(Averages.over(choose_window(readings, (0.0, 1.0)).readings), 0.95)
    ratio = Estimate(*limits_of(interval))
    return f"{start}, N/G = {ratio}.\nEnough for a price list: print(probe.price_list())."


def _doubts(readings: Sequence[Reading]) -> list[Reason]:
    found = Averages.over(choose_window(readings, (0.0, 1.0)).readings)
    interval = plain_ratio(found, 0.95)
    _, low, high = limits_of(interval)
    return list(doubts(found, interval, low, high))


def _missing(reason: Reason, readings: int) -> int:
    """Readings that would take a doubt away; 0 where more of them do not help."""
    values = reason.values
    if reason.code in (Code.TOO_FEW_READINGS, Code.TOO_FEW_FROZEN):
        return max(int(values["needed"] or 0) - readings, 1)
    return int(values["more"] or 0) if reason.code == Code.SIGNAL_UNRESOLVED else 0
