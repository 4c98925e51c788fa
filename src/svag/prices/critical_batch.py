"""From readings of one ordinary run to a price list of larger batches, and B* (thm:lsr_kappa_bound)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from svag.noise.reading import Reading
from svag.prices import wording
from svag.prices.averages import Averages
from svag.prices.basis import (
    Basis,
    Ground,
    Signal,
    amount_doubts,
    find_ground,
    one_sided,
    parts_doubts,
    remarks,
    resolved,
    verdict,
    window_only,
)
from svag.prices.price import Estimate, Price, Stretch, history_of, limits_of, price_table, relative_time
from svag.prices.windows import Chosen, Window, choose_window, steps_into_phase
from svag.printed import Printed
from svag.stats.samples import json_number, probability
from svag.theory import domain
from svag.theory.bounds import adascale_gain, b_simple, critical_batch_size, sgd_refutes_sde
from svag.theory.distortion import distortion
from svag.theory.optimizers import Rule, optimizer_kind

_DOUBLINGS = 6


@dataclass(frozen=True)
class CriticalBatch(Printed):
    """What larger batches cost, from one run: the price list, B* with its interval, and what to think of them.

    >>> found = predict_critical_batch(
    ...     Reading(grad_sq=g, noise_trace=10.0, param_sq=1.0, batch_size=128, n=4) for g in (0.9, 1.1) * 200
    ... )
    >>> round(found.critical_batch), round(found.kappa)
    (1536, 12)

    Attributes:
        critical_batch: B*, where the distortion reaches C²; by the sharp bound, with ηλ on the basis "weight_norm"; the
            largest that ηλ allows, or `math.inf`, when the average G is not positive.
        low: lower end of its interval.
        high: upper end; when G is not resolved, infinite, or the bound that ηλ alone sets.
        ok: resolved, and the basis is a theorem; without it nothing is refuted.
        resolved: whether the interval is bounded on both sides and means what it says.
        window_only: not resolved, because readings are few or runs differ, but bounded: the interval is about the
            average over this window of these runs, and nothing else.
        basis: theorems: "weight_norm" (scale-invariant network at equilibrium), "pull" (any network, stationary |x|²);
            estimates: "gradient", "momentum", "second_moment".
        rule: "linear", "square_root", or None when no rule is known for the optimizer.
        status: the most important sentence: whether it is reliable, and otherwise why not and what to do.
        notes: the other sentences.
        kappa: B* over the batch size of the run.
        noise_to_signal: N/G as a ratio of averages; with momentum N/X or N/X̂, which takes its place.
        noise_to_signal_low: lower end of its interval.
        noise_to_signal_high: upper end of its interval.
        signal: what N was divided by: "G", "X" or "X̂".
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
        c2: C², the factor by which statistics of training may change.
        confidence: level of the intervals.
        readings: how many readings were averaged.
        window: their first effective step, and the last plus 1.
        history: the answer along the whole run, part by part; empty when there are too few readings for that.
        sde_refuted: whether N/G shows that the run is not C-close to its SDE (thm:eq_sde_sgd); needs "weight_norm".
        balance: growth over decay of the weights, 1 at equilibrium; None when unknown.
        pull_share: pull of the loss on the weights over that of weight decay, 0 if scale invariant; None when unknown.
        excess: E = 2λR/(η_eff N), above C² when the run is not C-close to its SDE; None when unknown.
        approximate: some readings saw BatchNorm in parts.
        parts_ratio: N/G of such parts over that of whole batches, where it was compared; None otherwise.
        lr_wd: ηλ where the distortion depends on it, 0 elsewhere.
        second_moment_ratio: V over G + N, 1 where v of Adam or RMSprop has settled at the squared gradient, which the
            prices presume; None when V is unknown.
        betas: rates of the averages of Adam, (0, alpha) of RMSprop; None when they varied or are unknown.
        eps: of the same optimizers; None when it varied or is unknown.
        lr: η, or None when it varied or is unknown.
        weight_decay: λ, or None when unknown.
        optimizer: its kind, or None when unknown.
        population: number of examples that batches are drawn from without replacement, or None.
    """

    critical_batch: float
    low: float
    high: float
    ok: bool
    resolved: bool
    window_only: bool
    basis: Basis
    rule: Rule | None
    status: str
    notes: tuple[str, ...]
    kappa: float
    noise_to_signal: float
    noise_to_signal_low: float
    noise_to_signal_high: float
    signal: Signal
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
    window: tuple[int, int]
    history: tuple[Stretch, ...]
    sde_refuted: bool
    balance: float | None
    pull_share: float | None
    excess: float | None
    approximate: bool
    parts_ratio: float | None
    lr_wd: float
    second_moment_ratio: float | None
    betas: tuple[float, float] | None
    eps: float | None
    lr: float | None
    weight_decay: float | None
    optimizer: str | None
    population: int | None
    # N/X while X is not resolved, lower and upper limit
    measured: tuple[float, float] | None = field(default=None, repr=False)
    # whether only a lower limit is known, because G is not resolved
    one_sided: bool = field(default=False, repr=False)

    def refutes(self, batch_size: float) -> bool:
        """Whether scaling to `batch_size` is refuted: it lies above the whole interval, and a theorem applies.

        False promises nothing.
        """
        return self.ok and domain.positive("batch_size", batch_size) > self.high

    def distortion(self, batch_size: float) -> Estimate:
        """D at `batch_size`, which must not be below the batch of the run."""
        kappa = domain.positive("batch_size", batch_size) / self.batch_size
        # the distortion falls as N/G rises, so that the limits change places
        ratios = (self.noise_to_signal, self.noise_to_signal_high, self.noise_to_signal_low)
        return Estimate(*(distortion(ratio, kappa, self.lr_wd) for ratio in ratios))

    def prices(
        self, batch_sizes: Iterable[int] | None = None, throughput: Mapping[int, float] | None = None
    ) -> tuple[Price, ...]:
        """The price list, one row a batch size.

        Args:
            batch_sizes: by default 2, 4, … 64 times that of the run, up to the population; with a `throughput`, the
                sizes in it from that of the run on.
            throughput: examples per second of a training step at each batch size, that of the run among them. Gives
                the wall-clock time to the same training loss, relative to the batch of the run.
        """
        speeds = dict(throughput or {})
        if speeds and self.batch_size not in speeds:
            raise ValueError(f"throughput must also hold the batch size of the run, {self.batch_size}, to compare with")
        for size, speed in speeds.items():
            domain.positive(f"throughput[{size}]", speed)
        if batch_sizes is not None:
            sizes = list(batch_sizes)
        elif speeds:
            sizes = sorted(size for size in speeds if size >= self.batch_size)
        else:
            sizes = [self.batch_size * 2**k for k in range(1, _DOUBLINGS + 1)]
            sizes = [size for size in sizes if self.population is None or size <= self.population]
        return tuple(self._price(size, self.distortion(size), speeds) for size in sizes)

    @property
    def price_bound(self) -> tuple[Price, ...] | None:
        """With momentum, while X is not resolved: the price list at the upper limits of D that X allows; else None."""
        if self.measured is None:
            return None
        low, high = self.measured
        rows = []
        for price in self.prices():
            most, least = (distortion(ratio, price.kappa, self.lr_wd) for ratio in (low, high))
            rows.append(self._price(price.batch_size, Estimate(most, least, most), {}))
        return tuple(rows)

    def price_list(
        self, batch_sizes: Iterable[int] | None = None, throughput: Mapping[int, float] | None = None
    ) -> str:
        """The price list as a table; arguments as in `prices`."""
        return price_table(self.prices(batch_sizes, throughput), one_sided=not (self.resolved or self.window_only))

    def _price(self, size: int, found: Estimate, speeds: dict[int, float]) -> Price:
        kappa = domain.whole("batch_size", size) / self.batch_size
        settings = optimizer_kind(self.optimizer).settings_at(
            kappa, lr=self.lr, weight_decay=self.weight_decay, betas=self.betas, eps=self.eps
        )
        time = relative_time(found.value, size, self.batch_size, speeds) if speeds else None
        return Price(size, kappa, settings, found.value, found.low, found.high, self.refutes(size), time)

    def to_dict(self) -> dict[str, object]:
        """Return the fields as JSON values; infinity is null."""
        flat = {name: json_number(v) if isinstance(v, float) else v for name, v in asdict(self).items()}
        del flat["measured"], flat["one_sided"]
        bound = self.price_bound
        return {
            **flat,
            "notes": list(self.notes),
            "window": list(self.window),
            "betas": None if self.betas is None else list(self.betas),
            "history": [row.to_dict() for row in self.history],
            "prices": [price.to_dict() for price in self.prices()],
            "price_bound": None if bound is None else [price.to_dict() for price in bound],
        }

    def __str__(self) -> str:
        return wording.answer(self)


def predict_critical_batch(
    readings: Iterable[Reading], c2: float = 2.0, confidence: float = 0.95, window: Window | None = None
) -> CriticalBatch:
    """Say from readings of one run what larger batches cost: the price list, and B*, where the price reaches C².

    N/G is a ratio of averages, with weights η² where the learning rate changes; its interval comes from block means
    that respect autocorrelation. The price of a batch is its distortion D, `svag.theory.distortion`. Where a theorem
    applies (`ok`), it is the least factor by which statistics of training must change; batches beyond B* are refuted.
    Elsewhere it is an estimate of the factor in examples that the larger batch costs.

    >>> readings = [
    ...     Reading(g, n, param_sq=2752.0, batch_size=128, n=4, lr=0.5, weight_decay=1e-3)
    ...     for g, n in [(0.9, 9.0), (0.9, 11.0), (1.1, 9.0), (1.1, 11.0)] * 100
    ... ]
    >>> found = predict_critical_batch(readings)
    >>> found.basis, round(found.critical_batch), found.refutes(4096), found.refutes(1024)
    ('weight_norm', 1528, True, False)
    >>> print(found.price_list([256, 512, 2048]))
    batch size  settings  distortion
           256  lr 1      1.09 [1.09, 1.09]
           512  lr 2      1.27 [1.27, 1.27]
          2048  lr 8      2.37 [2.37, 2.37]  ruled out

    Args:
        readings: from a `NoiseProbe`, from `measure_noise`, or made of bare numbers; several runs are told apart by
            `run`.
        c2: C², the factor by which statistics of training may change; the paper uses 2.
        confidence: level of the intervals.
        window: two effective steps or two fractions of the run. By default what is left after the transient, or with a
            step schedule the last third of the second-to-last phase; the notes say which it was.

    Reference: Li, Malladi, Arora (2021), thm:lsr_kappa_bound; the curve and the other bases are ours.
    """
    given = _checked(readings)
    domain.closeness(c2)
    probability("confidence", confidence)
    if len(sizes := sorted({reading.batch_size for reading in given})) > 1:
        raise ValueError(f"readings of different batch sizes ({sizes[0]}, {sizes[1]}, …): predict from one at a time")
    chosen = choose_window(given, window)
    found = Averages.over(chosen.readings)
    ground = find_ground(found, steps_into_phase(given, chosen.readings[0]), confidence)
    return _conclude(found, ground, chosen, history_of(given, ground, c2, confidence), c2)


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
    for name in ("grad_sq", "noise_trace", "param_sq", "lr"):  # fourth powers of them are averaged
        most = max(abs(getattr(reading, name) or 0.0) for reading in given)
        if most and not 1e-60 < most < 1e60:
            raise ValueError(f"the largest {name} is {most:.4g}, outside 1e-60 to 1e60: rescale the loss")
    return given


def _conclude(
    found: Averages, ground: Ground, chosen: Chosen, history: tuple[Stretch, ...], c2: float
) -> CriticalBatch:
    batch, setting = found.setting.batch_size, found.setting
    rho, low, high = limits_of(ground.interval)
    sharp, printed, plotted = (
        [critical_batch_size(batch, ratio, c2, form, ground.lr_wd) for ratio in (rho, low, high)]
        for form in ("sharp", "printed", "plotted")
    )
    mean_grad_sq = found.weighted(found.grad_sq)
    plain = max(found.weighted(found.noise), 0.0) / mean_grad_sq if mean_grad_sq > 0 else math.inf
    doubts = [*parts_doubts(found), *amount_doubts(found, ground, sharp[1], sharp[2])]
    is_resolved = resolved(ground.interval) and not doubts
    sde_refuted = ground.basis == "weight_norm" and is_resolved and sgd_refutes_sde(high, c2)
    sentences = [*doubts, *ground.reasons] or [verdict(ground, found)]
    if sde_refuted:
        sentences.append(wording.sde_sentence(ground.signal, high, c2))
    notes = (*sentences[1:], chosen.why, *remarks(found, ground))
    measured = None if ground.measured is None else limits_of(ground.measured)[1:]
    return CriticalBatch(
        critical_batch=sharp[0],
        low=sharp[1],
        high=sharp[2],
        ok=is_resolved and ground.theorem,
        resolved=is_resolved,
        window_only=window_only(found, ground),
        basis=ground.basis,
        rule=ground.rule,
        status=sentences[0],
        notes=notes,
        kappa=sharp[0] / batch,
        noise_to_signal=rho,
        noise_to_signal_low=low,
        noise_to_signal_high=high,
        signal=ground.signal,
        b_simple=b_simple(batch, plain, setting.population),
        gain_limit=adascale_gain(plain),
        printed=printed[0],
        printed_low=printed[1],
        printed_high=printed[2],
        plotted=plotted[0],
        plotted_low=plotted[1],
        plotted_high=plotted[2],
        form="sharp",
        batch_size=batch,
        c2=c2,
        confidence=ground.interval.confidence,
        readings=len(found.readings),
        window=(chosen.start, chosen.stop),
        history=history,
        sde_refuted=sde_refuted,
        balance=found.balance,
        pull_share=found.share,
        excess=found.excess,
        approximate=any(reading.approximate for reading in found.readings),
        parts_ratio=found.parts_ratio,
        lr_wd=ground.lr_wd,
        second_moment_ratio=found.second_moment_ratio,
        betas=found.betas,
        eps=found.eps,
        lr=found.lr,
        weight_decay=setting.weight_decay,
        optimizer=setting.optimizer,
        population=setting.population,
        measured=measured,
        one_sided=one_sided(found, ground),
    )


def logged_numbers(readings: Iterable[Reading]) -> dict[str, float]:
    """The headline numbers of `predict_critical_batch` over all `readings`, for a logger; without its history.

    What is not resolved is left out: never NaN, never infinite. While G alone is not resolved, the lower limit of N/G
    stays.

    >>> readings = [
    ...     Reading(g, n, param_sq=1.0, batch_size=128, n=4) for g, n in [(0.9, 9.0), (1.1, 11.0), (1.0, 10.0)] * 100
    ... ]
    >>> {name: round(value, 2) for name, value in logged_numbers(readings).items()}
    {'noise_to_signal': 10.0, 'noise_to_signal_low': 10.0, 'critical_batch': 1536.0, 'b_simple': 1280.0, \
'distortion_2x': 1.09, 'distortion_4x': 1.27}
    >>> logged_numbers(readings[:3])
    {}
    """
    given = list(readings)
    if not given:
        return {}
    chosen = choose_window(given, (0.0, 1.0))
    averages = Averages.over(chosen.readings)
    ground = find_ground(averages, steps_into_phase(given, chosen.readings[0]), 0.95)
    found = _conclude(averages, ground, chosen, (), 2.0)
    if not found.resolved:
        low = found.noise_to_signal_low
        return {"noise_to_signal_low": low} if found.one_sided and 0 < low < math.inf else {}
    numbers = {
        "noise_to_signal": found.noise_to_signal,
        "noise_to_signal_low": found.noise_to_signal_low,
        "critical_batch": found.critical_batch,
        "b_simple": found.b_simple,
    }
    for factor in (2, 4):
        size = factor * found.batch_size
        if found.population is None or size <= found.population:
            numbers[f"distortion_{factor}x"] = found.distortion(size).value
    return {name: value for name, value in numbers.items() if math.isfinite(value)}
