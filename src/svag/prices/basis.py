"""What a statement about the linear (square-root) rule rests on: a theorem where one applies, otherwise an estimate.

The reasons why no theorem applies, and other remarks, are codes (`svag.prices.reasons`).

Scale invariance and stationarity decide the basis, not whether there is an answer:

- "weight_norm": scale-invariant network at equilibrium; the theorem speaks of R, G and κN (thm:lsr_kappa_bound).
- "pull": any network whose |x|² is stationary; the theorem speaks of the pull T, G and κN (ours).
- "gradient": other runs of SGD, and unknown optimizers: the noise-scale estimate.
- "momentum": other runs of SGD with momentum: X if it is resolved, otherwise X̂ from G.
- "second_moment": adaptive optimizers under the square-root rule; closeness is then about V, G and κN (ours).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from svag.arrays import FloatArray
from svag.prices.averages import Averages
from svag.prices.estimate import Estimate
from svag.prices.reasons import NO_THEOREM, Code, Reason, Value
from svag.prices.windows import MATERIAL, drift
from svag.stats.ratios import RatioInterval, pair_moments
from svag.stats.series import BlockPlan
from svag.theory.adaptive import distortion_with_eps
from svag.theory.distortion import distortion
from svag.theory.equilibrium import E_FOLDS, effective_lr, steps_to_equilibrium
from svag.theory.optimizers import optimizer_kind

Basis = Literal["weight_norm", "pull", "gradient", "momentum", "second_moment"]
Signal = Literal["G", "X", "X̂"]
THEOREMS = frozenset(("weight_norm", "pull"))

# Growth over decay of the weights within this of 1 counts as balanced, and a smaller pull of the loss as none:
# B* then moves by no more than about as much.
BALANCED = MATERIAL
# With fewer blocks than this, their spread is too uncertain (Student's t with 4 degrees of freedom is 2.8).
_MIN_BLOCKS = 5
FEWEST = 200
"""Readings that a price list needs: 20 blocks of 10, if readings are independent."""
# Readings are never said to be too few by more than this factor, beyond the fewest.
_FORESIGHT = 4
# If N/G of parts differs from that of whole batches by more than this factor, the parts are useless.
_FAR = 2.0
# Relative difference of V and G + N above which the premise of the square-root rule is in question.
_PREMISE = 0.2
# If eps is at least this share of √(V/d), it matters for the steps of most parameters.
_EPS_FELT = 0.1
# The effect of eps is reported for four times the batch.
_EXAMPLE = 4


@dataclass(frozen=True)
class MeasuredRatio:
    """N over a signal, averaged over a window of readings, and how well it is known.

    Attributes:
        averages: the readings.
        interval: the ratio with its interval.
    """

    averages: Averages
    interval: RatioInterval

    @classmethod
    def of(cls, averages: Averages, signal: FloatArray, confidence: float) -> "MeasuredRatio":
        """N over a signal; where the blocks are too few, what this window of these runs alone says."""
        interval = averages.ratio(signal, confidence)
        if interval.blocks < _MIN_BLOCKS:
            interval = averages.ratio_in_window(signal, confidence) or interval
        return cls(averages, interval)

    @classmethod
    def plain(cls, averages: Averages, confidence: float = 0.95) -> "MeasuredRatio":
        """N/G itself, whatever the optimizer: what prices are made of."""
        return cls.of(averages, averages.grad_sq, confidence)

    @property
    def estimate(self) -> Estimate:
        """The ratio and its limits; unbounded if no positive ratio fits."""
        found = self.interval
        return (
            Estimate(math.inf, 0.0, math.inf) if found.kind == "empty" else Estimate(found.value, found.low, found.high)
        )

    @property
    def confident(self) -> bool:
        """Whether the interval is bounded and rests on enough blocks to have its stated confidence."""
        return self.interval.kind == "bounded" and self.interval.blocks >= _MIN_BLOCKS

    @property
    def parts_far(self) -> bool:
        """Whether BatchNorm in parts is another network, by a comparison with whole batches."""
        ratio = self.averages.parts_ratio
        return ratio is not None and abs(math.log(ratio)) > math.log(_FAR)

    @property
    def resolved(self) -> bool:
        """Whether nothing of it is in doubt."""
        return self.confident and not self.parts_far

    @property
    def window_only(self) -> bool:
        """Whether the interval is bounded, but is about this window of these runs only."""
        return self.interval.at_these_times and self.interval.kind == "bounded" and not self.parts_far

    @property
    def one_sided(self) -> bool:
        """Whether all that is in doubt is how large G is, so that N/G and B* have a lower limit only."""
        enough = self.interval.kind == "unbounded" and self.interval.blocks >= _MIN_BLOCKS
        return enough and not self.parts_far

    def doubts(self, limit: Estimate) -> Iterator[Reason]:
        """Why it is not resolved: BatchNorm in parts, too few or dependent readings, or a signal too small.

        `limit` is the batch size that follows from it.
        """
        averages, interval, count = self.averages, self.interval, len(self.averages.readings)
        if self.parts_far:
            yield Reason(Code.PARTS_FAR, {"ratio": averages.parts_ratio})
        if interval.kind == "empty":
            yield Reason(Code.NEGATIVE_SIGNAL)
        elif interval.blocks < _MIN_BLOCKS and averages.runs_differ:
            yield Reason(Code.RUNS_DIFFER)
        elif interval.blocks < _MIN_BLOCKS and any(reading.relative_error is not None for reading in averages.readings):
            needed = 2 * _MIN_BLOCKS * interval.block_length  # short series look more correlated than they are
            yield Reason(Code.TOO_FEW_FROZEN, {"readings": count, "needed": needed})
        elif interval.blocks < _MIN_BLOCKS:
            # a trend makes a short series look correlated for longer than it is, and even for longer than itself
            needed = min(20 * interval.block_length, max(FEWEST, _FORESIGHT * count))
            yield Reason(Code.TOO_FEW_READINGS, {"readings": count, "blocks": interval.blocks, "needed": needed})
        elif interval.kind == "unbounded":
            high = limit.high if math.isfinite(limit.high) else None
            yield Reason(Code.SIGNAL_UNRESOLVED, {"low": limit.low, "high": high, "more": self._more()})

    def _more(self) -> int:
        """Readings to add until the interval of G reaches half-way to 0; its width falls like 1/√readings."""
        averages, interval, count = self.averages, self.interval, len(self.averages.readings)
        plan = BlockPlan(count, interval.iact, interval.blocks, interval.block_length)
        num, den = averages.weights * averages.noise, averages.weights * averages.grad_sq
        reach = pair_moments(plan.means(num), plan.means(den)).relative_halfwidths(interval.confidence)[1]
        # with an average that is not even positive, nothing is known about G yet
        factor = 4 * reach**2 if math.isfinite(reach) and reach < 10 else 400.0
        return max(math.ceil(count * (factor - 1)), 1)


@dataclass(frozen=True)
class Ground:
    """What a statement about the linear rule rests on.

    Attributes:
        basis: see above.
        signal: what N is divided by.
        ratio: N over that signal.
        reasons: why no theorem applies; empty where one does.
        measured: N/X with momentum while X is not resolved and X̂ stands in for it; None otherwise.
        lr_wd: ηλ where the distortion depends on it, else 0.
    """

    basis: Basis
    signal: Signal
    ratio: MeasuredRatio
    reasons: tuple[Reason, ...] = ()
    measured: MeasuredRatio | None = None
    lr_wd: float = 0.0

    @property
    def theorem(self) -> bool:
        """Whether the basis is a theorem."""
        return self.basis in THEOREMS


def find_ground(averages: Averages, steps: int | None, confidence: float) -> Ground:
    """Decide what the averages allow; `steps` were spent at this learning rate before the window."""
    optimizer = averages.shared.optimizer
    kind = optimizer_kind(optimizer)
    plain = MeasuredRatio.plain(averages, confidence)
    if kind.family == "second_moment":
        return Ground("second_moment", "G", plain, (Reason(Code.ONLY_SGD, {"optimizer": optimizer}),))
    if kind.family == "unknown":
        return Ground("gradient", "G", plain, (Reason(Code.UNTESTED_OPTIMIZER, {"optimizer": optimizer}),))
    reasons = (*_setting_reasons(averages), *_equilibrium_reasons(averages, steps))
    if averages.momentum:
        return _with_momentum(averages, confidence, reasons)
    if _premises_met(reasons):
        pulled = averages.share is not None and abs(averages.share) > BALANCED
        if averages.shared.weight_decay and not pulled:
            return Ground("weight_norm", "G", plain, lr_wd=averages.lr_wd or 0.0)
        if averages.param_dot_grad is not None:
            return Ground("pull", "G", plain)
        reasons = (Reason(Code.INVARIANCE_UNTESTED),)
    return Ground("gradient", "G", plain, reasons)


def _premises_met(reasons: tuple[Reason, ...]) -> bool:
    """Whether all premises of a theorem were met."""
    return not any(reason.code in NO_THEOREM for reason in reasons)


def _with_momentum(averages: Averages, confidence: float, reasons: tuple[Reason, ...]) -> Ground:
    """X where it is resolved, by a theorem or not; otherwise X̂, and what is known of X beside it."""
    signal = averages.moving_signal if optimizer_kind(averages.shared.optimizer).covered else None
    estimated = MeasuredRatio.of(averages, averages.estimated_signal, confidence)
    if averages.momentum_varies:
        return Ground("momentum", "X̂", estimated, (*reasons, Reason(Code.MOMENTUM_VARIES)))
    if signal is None:
        reasons = (Reason(Code.X_NOT_MEASURED),) if _premises_met(reasons) else reasons
        return Ground("momentum", "X̂", estimated, reasons)
    measured = MeasuredRatio(averages, averages.ratio(signal, confidence))
    if not measured.confident:
        return Ground("momentum", "X̂", estimated, (Reason(Code.X_UNRESOLVED), *reasons), measured)
    if averages.share is not None and abs(averages.share) > BALANCED:
        reasons = (*reasons, Reason(Code.NOT_INVARIANT, {"share": averages.share}))
    if averages.rate_varies:
        reasons = (*reasons, Reason(Code.RATE_VARIES))
    if averages.balance is None and _premises_met(reasons):
        reasons = (Reason(Code.VELOCITY_MISSING),)
    # with momentum the balance has no term in (ηλ)²
    basis: Basis = "weight_norm" if _premises_met(reasons) else "momentum"
    return Ground(basis, "X", measured, reasons)


def _setting_reasons(averages: Averages) -> Iterator[Reason]:
    """What the theorems do not cover, in the optimizer's settings."""
    shared = averages.shared
    if not optimizer_kind(shared.optimizer).covered:
        yield Reason(Code.NOT_COVERED, {"optimizer": shared.optimizer})
    if shared.ell > 1:
        yield Reason(Code.SVAG_READINGS, {"ell": shared.ell})
    if shared.optimizer is None and (shared.lr is None or shared.weight_decay is None):
        yield Reason(Code.SETTINGS_UNKNOWN)
    elif shared.lr is None or shared.weight_decay is None:
        # the settings were read from the optimizer, so a missing one is not a single number
        yield Reason(Code.MIXED_SETTINGS, {"weight_decay": shared.weight_decay is None, "lr": shared.lr is None})
    elif shared.lr == 0 and not averages.rate_varies:
        yield Reason(Code.ZERO_RATE)
    elif shared.weight_decay == 0 and (averages.momentum or averages.balance is None):
        yield Reason(Code.NO_WEIGHT_DECAY)


