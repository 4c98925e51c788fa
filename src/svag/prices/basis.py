"""What an answer rests on: a theorem where one applies, otherwise an estimate, and in sentences why and what to do.

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
from svag.prices.windows import MATERIAL, drift
from svag.stats.ratios import RatioInterval, pair_moments
from svag.stats.series import BlockPlan
from svag.theory.adaptive import distortion_with_eps
from svag.theory.distortion import distortion
from svag.theory.equilibrium import effective_lr, steps_to_equilibrium
from svag.theory.optimizers import Rule, optimizer_kind

Basis = Literal["weight_norm", "pull", "gradient", "momentum", "second_moment"]
Signal = Literal["G", "X", "X̂"]
THEOREMS = frozenset(("weight_norm", "pull"))

# Growth over decay of the weights within this of 1 counts as balanced, and a smaller pull of the loss as none:
# B* then moves by no more than about as much.
BALANCED = MATERIAL
_E_FOLDS = 3.0
# Fewer blocks than this say little about their own spread (Student's t with 4 degrees of freedom is 2.8).
_MIN_BLOCKS = 5
# Parts whose N/G differs from that of whole batches by more than this factor say nothing useful about them.
_FAR = 2.0
# V may be off from G + N by this much before the premise of the square-root rule is in question.
_PREMISE = 0.2
# From this share of √(V/d) on, eps is felt in the steps of most parameters.
_EPS_FELT = 0.1
# The price of the sentences: four times the batch.
EXAMPLE = 4


@dataclass(frozen=True)
class Ground:
    """What an answer rests on.

    Attributes:
        basis: see above.
        rule: how settings change with the batch; None when no rule is known for the optimizer.
        signal: what N is divided by.
        interval: N over that signal.
        measured: N/X with momentum while X is not resolved and X̂ stands in for it; None otherwise.
        lr_wd: ηλ where the distortion depends on it, else 0.
        reasons: why no theorem applies, one sentence each; empty where one does.
    """

    basis: Basis
    rule: Rule | None
    signal: Signal
    interval: RatioInterval
    measured: RatioInterval | None
    lr_wd: float
    reasons: tuple[str, ...]

    @property
    def theorem(self) -> bool:
        """Whether the basis is a theorem."""
        return self.basis in THEOREMS


def find_ground(found: Averages, steps: int | None, confidence: float) -> Ground:
    """Decide what the averages allow; `steps` were spent at this learning rate before the window."""
    optimizer = found.setting.optimizer
    kind = optimizer_kind(optimizer)
    plain = _ratio(found, found.grad_sq, confidence)
    if kind.family == "second_moment":
        reason = f"The theorems cover SGD only, and this run used {optimizer}."
        return Ground("second_moment", kind.rule, "G", plain, None, 0.0, (reason,))
    if kind.family == "unknown":
        reason = f"No scaling rule is known for {optimizer}: this is the noise-scale estimate for plain gradient steps."
        return Ground("gradient", kind.rule, "G", plain, None, 0.0, (reason,))
    reasons = (*_setting_reasons(found), *_equilibrium_reasons(found, steps))
    if found.momentum:
        return _with_momentum(found, confidence, plain, reasons)
    pulled = found.share is not None and abs(found.share) > BALANCED
    if not reasons and found.setting.weight_decay and not pulled:
        return Ground("weight_norm", kind.rule, "G", plain, None, found.lr_wd or 0.0, ())
    if not reasons and found.param_dot_grad is not None:
        return Ground("pull", kind.rule, "G", plain, None, 0.0, ())
    untested = () if reasons else ("Scale invariance was not tested: record ⟨x, ∇L⟩ (NoiseProbe does).",)
    return Ground("gradient", kind.rule, "G", plain, None, 0.0, (*reasons, *untested))


def _with_momentum(found: Averages, confidence: float, plain: RatioInterval, reasons: tuple[str, ...]) -> Ground:
    """X where it is resolved, by a theorem or not; otherwise X̂, and what is known of X beside it."""
    kind = optimizer_kind(found.setting.optimizer)
    signal = found.moving_signal if kind.covered else None
    estimated = _ratio(found, found.estimated_signal, confidence)
    if signal is None:
        return Ground("momentum", kind.rule, "X̂", estimated, None, 0.0, reasons or ("X was not measured.",))
    measured = found.ratio(signal, confidence)
    if not resolved(measured):
        unresolved = (
            "X is not resolved. With momentum it takes the place of G; the estimate X̂ = G(1−β)/(1+β) is used instead.",
        )
        return Ground("momentum", kind.rule, "X̂", estimated, measured, 0.0, (*unresolved, *reasons))
    if found.share is not None and abs(found.share) > BALANCED:
        reasons = (*reasons, f"{not_invariant(found.share)} With momentum the theorem needs a scale-invariant network.")
    if found.rate_varies:
        reasons = (*reasons, "The learning rate changes, and with momentum the theorem needs it constant.")
    if found.balance is None and not reasons:
        reasons = (
            "The velocity was not recorded, and the weight norm replaces it, so equilibrium could not be tested.",
        )
    # with momentum the balance has no term in (ηλ)²
    return Ground("momentum" if reasons else "weight_norm", kind.rule, "X", measured, None, 0.0, reasons)


def _ratio(found: Averages, signal: FloatArray, confidence: float) -> RatioInterval:
    """N over a signal; where the blocks are too few, what this window of these runs alone says."""
    interval = found.ratio(signal, confidence)
    if interval.blocks >= _MIN_BLOCKS:
        return interval
    return found.ratio_in_window(signal, confidence) or interval


def window_only(found: Averages, ground: Ground) -> bool:
    """Whether the interval is bounded, but is about this window of these runs only."""
    return ground.interval.at_these_times and ground.interval.kind == "bounded" and not any(parts_doubts(found))


def resolved(interval: RatioInterval) -> bool:
    """Whether an interval is bounded and rests on enough blocks to mean what it says."""
    return interval.kind == "bounded" and interval.blocks >= _MIN_BLOCKS


def _setting_reasons(found: Averages) -> Iterator[str]:
    """What the theorems do not cover, in the optimizer's settings."""
    setting = found.setting
    if not optimizer_kind(setting.optimizer).covered:
        yield f"The theorems do not cover {setting.optimizer}: use plain momentum or none to get more than an estimate."
    if setting.ell > 1:
        yield f"These are readings of SVAG with ell={setting.ell}, and the theorems are about SGD: measure at ell=1."
    if setting.optimizer is None and (setting.lr is None or setting.weight_decay is None):
        yield "Learning rate or weight decay is unknown, so equilibrium could not be tested: record them."
    elif setting.lr is None or setting.weight_decay is None:
        # the optimizer was asked, so what is missing is not one number
        names = " and ".join(
            name
            for value, name in ((setting.weight_decay, "weight decays"), (setting.lr, "learning rates"))
            if value is None
        )
        yield f"The measured parameters have different {names}: pass parameters= with those that share one."
    elif setting.lr == 0 and not found.rate_varies:
        yield "The learning rate is 0, so nothing moves and there is no equilibrium: measure during training."
    elif setting.weight_decay == 0 and (found.momentum or found.balance is None):
        yield "No weight decay: the weights have no equilibrium, so no theorem applies."


