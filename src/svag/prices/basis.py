"""What a statement about the linear (square-root) rule rests on: a theorem where one applies, otherwise an estimate.

Why no theorem applies, and what else is known, is said in codes (`svag.prices.reasons`).

Scale invariance and stationarity decide the basis, not whether there is an answer:

- "weight_norm": scale-invariant network at equilibrium; the theorem speaks of R, G and κN (thm:lsr_kappa_bound).
- "pull": any network whose |x|² is stationary; the theorem speaks of the pull T, G and κN (ours).
- "gradient": SGD elsewhere, and optimizers that are not known here: the noise-scale estimate.
- "momentum": SGD with momentum elsewhere: X where it is resolved, otherwise X̂ from G.
- "second_moment": Adam and its kin, under the square-root rule; closeness then speaks of V, G and κN (ours).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from svag.arrays import FloatArray
from svag.prices.averages import Averages
from svag.prices.reasons import NO_THEOREM, Code, Reason, Value
from svag.prices.windows import MATERIAL, drift
from svag.stats.ratios import RatioInterval, pair_moments
from svag.stats.series import BlockPlan
from svag.theory.adaptive import distortion_with_eps
from svag.theory.distortion import distortion
from svag.theory.equilibrium import E_FOLDS, effective_lr, steps_to_equilibrium
from svag.theory.optimizers import Rule, optimizer_kind

Basis = Literal["weight_norm", "pull", "gradient", "momentum", "second_moment"]
Signal = Literal["G", "X", "X̂"]
THEOREMS = frozenset(("weight_norm", "pull"))

# Growth over decay of the weights within this of 1 counts as balanced, and a smaller pull of the loss as none:
# B* then moves by no more than about as much.
BALANCED = MATERIAL
# Fewer blocks than this say little about their own spread (Student's t with 4 degrees of freedom is 2.8).
_MIN_BLOCKS = 5
FEWEST = 200
"""Readings that a price list needs: 20 blocks of 10, if readings are independent."""
# Readings are never said to be too few by more than this factor, beyond the fewest.
_FORESIGHT = 4
# Parts whose N/G differs from that of whole batches by more than this factor say nothing useful about them.
_FAR = 2.0
# V may be off from G + N by this much before the premise of the square-root rule is in question.
_PREMISE = 0.2
# From this share of √(V/d) on, eps is felt in the steps of most parameters.
_EPS_FELT = 0.1
# The effect of eps is said for four times the batch.
_EXAMPLE = 4


@dataclass(frozen=True)
class Ground:
    """What a statement about the linear rule rests on.

    Attributes:
        basis: see above.
        rule: how settings change with the batch; None when no rule is known for the optimizer.
        signal: what N is divided by.
        interval: N over that signal.
        measured: N/X with momentum while X is not resolved and X̂ stands in for it; None otherwise.
        lr_wd: ηλ where the distortion depends on it, else 0.
        reasons: why no theorem applies; empty where one does.
    """

    basis: Basis
    rule: Rule | None
    signal: Signal
    interval: RatioInterval
    measured: RatioInterval | None
    lr_wd: float
    reasons: tuple[Reason, ...]

    @property
    def theorem(self) -> bool:
        """Whether the basis is a theorem."""
        return self.basis in THEOREMS


def find_ground(found: Averages, steps: int | None, confidence: float) -> Ground:
    """Decide what the averages allow; `steps` were spent at this learning rate before the window."""
    optimizer = found.shared.optimizer
    kind = optimizer_kind(optimizer)
    plain = plain_ratio(found, confidence)
    if kind.family == "second_moment":
        return Ground(
            "second_moment", kind.rule, "G", plain, None, 0.0, (Reason(Code.ONLY_SGD, {"optimizer": optimizer}),)
        )
    if kind.family == "unknown":
        untested = Reason(Code.UNTESTED_OPTIMIZER, {"optimizer": optimizer})
        return Ground("gradient", kind.rule, "G", plain, None, 0.0, (untested,))
    reasons = (*_setting_reasons(found), *_equilibrium_reasons(found, steps))
    if found.momentum:
        return _with_momentum(found, confidence, plain, reasons)
    if _premises_met(reasons):
        pulled = found.share is not None and abs(found.share) > BALANCED
        if found.shared.weight_decay and not pulled:
            return Ground("weight_norm", kind.rule, "G", plain, None, found.lr_wd or 0.0, ())
        if found.param_dot_grad is not None:
            return Ground("pull", kind.rule, "G", plain, None, 0.0, ())
        reasons = (Reason(Code.INVARIANCE_UNTESTED),)
    return Ground("gradient", kind.rule, "G", plain, None, 0.0, reasons)


def _premises_met(reasons: tuple[Reason, ...]) -> bool:
    """Whether all premises of a theorem were met."""
    return not any(reason.code in NO_THEOREM for reason in reasons)


def _with_momentum(found: Averages, confidence: float, plain: RatioInterval, reasons: tuple[Reason, ...]) -> Ground:
    """X where it is resolved, by a theorem or not; otherwise X̂, and what is known of X beside it."""
    kind = optimizer_kind(found.shared.optimizer)
    signal = found.moving_signal if kind.covered else None
    estimated = _ratio(found, found.estimated_signal, confidence)
    if found.momentum_varies:
        reasons = (*reasons, Reason(Code.MOMENTUM_VARIES))
        return Ground("momentum", kind.rule, "X̂", estimated, None, 0.0, reasons)
    if signal is None:
        reasons = (Reason(Code.X_NOT_MEASURED),) if _premises_met(reasons) else reasons
        return Ground("momentum", kind.rule, "X̂", estimated, None, 0.0, reasons)
    measured = found.ratio(signal, confidence)
    if not resolved(measured):
        return Ground("momentum", kind.rule, "X̂", estimated, measured, 0.0, (Reason(Code.X_UNRESOLVED), *reasons))
    if found.share is not None and abs(found.share) > BALANCED:
        reasons = (*reasons, Reason(Code.NOT_INVARIANT, {"share": found.share}))
    if found.rate_varies:
        reasons = (*reasons, Reason(Code.RATE_VARIES))
    if found.balance is None and _premises_met(reasons):
        reasons = (Reason(Code.VELOCITY_MISSING),)
    # with momentum the balance has no term in (ηλ)²
    basis: Basis = "weight_norm" if _premises_met(reasons) else "momentum"
    return Ground(basis, kind.rule, "X", measured, None, 0.0, reasons)


def plain_ratio(found: Averages, confidence: float) -> RatioInterval:
    """N/G itself, whatever the optimizer: what prices are made of."""
    return _ratio(found, found.grad_sq, confidence)


def _ratio(found: Averages, signal: FloatArray, confidence: float) -> RatioInterval:
    """N over a signal; where the blocks are too few, what this window of these runs alone says."""
    interval = found.ratio(signal, confidence)
    if interval.blocks >= _MIN_BLOCKS:
        return interval
    return found.ratio_in_window(signal, confidence) or interval


def limits_of(interval: RatioInterval) -> tuple[float, float, float]:
    """Value and limits of a ratio; where no positive ratio fits, nothing is known."""
    return (math.inf, 0.0, math.inf) if interval.kind == "empty" else (interval.value, interval.low, interval.high)


def window_only(found: Averages, interval: RatioInterval) -> bool:
    """Whether the interval is bounded, but is about this window of these runs only."""
    return interval.at_these_times and interval.kind == "bounded" and not any(_parts_doubts(found))


def resolved(interval: RatioInterval) -> bool:
    """Whether an interval is bounded and rests on enough blocks to mean what it says."""
    return interval.kind == "bounded" and interval.blocks >= _MIN_BLOCKS


def one_sided(found: Averages, interval: RatioInterval) -> bool:
    """Whether all that is in doubt is how large G is, so that N/G and B* have a lower limit only."""
    enough = interval.kind == "unbounded" and interval.blocks >= _MIN_BLOCKS
    return enough and not any(_parts_doubts(found))


def _setting_reasons(found: Averages) -> Iterator[Reason]:
    """What the theorems do not cover, in the optimizer's settings."""
    shared = found.shared
    if not optimizer_kind(shared.optimizer).covered:
        yield Reason(Code.NOT_COVERED, {"optimizer": shared.optimizer})
    if shared.ell > 1:
        yield Reason(Code.SVAG_READINGS, {"ell": shared.ell})
    if shared.optimizer is None and (shared.lr is None or shared.weight_decay is None):
        yield Reason(Code.SETTINGS_UNKNOWN)
    elif shared.lr is None or shared.weight_decay is None:
        # the optimizer was asked, so what is missing is not one number
        yield Reason(Code.MIXED_SETTINGS, {"weight_decay": shared.weight_decay is None, "lr": shared.lr is None})
    elif shared.lr == 0 and not found.rate_varies:
        yield Reason(Code.ZERO_RATE)
    elif shared.weight_decay == 0 and (found.momentum or found.balance is None):
        yield Reason(Code.NO_WEIGHT_DECAY)


