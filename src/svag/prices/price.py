"""What an answer is made of: estimates, the rows of the price list, and the answer along the run.

N/G and B* change as training goes on, so they are also given over equal parts of a run.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from svag.noise.reading import Reading
from svag.prices.averages import Averages
from svag.prices.basis import Ground, signal_series
from svag.prices.windows import choose_window, parts_of_runs
from svag.printed import Printed
from svag.stats.ratios import RatioInterval
from svag.stats.samples import json_number
from svag.theory.bounds import critical_batch_size


@dataclass(frozen=True)
class Estimate(Printed):
    """A number with its interval.

    >>> print(Estimate(1.5, 1.25, math.inf))
    1.5 [1.25, ∞]

    Attributes:
        value: the number.
        low: lower end of its interval.
        high: upper end, `math.inf` where unbounded.
    """

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """Return the fields as JSON values; infinity is null."""
        return {name: json_number(value) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return f"{_short(self.value)} [{_short(self.low)}, {_short(self.high)}]"


@dataclass(frozen=True)
class Price(Printed):
    """One row of the price list.

    >>> print(Price(256, 4.0, "lr 0.4", 1.5, 1.4, 1.6, False))
    256: lr 0.4, distortion 1.50 [1.40, 1.60]

    Attributes:
        batch_size: the larger batch.
        kappa: how many times the batch of the run it is.
        settings: what the rule asks for there, as "lr 0.4"; as factors, "lr ×4", when the learning rate varied.
        distortion: D there.
        low: lower end of its interval.
        high: upper end, `math.inf` where unbounded.
        refuted: whether a theorem rules out that training stays within C² there.
        time: wall-clock time to the same training loss relative to the batch of the run, by D and the throughput; None
            without a throughput.
    """

    batch_size: int
    kappa: float
    settings: str
    distortion: float
    low: float
    high: float
    refuted: bool
    time: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values; infinity is null."""
        return {name: json_number(v) if isinstance(v, float) else v for name, v in asdict(self).items()}

    def __str__(self) -> str:
        time = "" if self.time is None else f", {self.time:.2f}× the time"
        return f"{self.batch_size}: {self.settings}, distortion {_interval(self)}{time}" + ", ruled out" * self.refuted


def price_table(prices: Sequence[Price], one_sided: bool = False) -> str:
    """The price list as a table for a terminal, the fastest row marked where times are known.

    >>> small = Price(64, 2.0, "lr 0.2", 1.1, 1.0, 1.2, refuted=False, time=0.6)
    >>> print(price_table([small, Price(128, 4.0, "lr 0.4", 2.5, 2.4, 2.6, refuted=True, time=0.9)]))
    batch size  settings  distortion         time
            64  lr 0.2    1.10 [1.00, 1.20]  0.60×  ← fastest
           128  lr 0.4    2.50 [2.40, 2.60]  0.90×  ruled out
    """
    times = [price.time for price in prices if price.time is not None]
    fastest = min(times, default=None)
    rows = [("batch size", "settings", "distortion", "time" if times else "", "")]
    for price in prices:
        shown = f"at most {_short(price.high)}" if one_sided else _interval(price)
        time = "–" if price.time is None else f"{price.time:.2f}×"
        remarks = [*(["ruled out"] * price.refuted), *(["← fastest"] * (times != [] and price.time == fastest))]
        rows.append((str(price.batch_size), price.settings, shown, time if times else "", ", ".join(remarks)))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    others = sum(width + 2 for column, width in enumerate(widths) if column != 1 and width)
    folded = [_folded(row[1], _WIDEST - others) for row in rows]
    widths[1] = max(len(line) for lines in folded for line in lines)
    lines = []
    for (size, _, *cells, remark), (settings, *more) in zip(rows, folded, strict=True):
        padded = [size.rjust(widths[0]), settings.ljust(widths[1])]
        padded += [cell.ljust(width) for cell, width in zip(cells, widths[2:4], strict=True)]
        lines.append("  ".join([*(cell for cell in padded if cell), remark]).rstrip())
        lines += [" " * (widths[0] + 2) + line for line in more]
    return "\n".join(lines)


_WIDEST = 80  # columns of a terminal


def _folded(settings: str, width: int) -> list[str]:
    """Lines of at most so many characters, broken between settings and never within one.

    >>> _folded("lr 0.2, betas (0.8, 0.99), eps 1e-08", 30)
    ['lr 0.2, betas (0.8, 0.99),', 'eps 1e-08']
    """
    first, *others = re.split(r", (?![^(]*\))", settings)
    lines = [first]
    for one in others:
        together = f"{lines[-1]}, {one}"
        if len(together) < width:  # a comma may follow
            lines[-1] = together
        else:
            lines[-1] += ","
            lines.append(one)
    return lines


def relative_time(distortion: float, size: int, base: int, throughput: dict[int, float]) -> float | None:
    """D(κ)·throughput(B)/throughput(κB), or None when the speed at that size is unknown."""
    return distortion * throughput[base] / throughput[size] if size in throughput else None


def _interval(price: Price) -> str:
    return f"{_two(price.distortion)} [{_two(price.low)}, {_two(price.high)}]"


def _two(value: float) -> str:
    return f"{value:.2f}" if value < 10 else _short(value)


def _short(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "∞"


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
