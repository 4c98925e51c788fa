"""The answer along a run: N/G and B* over equal parts of it, since both change as training goes on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from svag.findings.averages import Averages
from svag.findings.basis import Ground, signal_series
from svag.findings.prices import Estimate
from svag.findings.windows import choose_window, parts_of_runs
from svag.records.reading import Reading
from svag.stats.ratios import RatioInterval
from svag.theory.bounds import critical_batch_size

# The run is cut into this many parts, or into fewer so that each gets this many readings.
_PARTS = 5
_READINGS_A_PART = 40


@dataclass(frozen=True)
class Stretch:
    """The answer over one part of the run.

    Attributes:
        start: its first effective step.
        stop: its last, plus 1.
        noise_to_signal: N/G there (with momentum N/X or N/X̂, as in the whole).
        critical_batch: B* from there.
    """

    start: int
    stop: int
    noise_to_signal: Estimate
    critical_batch: Estimate

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        return {
            "start": self.start,
            "stop": self.stop,
            "noise_to_signal": self.noise_to_signal.to_dict(),
            "critical_batch": self.critical_batch.to_dict(),
        }


def history_of(readings: Sequence[Reading], ground: Ground, c2: float, confidence: float) -> tuple[Stretch, ...]:
    """The answer over equal parts of the run, with the signal of the whole; nothing for a part that no ratio fits."""
    count = min(_PARTS, len(readings) // _READINGS_A_PART)
    rows = []
    for part in parts_of_runs(readings, count) if count > 1 else []:
        try:
            found = Averages.over(part)
        except ValueError:  # a setting changed within this part
            continue
        series = signal_series(found, ground.signal) if found.readings else None
        interval = None if series is None else found.ratio(series, confidence)
        if interval is None or interval.kind == "empty":
            continue
        ratios = limits_of(interval)
        sizes = (critical_batch_size(part[0].batch_size, ratio, c2, "sharp", ground.lr_wd) for ratio in ratios)
        span = choose_window(part, (0, 1))
        rows.append(Stretch(span.start, span.stop, Estimate(*ratios), Estimate(*sizes)))
    return tuple(rows)


def limits_of(interval: RatioInterval) -> tuple[float, float, float]:
    """Value and limits of N/G; where no positive ratio fits, nothing is known."""
    return (math.inf, 0.0, math.inf) if interval.kind == "empty" else (interval.value, interval.low, interval.high)
