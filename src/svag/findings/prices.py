"""The price list: what each larger batch costs, with the settings that the scaling rule asks for."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from svag.stats.samples import json_number


@dataclass(frozen=True)
class Estimate:
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
class Price:
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
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for size, *cells, remark in rows:
        padded = [size.rjust(widths[0]), *(cell.ljust(width) for cell, width in zip(cells, widths[1:], strict=True))]
        lines.append("  ".join([*(cell for cell in padded if cell), remark]).rstrip())
    return "\n".join(lines)


def relative_time(distortion: float, size: int, base: int, throughput: dict[int, float]) -> float | None:
    """D(κ)·throughput(B)/throughput(κB), or None when the speed at that size is unknown."""
    return distortion * throughput[base] / throughput[size] if size in throughput else None


def _interval(price: Price) -> str:
    return f"{_two(price.distortion)} [{_two(price.low)}, {_two(price.high)}]"


def _two(value: float) -> str:
    return f"{value:.2f}" if value < 10 else _short(value)


def _short(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "∞"