def _equilibrium_reasons(averages: Averages, steps: int | None) -> Iterator[Reason]:
    """|x|² is not stationary, by the balance of the weights where η and λ are known, and by a trend early in a run."""
    lr, decay, balance = averages.mean_lr, averages.shared.weight_decay, averages.balance
    if balance is None and decay == 0:
        return
    relaxation = steps_to_equilibrium(effective_lr(lr, averages.momentum), decay) if lr and decay else None
    passed = None if relaxation is None or steps is None else steps / relaxation
    waited: dict[str, Value] = {"relaxation": relaxation, "passed": passed, "rate_varies": averages.rate_varies}
    if averages.share is not None and averages.share <= -1:  # T > 0 is a premise: nothing else could hold |x|² in place
        yield Reason(Code.ONLY_GROWS, {"share": averages.share})
    elif balance is not None and abs(balance - 1) > BALANCED:
        if decay == 0:  # waiting does not help: the loss alone does not keep |x|² stationary
            yield Reason(Code.NO_WEIGHT_DECAY)
        else:
            tested = averages.param_dot_grad is not None
            yield Reason(Code.NOT_BALANCED, {"balance": balance, "invariance_tested": tested, **waited})
    elif balance is None or passed is None or passed < E_FOLDS:
        for name, series in (("R", averages.param_sq), ("N", averages.noise)):
            change = drift(series)
            if abs(change) > BALANCED:
                yield Reason(Code.DRIFTS, {"what": name, "change": change, **waited})
                break