def _equilibrium_reasons(found: Averages, steps: int | None) -> Iterator[Reason]:
    """|x|² is not stationary, by the balance of the weights where η and λ are known, and by a trend early in a run."""
    lr, decay, balance = found.mean_lr, found.shared.weight_decay, found.balance
    if balance is None and decay == 0:
        return
    relaxation = steps_to_equilibrium(effective_lr(lr, found.momentum), decay) if lr and decay else None
    passed = None if relaxation is None or steps is None else steps / relaxation
    waited: dict[str, Value] = {"relaxation": relaxation, "passed": passed, "rate_varies": found.rate_varies}
    if found.share is not None and found.share <= -1:  # T > 0 is a premise: nothing else could hold |x|² in place
        yield Reason(Code.ONLY_GROWS, {"share": found.share})
    elif balance is not None and abs(balance - 1) > BALANCED:
        if decay == 0:  # there is nothing to wait for: the loss alone does not hold the weights in place
            yield Reason(Code.NO_WEIGHT_DECAY)
        else:
            tested = found.param_dot_grad is not None
            yield Reason(Code.NOT_BALANCED, {"balance": balance, "invariance_tested": tested, **waited})
    elif balance is None or passed is None or passed < E_FOLDS:
        for name, series in (("R", found.param_sq), ("N", found.noise)):
            change = drift(series)
            if abs(change) > BALANCED:
                yield Reason(Code.DRIFTS, {"what": name, "change": change, **waited})
                break


