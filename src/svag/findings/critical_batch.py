"""From readings of one ordinary run to the batch size beyond which linear scaling cannot hold (thm:lsr_kappa_bound)."""

import html
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from svag.findings.averages import Averages, Window, choose_readings, ramp, steps_into_phase
from svag.findings.doubts import (
    amount_doubts,
    equilibrium_doubts,
    invariance_doubts,
    optimizer_doubts,
    other_optimizer_doubts,
    parts_doubts,
    remarks,
    schedule_doubts,
    verdict,
)
from svag.records.reading import Reading
from svag.stats.ratios import RatioInterval, ratio_interval
from svag.stats.samples import json_number, probability
from svag.theory import domain
from svag.theory.bounds import Form, adascale_gain, b_simple, critical_batch_size


@dataclass(frozen=True)
class CriticalBatch:
    """The batch size beyond which the linear scaling rule cannot hold, with its interval and what to think of it.

    >>> found = predict_critical_batch(
    ...     Reading(grad_sq=g, noise_trace=10.0, param_sq=1.0, batch_size=128, n=4) for g in (0.9, 1.1) * 200
    ... )
    >>> round(found.critical_batch), round(found.kappa)
    (1536, 12)

    Attributes:
        critical_batch: B*, by the sharp bound with ηλ where known; the largest that ηλ allows, or
            `math.inf`, when the average G is not positive.
        low: lower end of its interval.
        high: upper end; when G is not resolved, infinite, or the bound that ηλ alone sets.
        ok: whether the theorem applies and the interval means what it says.
        status: sentences: whether it is fine, and otherwise why not and what to do.
        kappa: B* over the batch size of the run.
        noise_to_signal: N/G as a ratio of averages; with momentum N/X, which takes its place.
        noise_to_signal_low: lower end of its interval.
        noise_to_signal_high: upper end of its interval.
        b_simple: the gradient noise scale B·N/G of McCandlish et al., with the with-replacement N.
        gain_limit: AdaScale's largest gain, 1 + N/G.
        printed: B* by the bound as the paper prints it.
        printed_low: lower end of its interval.
        printed_high: upper end of its interval.
        plotted: B* as the paper's figures draw it.
        plotted_low: lower end of its interval.
        plotted_high: upper end of its interval.
        form: which bound `critical_batch` is.
        batch_size: B of the run.
        c2: C², how close two runs must be to count as alike.
        confidence: level of the intervals.
        readings: how many readings were averaged.
        balance: growth over decay of the weights, 1 at equilibrium; None when unknown.
        pull_share: pull of the loss on the weights over that of weight decay, 0 if scale invariant; None when unknown.
        excess: D = 2λR/(η_eff N), above C² when the run is not C-close to its SDE; None when unknown.
        approximate: some readings saw BatchNorm in parts.
        parts_ratio: N/G of such parts over that of whole batches, where it was compared; None otherwise.
    """

    critical_batch: float
    low: float
    high: float
    ok: bool
    status: str
    kappa: float
    noise_to_signal: float
    noise_to_signal_low: float
    noise_to_signal_high: float
    b_simple: float
    gain_limit: float
    printed: float
    printed_low: float
    printed_high: float
    plotted: float
    plotted_low: float
    plotted_high: float
    form: str
    batch_size: int
    c2: float
    confidence: float
    readings: int
    balance: float | None
    pull_share: float | None
    excess: float | None
    approximate: bool
    parts_ratio: float | None

    def refutes(self, batch_size: float) -> bool:
        """Whether linear scaling to `batch_size` is refuted: it lies above the whole interval, and all is well.

        False promises nothing.
        """
        return self.ok and domain.positive("batch_size", batch_size) > self.high

    def to_dict(self) -> dict[str, float | int | str | bool | None]:
        """Return the fields as JSON values; infinity is null."""
        return {name: json_number(value) if isinstance(value, float) else value for name, value in asdict(self).items()}

    def __str__(self) -> str:
        interval = f"{_whole(self.critical_batch)} [{_whole(self.low)}, {_whole(self.high)}] ({self.confidence:.0%})"
        if self.ok:
            head = f"Linear scaling from {self.batch_size} cannot hold beyond B* = {interval}, C² = {self.c2:g}."
        else:
            head = f"No certificate from batch size {self.batch_size}; B* would be {interval}, C² = {self.c2:g}."
        ratio = f"{self.noise_to_signal:.3g} [{self.noise_to_signal_low:.3g}, {self.noise_to_signal_high:.3g}]"
        return (
            f"{head}\nN/G = {ratio} from {self.readings} readings; B_simple = {_whole(self.b_simple)}, gain limit "
            f"{self.gain_limit:.3g}; B* as printed {_whole(self.printed)}, as plotted {_whole(self.plotted)}.\n"
            f"{self.status}"
        )

    def _repr_html_(self) -> str:
        head, numbers, status = (html.escape(line) for line in str(self).split("\n"))
        mark = "&#10003;" if self.ok else "&#9888;"
        return f"<p><b>{head}</b><br>{numbers}<br>{mark} {status}</p>"