def price_remarks(plain: MeasuredRatio) -> Iterator[Reason]:
    """What a reader of N/G and of prices should know although it changes nothing."""
    averages, interval = plain.averages, plain.interval
    optimizer = averages.shared.optimizer
    if optimizer_kind(optimizer).family == "unknown":
        yield Reason(Code.UNTESTED_OPTIMIZER, {"optimizer": optimizer})
    if (grown := averages.missing_growth) is not None:
        yield Reason(Code.STEPS_TOO_SHORT, {"expected": grown[0], "seen": grown[1]})
    if any(reading.approximate for reading in averages.readings) and averages.parts_ratio is None:
        yield Reason(Code.PARTS_UNCHECKED)
    elif averages.parts_ratio is not None and not plain.parts_far:
        yield Reason(Code.PARTS_NEAR, {"ratio": averages.parts_ratio})
    if plain.window_only:
        yield Reason(Code.WINDOW_ONLY)
    if interval.blocks >= _MIN_BLOCKS and not interval.enough:
        yield Reason(Code.FEW_BLOCKS, {"blocks": interval.blocks})


def linear_remarks(ground: Ground) -> Iterator[Reason]:
    """What else is known where the linear or the square-root rule is concerned."""
    averages = ground.ratio.averages
    if ground.basis == "pull" and averages.share is not None:
        yield Reason(Code.PULL, {"share": averages.share})
    elif averages.share is not None and 0.01 < abs(averages.share) <= BALANCED:
        yield Reason(Code.NEARLY_INVARIANT, {"share": averages.share})
    if ground.signal == "X":
        source = "velocity" if averages.velocity_sq is not None else "weight norm"
        yield Reason(Code.X_MEASURED, {"momentum": averages.momentum, "source": source})
    elif ground.signal == "X̂":
        yield Reason(Code.X_ESTIMATED, {"momentum": averages.momentum})
    if ground.measured is not None and ground.measured.interval.kind == "empty":
        yield Reason(Code.X_NEGATIVE)
    if ground.basis == "second_moment":
        yield from _on_second_moment(ground.ratio)