def _equilibrium_reasons(found: Averages, steps: int | None) -> Iterator[str]:
    """|x|² is not stationary, by the balance of the weights where η and λ are known, and by a trend early in a run."""
    lr, decay, balance = found.mean_lr, found.setting.weight_decay, found.balance
    if balance is None and decay == 0:
        return
    relaxation = steps_to_equilibrium(effective_lr(lr, found.momentum), decay) if lr and decay else None
    passed = None if relaxation is None or steps is None else steps / relaxation
    waited = ""
    if relaxation is not None:
        waited = f" (weights settle in 3 to 5 relaxation times 1/(4ηλ) of {relaxation:.0f} steps"
        waited += ")" if passed is None else f"; {passed:.2g} had passed)"
    cure = "train longer at this learning rate, or move the window later."
    if found.rate_varies:
        waited, cure = "", "they do not settle while the learning rate changes."
    if found.share is not None and found.share <= -1:  # T > 0 is a premise: nothing else could hold |x|² in place
        yield f"Not at equilibrium: {_own_pull(found.share)}, so nothing shrinks them and |x|² only grows."
    elif balance is not None and abs(balance - 1) > BALANCED:
        unknown = "" if found.param_dot_grad is not None else " (or the network is not scale invariant)"
        yield f"Not at equilibrium{unknown}: the weights grow {balance:.2f} times as fast as they decay{waited}; {cure}"
    elif balance is None or passed is None or passed < _E_FOLDS:
        for name, series in (("R", found.param_sq), ("N", found.noise)):
            change = drift(series)
            if abs(change) > BALANCED:
                yield f"Not at equilibrium: {name} changes by {change:+.0%} over the window{waited}; {cure}"
                break