def doubts(found: Averages, interval: RatioInterval, low: float, high: float) -> Iterator[Reason]:
    """Why an interval is not resolved: BatchNorm in parts, too few or dependent readings, or a signal too small.

    `low` and `high` are the interval of the batch size that follows from it.
    """
    yield from _parts_doubts(found)
    count = len(found.readings)
    if interval.kind == "empty":
        yield Reason(Code.NEGATIVE_SIGNAL)
    elif interval.blocks < _MIN_BLOCKS and found.runs_differ:
        yield Reason(Code.RUNS_DIFFER)
    elif interval.blocks < _MIN_BLOCKS and any(reading.relative_error is not None for reading in found.readings):
        needed = 2 * _MIN_BLOCKS * interval.block_length  # short series look more correlated than they are
        yield Reason(Code.TOO_FEW_FROZEN, {"readings": count, "needed": needed})
    elif interval.blocks < _MIN_BLOCKS:
        # a trend makes a short series look correlated for longer than it is, and even for longer than itself
        needed = min(20 * interval.block_length, max(FEWEST, _FORESIGHT * count))
        yield Reason(Code.TOO_FEW_READINGS, {"readings": count, "blocks": interval.blocks, "needed": needed})
    elif interval.kind == "unbounded":
        yield Reason(
            Code.SIGNAL_UNRESOLVED,
            {"low": low, "high": high if math.isfinite(high) else None, "more": _more(found, interval)},
        )


def _parts_doubts(found: Averages) -> Iterator[Reason]:
    """BatchNorm in parts is another network, by a comparison with whole batches."""
    if found.parts_ratio is not None and abs(math.log(found.parts_ratio)) > math.log(_FAR):
        yield Reason(Code.PARTS_FAR, {"ratio": found.parts_ratio})