def _on_second_moment(found: MeasuredRatio) -> Iterator[Reason]:
    """Whether v is what the square-root rule assumes, where that rule ends, and what eps does to it."""
    averages = found.averages
    shared, ratio = averages.shared, averages.second_moment_ratio
    if ratio is None:
        yield Reason(Code.SECOND_MOMENT_UNKNOWN)
    elif abs(ratio - 1) <= _PREMISE:
        yield Reason(Code.SECOND_MOMENT_SETTLED, {"ratio": ratio})
    else:
        coupled = bool(shared.weight_decay) and not optimizer_kind(shared.optimizer).decoupled
        yield Reason(Code.SECOND_MOMENT_OFF, {"ratio": ratio, "coupled_decay": coupled})
    rates = [beta for beta in averages.betas or () if beta > 0]
    if rates:
        yield Reason(Code.RULE_ENDS, {"batch_size": shared.batch_size / (1 - min(rates)), "beta": min(rates)})
    if (eps := averages.eps_to_root) is not None and eps > _EPS_FELT and found.confident:
        listed = distortion(found.interval.value, _EXAMPLE)
        yield Reason(
            Code.EPS_FELT,
            {
                "eps": eps,
                "batch_size": _EXAMPLE * shared.batch_size,
                "distortion": listed,
                "with_eps": distortion_with_eps(listed, eps),
            },
        )


def signal_series(averages: Averages, signal: Signal) -> FloatArray | None:
    """The series that N is divided by."""
    return {"G": averages.grad_sq, "X": averages.moving_signal, "X̂": averages.estimated_signal}[signal]