def amount_doubts(found: Averages, ground: Ground, low: float, high: float) -> Iterator[str]:
    """Too few or dependent readings, or a signal that is not resolved; `low` and `high` are the interval of B*."""
    interval, count = ground.interval, len(found.readings)
    if interval.kind == "empty":
        yield (
            "The average G is significantly negative: the gradients of a reading were not independent. "
            "For a shuffled epoch give population=, and never combine gradients of successive steps."
        )
    elif interval.blocks < _MIN_BLOCKS and found.runs_differ:
        yield (
            "The runs differ by more than their readings scatter: this is about these runs over this window only; run "
            "more seeds to learn what others would give."
        )
    elif interval.blocks < _MIN_BLOCKS and any(reading.relative_error is not None for reading in found.readings):
        need = 2 * _MIN_BLOCKS * interval.block_length  # short series look more correlated than they are
        yield (
            f"Too few readings, {count}: a frozen reading shows N/G at one moment, and the answer needs its average "
            f"over the run; take about {need} frozen readings along the run."
        )
    elif interval.blocks < _MIN_BLOCKS:
        need = 20 * interval.block_length
        yield f"Too few readings: {count} make only {interval.blocks} independent blocks; record about {need}."
    elif interval.kind == "unbounded":
        limit = "with no upper limit" if math.isinf(high) else f"and at most {high:.4g} whatever G is"
        yield f"G is not resolved: B* ≥ {low:.4g}, {limit}; take about {_more(found, interval)} more readings."


def one_sided(found: Averages, ground: Ground) -> bool:
    """Whether all that is in doubt is how large G is, so that N/G and B* have a lower limit only."""
    interval = ground.interval
    return interval.kind == "unbounded" and interval.blocks >= _MIN_BLOCKS and not any(parts_doubts(found))


def parts_doubts(found: Averages) -> Iterator[str]:
    """BatchNorm in parts is another network, by a comparison with whole batches."""
    if found.parts_ratio is not None and abs(math.log(found.parts_ratio)) > math.log(_FAR):
        yield (
            f"Not the noise of this run: BatchNorm saw parts of the batch, whose N/G is {found.parts_ratio:.3g} times "
            "that of whole batches; use fewer parts, or frozen readings with svag.measure_noise."
        )


def verdict(ground: Ground, found: Averages) -> str:
    """What is said of an answer that a theorem carries, and no more than was tested."""
    state = "weights at equilibrium" if ground.basis == "weight_norm" else "weight norm stationary"
    untested = ", scale invariance not tested" if found.param_dot_grad is None else ""
    return f"Reliable: noise resolved, {state}{untested}."


def remarks(found: Averages, ground: Ground) -> Iterator[str]:
    """What a reader should know although it changes nothing."""
    if ground.basis == "pull" and found.share is not None:
        yield f"{not_invariant(found.share)} So the theorem is about the pull on the weights, not their norm."
    elif found.share is not None and 0.01 < abs(found.share) <= BALANCED:
        yield f"Nearly scale invariant: {_own_pull(found.share)}."
    if ground.signal == "X":
        source = "velocity" if found.velocity_sq is not None else "weight norm"
        yield f"Momentum {found.momentum:g}: N/X takes the place of N/G, with X = (1−β²)|v|² − N from the {source}."
    elif ground.signal == "X̂":
        yield (
            f"Momentum {found.momentum:g}: N/X̂ takes the place of N/G, with X̂ = G(1−β)/(1+β); the truth lies between "
            "this price and that of the same gradients without momentum. On the ladder where this was measured, "
            "training statistics drifted apart at a quarter of such a B*."
        )
    if ground.measured is not None and ground.measured.kind == "empty":
        yield (
            "The average X = (1−β²)|v|² − N is significantly negative: train longer at this learning rate, and do not "
            "clip gradients between close_step() and the optimizer's step."
        )
    if ground.basis == "second_moment":
        yield from _on_second_moment(found, ground)
    if (grown := found.missing_growth) is not None:
        yield (
            f"According to the gradients |x|² should have grown by {grown[0]:.0%} over the window, but it changed by "
            f"{grown[1]:+.0%}: the steps were shorter, as with gradients clipped after they are read."
        )
    if any(reading.approximate for reading in found.readings) and found.parts_ratio is None:
        yield (
            "Approximate: BatchNorm saw parts of the batch, and the error of N/G is unknown: give NoiseProbe some "
            "batches to compare with (check=)."
        )
    elif found.parts_ratio is not None and abs(math.log(found.parts_ratio)) <= math.log(_FAR):
        yield (
            f"Approximate: BatchNorm saw parts of the batch, whose N/G is {found.parts_ratio:.3g} times that of whole "
            "batches; B* is off by about as much."
        )
    if window_only(found, ground):
        yield (
            "The interval is that of the average over this window, from differences of successive readings: it does "
            "not say what a longer or another run would give, and rules nothing out."
        )
    if ground.interval.blocks >= _MIN_BLOCKS and not ground.interval.enough:
        yield f"Only {ground.interval.blocks} independent blocks: more readings would narrow the interval."


