"""The progress of a measurement, and the number of steps still needed for a price list."""

import math
from collections.abc import Sequence

from svag.noise.reading import Reading
from svag.prices.averages import Averages, of_one_batch_size
from svag.prices.basis import FEWEST, MeasuredRatio
from svag.prices.estimate import short
from svag.prices.reasons import Code, Reason
from svag.prices.windows import Choice, Chosen, choose_window


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
    chosen = choose_window(readings)
    return _steps_needed(MeasuredRatio.plain(Averages.over(chosen.readings)), chosen, len(readings), every)


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
    chosen = choose_window(readings)
    plain = MeasuredRatio.plain(Averages.over(chosen.readings))
    needed = _steps_needed(plain, chosen, len(readings), every)
    list_exists = "Enough for a price list: print(probe.price_list())."
    if plain.one_sided:  # of such readings there is a list, whose plan uses the lower limit of N/G
        resolved = f" About {needed} more steps would resolve G." if needed else ""
        return f"{start}, N/G ≥ {short(plain.estimate.low)}.\n{list_exists}{resolved}"
    if needed and plain.window_only:  # of these there is a list too, about this window of this run
        first = "print(probe.price_list()) gives a first price list"
        return f"{start}.\n{first}; about {needed} more steps are needed for a reliable one."
    if needed:
        return f"{start}.\nAbout {needed} more steps are needed for a price list."
    for doubt in plain.doubts(plain.estimate):
        return f"{start}.\n{doubt}"
    return f"{start}, N/G = {plain.estimate}.\n{list_exists}"


def _steps_needed(plain: MeasuredRatio, chosen: Chosen, readings: int, every: int) -> int:
    """Steps until the doubts about N/G over the chosen window are resolved; `readings` counts those outside it too."""
    if chosen.choice is Choice.LATE_PHASE:  # which is over: readings still to come do not belong to it
        return 0
    averaged = len(chosen.readings)
    missing = max((_missing(reason, averaged) for reason in plain.doubts(plain.estimate)), default=0)
    return math.ceil(missing * readings / averaged) * every


def _missing(reason: Reason, readings: int) -> int:
    """Number of readings that would resolve a doubt; 0 if more readings do not help."""
    values = reason.values
    if reason.code in (Code.TOO_FEW_READINGS, Code.TOO_FEW_FROZEN):
        return max(int(values["needed"] or 0) - readings, 1)
    return int(values["more"] or 0) if reason.code == Code.SIGNAL_UNRESOLVED else 0
