"""From readings of one ordinary run to what other batch sizes cost, and the settings to use there."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from svag.as_json import json_fields_of, json_value
from svag.noise.reading import Reading
from svag.prices import wording
from svag.prices.averages import Averages
from svag.prices.basis import MeasuredRatio, find_ground, price_remarks
from svag.prices.batch_schedule import BatchSchedule, batch_schedule
from svag.prices.estimate import Estimate
from svag.prices.history import History, run_history
from svag.prices.linear import LinearRule
from svag.prices.plot import PricePicture, draw, plot_table
from svag.prices.price import Price, Throughput, checked_throughput, relative_time
from svag.prices.ranges import price_range
from svag.prices.reasons import Code, Reason
from svag.prices.setting import RunSetting
from svag.prices.windows import Window, choose_window, steps_into_phase
from svag.printed import Printed
from svag.stats.samples import probability
from svag.theory import domain
from svag.theory.bounds import b_simple, critical_batch_size
from svag.theory.gain import gain

_DOUBLINGS = 6


class Prices(tuple[Price, ...], Printed):
    """The rows of a price list: a tuple of `Price` that prints as the list, with times where these are known."""

    _found: "PriceList"
    _throughput: Throughput | None

    def __new__(cls, rows: Iterable[Price], found: "PriceList", throughput: Throughput | None = None) -> Self:
        """Keep the rows together with what they were made from."""
        made = super().__new__(cls, rows)
        made._found, made._throughput = found, throughput
        return made

    def __repr__(self) -> str:
        return f"<{len(self)} prices from batch size {self._found.batch_size}>"

    def __str__(self) -> str:
        return wording.answer(self._found, self._throughput, self)


@dataclass(frozen=True, repr=False)
class PriceList(Printed):
    """What other batch sizes cost, from one run: how many examples, at which learning rate.

    >>> found = price_list(
    ...     Reading(g, 10.0, 1.0, 128, 4, step=k, lr=0.1, optimizer="SGD") for k, g in enumerate((0.9, 1.1) * 200)
    ... )
    >>> found
    <svag.PriceList from batch size 128: N/G = 10 [10, 10], 400 readings>
    >>> [(price.batch_size, price.settings) for price in found.prices([256, 1024])]
    [(256, '0.18'), (1024, '0.49')]
    >>> print(found.critical_batch)
    1536 [1536, 1536]

    `print(found)` shows the list, `found.details()` all that is known, and `found.plot()` draws the list and the noise
    scale along the run (with the extra `plot`).

    Attributes:
        setting: what the run used.
        noise_to_signal: N/G over the window, a ratio of averages, with its sampling interval.
        noise_scale: the gradient noise scale B·N/G of McCandlish et al., with the with-replacement N.
        critical_batch: the batch size at which D of that N/G reaches `c2`.
        linear: what is known of the linear (Adam: square-root) rule.
        history: N/G along the whole run, from which plans and prices are made.
        reasons: what is known about the answer besides the numbers, most important first.
        resolved: whether the interval of N/G is bounded on both sides and has its stated confidence.
        window_only: not resolved, because there are few readings or runs differ, but bounded: the interval covers only
            the average over this window of these runs.
        one_sided: whether N/G has a lower limit only, because G is not resolved.
        c2: C², the price and the drift that count as too much.
        confidence: level of the sampling intervals.
        readings: how many readings were averaged.
        window: their first effective step, and the last plus 1.
    """

    setting: RunSetting
    noise_to_signal: Estimate
    noise_scale: Estimate
    critical_batch: Estimate
    linear: LinearRule
    history: History
    reasons: tuple[Reason, ...]
    resolved: bool
    window_only: bool
    one_sided: bool
    c2: float
    confidence: float
    readings: int
    window: tuple[int, int]

    @property
    def batch_size(self) -> int:
        """B of the run."""
        return self.setting.batch_size

    @property
    def usable(self) -> bool:
        """Whether enough is known to print a list. Prices are conservative in any case."""
        return self.resolved or self.window_only or self.one_sided

    def prices(self, batch_sizes: Iterable[int] | None = None, throughput: Throughput | None = None) -> "Prices":
        """The price list, one row a batch size: a tuple that prints itself as the list.

        Args:
            batch_sizes: any; by default 2, 4, … 64 times that of the run, or with a `throughput` the sizes in it, as
                far as they can be used: up to the population, and before weight decay alone diverges.
            throughput: examples per second of a training step at each batch size, that of the run among them, as
                `svag.measure_throughput` returns. Gives the time to the same training loss.
        """
        speeds = checked_throughput(throughput, self.batch_size)
        if batch_sizes is not None:
            if not isinstance(batch_sizes, Iterable):
                raise TypeError(f"batch_sizes must be several, got {domain.shown(batch_sizes)}: make a list")
            return Prices((self._price(size, speeds) for size in batch_sizes), self, throughput)
        sizes = sorted(speeds) if speeds else [self.batch_size * 2**k for k in range(1, _DOUBLINGS + 1)]
        most = math.inf if self.setting.population is None else self.setting.population
        rows = [self._price(size, speeds) for size in sizes if size != self.batch_size and size <= most]
        return Prices((row for row in rows if self._can_be_used(row)), self, throughput)

    def best(self, throughput: Throughput, max_price: float = 2.0) -> Price:
        """The fastest row within the accepted price; the batch of the run itself if no other is faster.

        Args:
            throughput: as in `prices`.
            max_price: how many times as many examples are accepted.
        """
        domain.positive("max_price", max_price)
        own = self.prices([self.batch_size], throughput)
        rows = [row for row in (*own, *self.prices(throughput=throughput)) if row.examples.value <= max_price]
        return min(rows, key=lambda row: math.inf if row.time is None else row.time.value, default=own[0])

    def batch_schedule(self, max_price: float = 1.1) -> BatchSchedule:
        """A batch that grows along the run, so that no moment of it costs more than `max_price`."""
        return batch_schedule(self.history, max_price)

    def _price(self, size: int, speeds: dict[int, Estimate]) -> Price:
        size = domain.whole("batch_size", size)
        kappa = size / self.batch_size
        plan, examples = self.history.plan(size), self._examples(size)
        gained = kappa / examples.value
        return Price(
            batch_size=size,
            kappa=kappa,
            examples=examples,
            # κ over the gain is D, also below the batch of the run
            distortion=self.noise_to_signal.mapped(lambda ratio: kappa / gain(ratio, kappa)),
            time=relative_time(examples, size, self.batch_size, speeds),
            plan=plan,
            settings=self.setting.rate_at(gained, plan.phases[0][1]),
            factors=self.setting.factors(gained),
            linear=self.linear.at(size),
        )

    def _examples(self, size: int) -> Estimate:
        """The price of the plan with the range seen on committed ladders; no range if none was checked."""
        value = self.history.examples(size)
        if size <= self.batch_size or not self.setting.kind.priced:
            return Estimate(value, value, value) if size == self.batch_size else Estimate(value, 0.0, math.inf)
        low, high = price_range(log_error=self.history.log_error(size))
        return Estimate(value, low * value, high * value)

    def _can_be_used(self, price: Price) -> bool:
        gains = [gained for _, gained in price.plan.phases]
        return math.isfinite(price.examples.value) and not self.setting.diverges_at(max(gains))

    def details(self) -> str:
        """Everything that is known, as text: the list with sampling intervals, the history, and all reasons."""
        return wording.details(self)

    def plot(self, batch_sizes: Iterable[int] | None = None, throughput: Throughput | None = None) -> PricePicture:
        """Draw the price list and the noise scale along the run; needs Altair (`pip install "svag[plot]"`).

        A notebook shows the chart, and its `save("prices.html")` writes it to a file; "prices.svg" and "prices.png"
        also need vl-convert-python.

        Args:
            batch_sizes: as in `prices`.
            throughput: as in `prices`; the time is then drawn too.
        """
        return draw(plot_table(self, batch_sizes, throughput))

    def rows(self) -> list[dict[str, object]]:
        """Return the price list as flat rows for a DataFrame."""
        return [price.row() for price in self.prices()]

    def to_dict(self) -> dict[str, object]:
        """Return everything for a JSON document; infinity is null."""
        return {
            **self.setting.to_dict(),
            **json_fields_of(self, "noise_to_signal", "noise_scale", "critical_batch", "resolved", "window_only"),
            **json_fields_of(self, "c2", "confidence", "readings", "window"),
            "prices": json_value(self.prices()),
            **json_fields_of(self, "linear", "history", "reasons"),
        }

    def __repr__(self) -> str:
        return (
            f"<svag.PriceList from batch size {self.batch_size}: N/G = {self.noise_to_signal}, "
            f"{self.readings} readings>"
        )

    def __str__(self) -> str:
        return wording.answer(self)


def price_list(
    readings: Iterable[Reading], c2: float = 2.0, confidence: float = 0.95, window: Window | None = None
) -> PriceList:
    """Say from readings of one run what other batch sizes cost, and with which settings.

    The price is how many times as many examples a batch needs to end where the run ended, at the learning rate of the
    gain rule: κ/D times that of the run, with D = (κ + ρ)/(1 + ρ) and ρ = N/G. N/G rises along a run, so the gain is
    planned along its history, and the price is the average of D over the whole run.

    >>> readings = [Reading(1.0, 8.0, 1.0, 32, 4, step=k, lr=0.1, optimizer="SGD") for k in range(400)]
    >>> found = price_list(readings)
    >>> [(price.batch_size, round(price.examples.value, 2), price.settings) for price in found.prices([64, 256])]
    [(64, 1.11, '0.18'), (256, 1.78, '0.45')]

    Args:
        readings: from a `NoiseProbe`, from `measure_noise`, or made of bare numbers; several runs are told apart by
            `run`.
        c2: C², the price, and the drift under the linear rule, that count as too much; the paper uses 2.
        confidence: level of the sampling intervals.
        window: two effective steps or two fractions of the run, over which `noise_to_signal`, `distortion` and `linear`
            are averaged. By default what is left after the transient, or with a step schedule the last third of the
            second-to-last phase. Plans and prices always use the whole run.

    Reference: `svag.theory.gain`; Johnson et al. (2020, AdaScale); Li, Malladi, Arora (2021) for `linear`.
    """
    given, c2, confidence = _checked(readings), domain.closeness(c2), probability("confidence", confidence)
    chosen = choose_window(given, window)
    averages = Averages.over(chosen.readings)
    ground = find_ground(averages, steps_into_phase(given, chosen.readings[0]), confidence)
    setting, plain = RunSetting.of(averages), MeasuredRatio.plain(averages, confidence)
    ratio = plain.estimate
    critical = ratio.mapped(lambda rho: critical_batch_size(setting.batch_size, rho, c2))
    along = run_history(given, confidence=confidence)
    return PriceList(
        setting=setting,
        noise_to_signal=ratio,
        noise_scale=_noise_scale(averages, ratio),
        critical_batch=critical,
        linear=LinearRule.of(ground, c2),
        history=along,
        reasons=(*plain.doubts(critical), *_of_history(along), *price_remarks(plain), chosen.reason),
        resolved=plain.resolved,
        window_only=plain.window_only,
        one_sided=plain.one_sided,
        c2=c2,
        confidence=confidence,
        readings=len(averages.readings),
        window=(chosen.start, chosen.stop),
    )


def _of_history(along: History) -> Iterator[Reason]:
    """What the history does not cover, and what is assumed instead."""
    if along.starts_late:
        yield Reason(Code.MISSES_START, {"step": along.starts_at})
    if along.base_steps is None:
        yield Reason(Code.NO_STEPS)
    elif len(along.phases) == 1:
        yield Reason(Code.ONE_PHASE, {"readings": along.readings})


def _noise_scale(averages: Averages, ratio: Estimate) -> Estimate:
    batch, population = averages.shared.batch_size, averages.shared.population
    grad_sq = averages.weighted(averages.grad_sq)
    plain = max(averages.weighted(averages.noise), 0.0) / grad_sq if grad_sq > 0 else math.inf
    limits = ratio.mapped(lambda rho: b_simple(batch, rho, population))
    return Estimate(b_simple(batch, plain, population), limits.low, limits.high)


def _checked(readings: Iterable[Reading]) -> list[Reading]:
    if not isinstance(readings, Iterable):
        raise TypeError(
            f"readings must be several svag.Reading objects, got one {type(readings).__name__}: make a list"
        )
    given = list(readings)
    anything: list[object] = [*given]
    if strangers := [reading for reading in anything if not isinstance(reading, Reading)]:
        raise TypeError(f"readings must be svag.Reading objects, got {type(strangers[0]).__name__}")
    if not given:
        raise ValueError("there are no readings: take them from a NoiseProbe, measure_noise or load_readings")
    for name in ("grad_sq", "noise_trace", "param_sq", "lr"):  # their fourth powers must not overflow
        most = max(abs(getattr(reading, name) or 0.0) for reading in given)
        if most and not 1e-60 < most < 1e60:
            raise ValueError(f"the largest {name} is {most:.4g}, outside 1e-60 to 1e60: rescale the loss")
    if len(sizes := sorted({reading.batch_size for reading in given})) > 1:
        raise ValueError(f"readings of different batch sizes ({sizes[0]}, {sizes[1]}, …): predict from one at a time")
    return given
