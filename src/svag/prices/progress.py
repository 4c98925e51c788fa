"""Where a measurement is, and how many steps are still needed for a price list."""

import math
from collections.abc import Sequence

from svag.noise.reading import Reading
from svag.prices.averages import Averages, of_one_batch_size
from svag.prices.basis import doubts, limits_of, plain_ratio
from svag.prices.estimate import Estimate
from svag.prices.reasons import Code, Reason
from svag.prices.windows import Choice, Chosen, choose_window

FEWEST = 200
"""Readings that a price list needs: 20 blocks of 10, if readings are independent."""


def steps_needed(readings: Sequence[Reading], every: int = 1) -> int:
    """Steps that are still needed for a price list, about; each `every`-th step is read.

    0 when there is one, and where more steps would not help. Of the readings still to come only a share is averaged,
    where the list leaves out a start at which weights or noise were still settling.

    >>> few = [Reading(1.0, 8.0, 1.0, 32, 4, step=k) for k in range(10)]
    >>> steps_needed(few), steps_needed(few, every=10), steps_needed(few * 40)
    (190, 1900, 0)
    """
    if not readings:
        return FEWEST * every
    chosen = choose_window(readings)
    if chosen.choice is Choice.LATE_PHASE:  # a phase of the schedule that is over gets no more readings
        return 0
    averaged = len(chosen.readings)
    missing = max((_missing(reason, averaged) for reason in _doubts(chosen)), default=0)
    return math.ceil(missing * len(readings) / averaged) * every


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
    chosen = choose_window(readings)
    if others := _doubts(chosen):
        return f"{start}.\n{others[0]}"
    ratio = Estimate(*limits_of(plain_ratio(Averages.over(chosen.readings), 0.95)))
    return f"{start}, N/G = {ratio}.\nEnough for a price list: print(probe.price_list())."


def _doubts(chosen: Chosen) -> list[Reason]:
    """What speaks against a price list from the readings that it would average."""
    found = Averages.over(chosen.readings)
    interval = plain_ratio(found, 0.95)
    _, low, high = limits_of(interval)
    return list(doubts(found, interval, low, high))


def _missing(reason: Reason, readings: int) -> int:
    """Readings that would take a doubt away; 0 where more of them do not help."""
    values = reason.values
    if reason.code in (Code.TOO_FEW_READINGS, Code.TOO_FEW_FROZEN):
        return max(int(values["needed"] or 0) - readings, 1)
    return int(values["more"] or 0) if reason.code == Code.SIGNAL_UNRESOLVED else 0