def price_remarks(found: Averages, interval: RatioInterval) -> Iterator[Reason]:
    """What a reader of N/G and of prices should know although it changes nothing."""
    optimizer = found.shared.optimizer
    if optimizer_kind(optimizer).family == "unknown":
        yield Reason(Code.UNTESTED_OPTIMIZER, {"optimizer": optimizer})
    if (grown := found.missing_growth) is not None:
        yield Reason(Code.STEPS_TOO_SHORT, {"expected": grown[0], "seen": grown[1]})
    if any(reading.approximate for reading in found.readings) and found.parts_ratio is None:
        yield Reason(Code.PARTS_UNCHECKED)
    elif found.parts_ratio is not None and not any(_parts_doubts(found)):
        yield Reason(Code.PARTS_NEAR, {"ratio": found.parts_ratio})
    if window_only(found, interval):
        yield Reason(Code.WINDOW_ONLY)
    if interval.blocks >= _MIN_BLOCKS and not interval.enough:
        yield Reason(Code.FEW_BLOCKS, {"blocks": interval.blocks})


def linear_remarks(found: Averages, ground: Ground) -> Iterator[Reason]:
    """What else is known where the linear or the square-root rule is concerned."""
    if ground.basis == "pull" and found.share is not None:
        yield Reason(Code.PULL, {"share": found.share})
    elif found.share is not None and 0.01 < abs(found.share) <= BALANCED:
        yield Reason(Code.NEARLY_INVARIANT, {"share": found.share})
    if ground.signal == "X":
        source = "velocity" if found.velocity_sq is not None else "weight norm"
        yield Reason(Code.X_MEASURED, {"momentum": found.momentum, "source": source})
    elif ground.signal == "X̂":
        yield Reason(Code.X_ESTIMATED, {"momentum": found.momentum})
    if ground.measured is not None and ground.measured.kind == "empty":
        yield Reason(Code.X_NEGATIVE)
    if ground.basis == "second_moment":
        yield from _on_second_moment(found, ground)


def _on_second_moment(found: Averages, ground: Ground) -> Iterator[Reason]:
    """Whether v is what the square-root rule assumes, where that rule ends, and what eps does to it."""
    shared, ratio = found.shared, found.second_moment_ratio
    if ratio is None:
        yield Reason(Code.SECOND_MOMENT_UNKNOWN)
    elif abs(ratio - 1) <= _PREMISE:
        yield Reason(Code.SECOND_MOMENT_SETTLED, {"ratio": ratio})
    else:
        coupled = bool(shared.weight_decay) and not optimizer_kind(shared.optimizer).decoupled
        yield Reason(Code.SECOND_MOMENT_OFF, {"ratio": ratio, "coupled_decay": coupled})
    averages = [beta for beta in found.betas or () if beta > 0]
    if averages:
        yield Reason(Code.RULE_ENDS, {"batch_size": shared.batch_size / (1 - min(averages)), "beta": min(averages)})
    if (eps := found.eps_to_root) is not None and eps > _EPS_FELT and resolved(ground.interval):
        listed = distortion(ground.interval.value, _EXAMPLE)
        yield Reason(
            Code.EPS_FELT,
            {
                "eps": eps,
                "batch_size": _EXAMPLE * shared.batch_size,
                "distortion": listed,
                "with_eps": distortion_with_eps(listed, eps),
            },
        )


def signal_series(found: Averages, signal: Signal) -> FloatArray | None:
    """The series that N is divided by."""
    return {"G": found.grad_sq, "X": found.moving_signal, "X̂": found.estimated_signal}[signal]


def _more(found: Averages, interval: RatioInterval) -> int:
    """Readings to add until the interval of G reaches half-way to 0; its width falls like 1/√readings."""
    count = len(found.readings)
    plan = BlockPlan(count, interval.iact, interval.blocks, interval.block_length)
    num, den = found.weights * found.noise, found.weights * found.grad_sq
    reach = pair_moments(plan.means(num), plan.means(den)).relative_halfwidths(interval.confidence)[1]
    # nothing is known about G yet when its average is not even positive
    factor = 4 * reach**2 if math.isfinite(reach) and reach < 10 else 400.0
    return max(math.ceil(count * (factor - 1)), 1)