def _on_second_moment(found: Averages, ground: Ground) -> Iterator[str]:
    """Whether v is what the prices assume, where the rule ends, and what eps does to it."""
    setting, ratio = found.setting, found.second_moment_ratio
    if ratio is None:
        yield "The second moment was not recorded, so V ≈ G + N, which the prices assume, was not tested."
    else:
        yield f"V = Σv̂ is {ratio:.2f} times G + N, {_premise(found, ratio)}"
    names = ("alpha", "alpha") if setting.optimizer == "RMSprop" else ("β₁", "β₂")
    averages = [(beta, name) for beta, name in zip(found.betas or (), names, strict=False) if beta > 0]
    if averages:
        beta, name = min(averages)
        yield (
            f"The rule ends below batch size {setting.batch_size / (1 - beta):.0f}, where κ(1 − {name}) reaches 1: "
            "its average would be over less than one batch."
        )
    if (eps := found.eps_to_root) is not None and eps > _EPS_FELT and resolved(ground.interval):
        listed = distortion(ground.interval.value, EXAMPLE)
        yield (
            f"eps is {eps:.2g} times √(V/d), the root mean square of √v̂ over the d measured parameters. Where eps is "
            f"felt, distortion is smaller: {distortion_with_eps(listed, eps):.3g} instead of {listed:.3g} at batch "
            f"size {EXAMPLE * setting.batch_size} for a parameter of that size, and 1 where eps is much larger than √v̂."
        )


def _premise(found: Averages, ratio: float) -> str:
    if abs(ratio - 1) <= _PREMISE:
        return "as the prices assume: v has settled at the squared gradient."
    if ratio < 1:
        why = "gradients are clipped after they are read, or v remembers smaller ones"
    elif found.setting.weight_decay and not optimizer_kind(found.setting.optimizer).decoupled:
        why = "weight decay is a part of the gradient here, or v remembers larger ones"
    else:
        why = "v remembers larger gradients than those of the window"
    return (
        f"and the prices assume that the two agree. Likely cause: {why}. The distortion is then less certain "
        "than its interval says."
    )


def not_invariant(share: float) -> str:
    """Say how hard the loss itself pulls on the weights."""
    return f"Not scale invariant: {_own_pull(share)}."


def _own_pull(share: float) -> str:
    does = "shrinks" if share > 0 else "grows"
    return f"the loss itself {does} the weights, at {abs(share):.0%} of the rate of weight decay"


def signal_series(found: Averages, signal: Signal) -> FloatArray | None:
    """The series that N is divided by."""
    return {"G": found.grad_sq, "X": found.moving_signal, "X̂": found.estimated_signal}[signal]


def _more(found: Averages, interval: RatioInterval) -> str:
    """Readings to add until the interval of G reaches half-way to 0; its width falls like 1/√readings."""
    count = len(found.readings)
    plan = BlockPlan(count, interval.iact, interval.blocks, interval.block_length)
    num, den = found.weights * found.noise, found.weights * found.grad_sq
    reach = pair_moments(plan.means(num), plan.means(den)).relative_halfwidths(interval.confidence)[1]
    # nothing is known about G yet when its average is not even positive
    factor = 4 * reach**2 if math.isfinite(reach) and reach < 10 else 400.0
    return f"{max(math.ceil(count * (factor - 1)), 1)}"
