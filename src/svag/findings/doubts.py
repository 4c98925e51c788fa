"""Why a prediction may not be trusted, each reason a sentence that says what to do about it."""

import math
from collections.abc import Iterator

from svag.arrays import FloatArray
from svag.findings.averages import Averages
from svag.stats.ratios import RatioInterval, pair_moments
from svag.stats.series import BlockPlan, trend_test
from svag.theory.equilibrium import effective_lr, steps_to_equilibrium

# Growth over decay of the weights within this of 1 counts as balanced, and a smaller pull of the loss as none:
# B* then moves by no more than about as much.
BALANCED = 0.1
_E_FOLDS = 3.0
# Fewer blocks than this say little about their own spread (Student's t with 4 degrees of freedom is 2.8).
_MIN_BLOCKS = 5
_DRIFT_LEVEL = 0.01
# Those that divide by a running size of the gradient, which takes the learning rate's place in the noise.
_ADAPTIVE = frozenset(
    ("Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SparseAdam")
)
# Parts whose N/G differs from that of whole batches by more than this factor say nothing useful about them.
_FAR = 2.0


def other_optimizer_doubts(found: Averages) -> Iterator[str]:
    """Nothing here is about an optimizer other than SGD, so nothing else is worth saying."""
    optimizer = found.setting.optimizer
    if optimizer is None or optimizer.startswith("SGD"):
        return
    if optimizer in _ADAPTIVE:
        yield (
            f"{optimizer} is adaptive and linear scaling does not apply to it: scale by svag.square_root_scaling "
            "instead."
        )
    else:
        yield f"The certificate is about SGD, and nothing here is known about {optimizer}: only B_simple has a meaning."


def optimizer_doubts(found: Averages, b_simple: float) -> Iterator[str]:
    """What the certificate does not cover."""
    setting = found.setting
    if setting.optimizer not in (None, "SGD"):
        yield f"The certificate does not cover {setting.optimizer}: use plain momentum or none."
    if setting.optimizer is not None:  # it was asked, so what is missing is not one number
        for value, names in ((setting.weight_decay, "weight decays"), (setting.lr, "learning rates")):
            if value is None:
                yield f"The measured parameters have different {names}: pass parameters= with those that share one."
    if setting.ell > 1:
        yield f"These are readings of SVAG with ell={setting.ell}, and the certificate is about SGD: measure at ell=1."
    if setting.lr == 0:
        yield "The learning rate is 0: nothing moves, so there is no equilibrium; measure while it trains."
    if setting.weight_decay == 0:
        yield (
            "No weight decay: the weights have no equilibrium and the certificate does not apply; "
            f"B_simple = {b_simple:.4g} does."
        )
    if found.signal is None:
        yield "With momentum the bound needs the velocity or the weight decay: record them (NoiseProbe does)."


def amount_doubts(found: Averages, interval: RatioInterval, low: float, high: float) -> Iterator[str]:
    """Too few readings, or G (with momentum X) not resolved."""
    count, signal = len(found.readings), "X" if found.momentum and found.signal is not None else "G"
    if interval.kind == "empty" and signal == "X":
        yield (
            "The average X = (1−β²)|v|² − N is significantly negative: train longer at this learning rate, and do not "
            "clip gradients between close_step() and the optimizer's step."
        )
    elif interval.kind == "empty":
        yield (
            "The average G is significantly negative: the gradients of a reading were not independent draws at one "
            "point; give population= for a shuffled epoch, and never use successive steps."
        )
    elif interval.blocks < _MIN_BLOCKS and any(reading.relative_error is not None for reading in found.readings):
        need = 2 * _MIN_BLOCKS * interval.block_length  # short series look more correlated than they are
        yield (
            f"Too few readings: {count} frozen ones know N/G at as many moments, and the bound is about its average "
            f"over the run; take about {need} frozen readings along the run."
        )
    elif interval.blocks < _MIN_BLOCKS:
        need = 20 * interval.block_length
        yield f"Too few readings: {count} are {interval.blocks} independent blocks; record about {need} of them."
    elif interval.kind == "unbounded":
        more = _more(found, interval)
        limit = "unbounded" if math.isinf(high) else f"and at most {high:.4g} whatever {signal} is"
        yield f"{signal} is not resolved: B* ≥ {low:.4g}, {limit}; measure about {more} more readings."


def schedule_doubts(longest: int | None) -> Iterator[str]:
    """The learning rate never holds still; `longest` is the length of its longest phase if that is too short."""
    if longest is not None:
        pace = "at every reading" if longest == 1 else f"every {longest} readings or sooner"
        yield (
            f"The learning rate changes {pace}: hold it for a while, or take frozen readings at one rate with "
            "svag.measure_noise."
        )