def predict_critical_batch(
    readings: Iterable[Reading], c2: float = 2.0, confidence: float = 0.95, window: Window | None = None
) -> CriticalBatch:
    """Predict from readings of one run setting beyond which batch size the linear scaling rule cannot hold.

    N/G is a ratio of averages over one learning rate; its interval comes from block means that respect
    autocorrelation. B* is then the sharp form of `svag.max_kappa` times the batch size, with ηλ where the readings know
    it.

    >>> readings = [
    ...     Reading(grad_sq=g, noise_trace=n, param_sq=1.0, batch_size=128, n=4)
    ...     for g, n in [(0.9, 9.0), (0.9, 11.0), (1.1, 9.0), (1.1, 11.0)] * 100
    ... ]
    >>> found = predict_critical_batch(readings)
    >>> round(found.critical_batch), found.refutes(4096), found.refutes(1024)
    (1536, True, False)

    Args:
        readings: from a `NoiseProbe`, from `measure_noise`, or made of bare numbers; several runs are told apart by
            `run`.
        c2: C², the square of the factor within which two runs count as alike; the paper uses 2.
        confidence: level of the interval.
        window: two effective steps or two fractions of the run. By default the last third of the last but one phase of
            the schedule, or everything at a constant learning rate.

    Reference: Li, Malladi, Arora (2021), thm:lsr_kappa_bound.
    """
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
    domain.closeness(c2)
    probability("confidence", confidence)
    if len(sizes := sorted({reading.batch_size for reading in given})) > 1:
        raise ValueError(f"readings of different batch sizes ({sizes[0]}, {sizes[1]}, …): predict from one at a time")
    chosen = choose_readings(given, window)
    found = Averages.over(chosen)
    interval = ratio_interval(
        found.noise, found.grad_sq if found.signal is None else found.signal, confidence=confidence
    )
    longest = ramp(given) if window is None else None
    return _conclude(found, interval, c2, steps_into_phase(given, chosen[0]), longest)


def _conclude(
    found: Averages, interval: RatioInterval, c2: float, steps: int | None, longest: int | None
) -> CriticalBatch:
    batch = found.setting.batch_size
    empty = interval.kind == "empty"
    rho, low, high = (math.inf, 0.0, math.inf) if empty else (interval.value, interval.low, interval.high)
    # with momentum the balance has no term in (ηλ)²
    lr_wd = 0.0 if found.momentum or found.lr_wd is None else found.lr_wd

    def batch_at(ratio: float, form: Form = "sharp") -> float:
        return critical_batch_size(batch, ratio, c2, form, lr_wd)

    mean_grad_sq = float(found.grad_sq.mean())
    plain = float(found.noise.mean()) / mean_grad_sq if mean_grad_sq > 0 else math.inf
    scale = b_simple(batch, plain, found.setting.population)
    stranger = list(other_optimizer_doubts(found))
    doubts = stranger or [
        *optimizer_doubts(found, scale),
        *(schedule_doubts(longest) if longest else amount_doubts(found, interval, batch_at(low), batch_at(high))),
        *equilibrium_doubts(found, steps),
        *invariance_doubts(found),
        *parts_doubts(found),
    ]
    return CriticalBatch(
        critical_batch=batch_at(rho),
        low=batch_at(low),
        high=batch_at(high),
        ok=not doubts,
        status=" ".join([*(doubts or [verdict(found)]), *([] if stranger else remarks(found, interval, c2))]),
        kappa=batch_at(rho) / batch,
        noise_to_signal=rho,
        noise_to_signal_low=low,
        noise_to_signal_high=high,
        b_simple=scale,
        gain_limit=adascale_gain(plain),
        printed=batch_at(rho, "printed"),
        printed_low=batch_at(low, "printed"),
        printed_high=batch_at(high, "printed"),
        plotted=batch_at(rho, "plotted"),
        plotted_low=batch_at(low, "plotted"),
        plotted_high=batch_at(high, "plotted"),
        form="sharp",
        batch_size=batch,
        c2=c2,
        confidence=interval.confidence,
        readings=len(found.readings),
        balance=found.balance,
        pull_share=found.share,
        excess=found.excess,
        approximate=any(reading.approximate for reading in found.readings),
        parts_ratio=found.parts_ratio,
    )


def _whole(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else "∞"