def equilibrium_doubts(found: Averages, steps: int | None) -> Iterator[str]:
    """Not at equilibrium, by the balance of the weights where η and λ are known, by a trend otherwise."""
    lr, decay, balance = found.setting.lr, found.setting.weight_decay, found.balance
    if decay == 0:
        return
    relaxation = steps_to_equilibrium(effective_lr(lr, found.momentum), decay) if lr and decay else None
    passed = None if relaxation is None or steps is None else steps / relaxation
    waited = (
        f"; {passed:.2g} relaxation times 1/(4ηλ) of {relaxation:.0f} steps had passed, allow 3 to 5"
        if passed is not None
        else f"; the relaxation time 1/(4ηλ) is {relaxation:.0f} steps, allow 3 to 5"
        if relaxation is not None
        else ""
    )
    cure = "train longer at this learning rate, or move the window later."
    if balance is not None and abs(balance - 1) > BALANCED:
        unknown = "" if found.share is not None else " (or the network is not scale invariant)"
        yield f"Not at equilibrium{unknown}: the weights grow {balance:.2f} times as fast as they decay{waited}; {cure}"
    elif balance is None or passed is None or passed < _E_FOLDS:
        for name, series in (("R", found.param_sq), ("N", found.noise)):
            change = _drift(series)
            if abs(change) > BALANCED:
                yield f"Not at equilibrium: {name} changes by {change:+.0%} over the window{waited}; {cure}"
                break


def invariance_doubts(found: Averages) -> Iterator[str]:
    """The loss pulls on the weight norm more than the theorem can overlook."""
    if found.share is not None and abs(found.share) > BALANCED:
        yield (
            "The network is not scale invariant, so B* is only approximate: the loss pulls on the weights "
            f"{found.share:+.0%} as hard as weight decay; measure only normalised weights (parameters=), or build the "
            "network scale invariant."
        )


def parts_doubts(found: Averages) -> Iterator[str]:
    """BatchNorm in parts is another network, by a comparison with whole batches."""
    if found.parts_ratio is not None and abs(math.log(found.parts_ratio)) > math.log(_FAR):
        yield (
            f"Not the noise of this run: BatchNorm saw parts of the batch, whose N/G is {found.parts_ratio:.3g} times "
            "that of whole batches; use fewer parts, or frozen readings with svag.measure_noise."
        )


def verdict(found: Averages) -> str:
    """What is said when there is no doubt, and no more than was tested."""
    if found.balance is not None:
        return "Fine: resolved and at equilibrium."
    untested = "" if found.share is not None else ", scale invariance not tested"
    return f"Resolved; equilibrium judged by drift alone{untested}."


def remarks(found: Averages, interval: RatioInterval, c2: float) -> Iterator[str]:
    """What a reader should know although it is no reason for doubt."""
    if found.share is not None and 0.01 < abs(found.share) <= BALANCED:
        yield f"Nearly scale invariant: the loss pulls on the weights {found.share:+.0%} as hard as weight decay."
    if found.momentum:
        source = "velocity" if found.velocity_sq is not None else "weight norm"
        yield f"Momentum {found.momentum:g}: N/G is N/X, with X = (1−β²)|v|² − N from the {source}."
        if found.excess is not None and found.excess > c2:
            yield f"D = 2λR/(η_eff N) = {found.excess:.3g} > C²: the run is not C-close to its SDE."
    if found.lr_wd is None:
        yield "Learning rate or weight decay is unknown: the balance of the weights was not tested."
    if any(reading.approximate for reading in found.readings) and found.parts_ratio is None:
        yield (
            "Approximate: BatchNorm saw parts of the batch, and by how much N/G is off is not known: give NoiseProbe "
            "some batches to compare with (check=)."
        )
    elif found.parts_ratio is not None and abs(math.log(found.parts_ratio)) <= math.log(_FAR):
        yield (
            f"Approximate: BatchNorm saw parts of the batch, whose N/G is {found.parts_ratio:.3g} times that of whole "
            "batches; B* is off by about as much."
        )
    if interval.blocks >= _MIN_BLOCKS and not interval.enough:
        yield f"Only {interval.blocks} independent blocks: the interval is wider than it need be."


def _drift(series: FloatArray) -> float:
    """Relative change over the series where it is significant, 0 otherwise."""
    mean = float(series.mean())
    if series.size < 4 or mean <= 0:
        return 0.0
    test = trend_test(series)
    return test.change / mean if test.drifts(_DRIFT_LEVEL) else 0.0


def _more(found: Averages, interval: RatioInterval) -> str:
    """Readings to add until the interval of G reaches half-way to 0; its width falls like 1/√readings."""
    count, signal = len(found.readings), found.signal
    if signal is None:
        return "many"
    plan = BlockPlan(count, interval.iact, interval.blocks, interval.block_length)
    reach = pair_moments(plan.means(found.noise), plan.means(signal)).relative_halfwidths(interval.confidence)[1]
    # nothing is known about G yet when its average is not even positive
    factor = 4 * reach**2 if math.isfinite(reach) and reach < 10 else 400.0
    return f"{max(math.ceil(count * (factor - 1)), 1)}"
