"""How the answer about the batch is said: one headline, the price list, how it is meant, and what to think of it."""

import math
from typing import TYPE_CHECKING

from svag.prices.basis import EXAMPLE, THEOREMS
from svag.prices.price import Estimate
from svag.theory.adaptive import step_shortfall
from svag.theory.bounds import sde_threshold

if TYPE_CHECKING:
    from svag.prices.critical_batch import CriticalBatch

# The answer along the run counts as moving when it moves by more than this factor, and significantly.
_TWOFOLD = 2.0

_EXAMPLES = "how many times as many examples a larger batch needs to reach the same training loss"
_ESTIMATES = f"Distortion estimates {_EXAMPLES}. Up to 1.5 it was right to about 30% where it was checked."
_FEW = f"{_ESTIMATES} Too little was read for a theorem, so no batch size is ruled out."
_UNPROVED = "No theorem applies to this run, so no batch size is ruled out."
_MEANING = {
    "weight_norm": "Distortion is the least factor by which the weight norm, the gradient and its noise must drift "
    "apart, compared with this run: a theorem, as the network is scale invariant and its weights are at equilibrium.",
    "pull": "Distortion is the least factor by which the pull on the weights, the gradient and its noise must drift "
    "apart, compared with this run: a theorem, as the weight norm is stationary.",
    "gradient": f"{_ESTIMATES} {_UNPROVED}",
    "momentum": f"Distortion is a rough estimate, with momentum, of {_EXAMPLES}. {_UNPROVED}",
    "second_moment": "Distortion is how many times larger the second moment of the gradient will be than the "
    f"square-root rule assumes; steps come out shorter by its square root. It is an estimate. {_UNPROVED}",
}


def answer(found: "CriticalBatch") -> str:
    """Return the whole answer as text for a terminal."""
    if not (found.resolved or found.window_only or found.one_sided):
        lines = [f"No price list yet from batch size {found.batch_size}.", _numbers(found), found.status]
    else:
        table = [found.price_list(), *_bound(found)]
        lines = [
            headline(found),
            _FEW if found.window_only and found.basis in THEOREMS else _MEANING[found.basis],
            *_shortfall(found),
            "",
            *table,
            "",
            _numbers(found),
            found.status,
        ]
    return "\n".join([*lines, *(f"- {note}" for note in found.notes)])


def _shortfall(found: "CriticalBatch") -> list[str]:
    """What distortion does to the steps of Adam, at one batch size."""
    prices = found.prices()
    price = next((one for one in prices if one.kappa == EXAMPLE), prices[-1] if prices else None)
    if found.basis != "second_moment" or price is None:
        return []
    most, cost = ("at most ", price.high) if found.one_sided else ("", price.distortion)
    said = (
        f"At batch size {price.batch_size}, {price.kappa:g} times this one, the second moment will be {most}{cost:.3g} "
        f"times what the rule assumes, so steps are {most}{step_shortfall(cost):.0%} too short."
    )
    return [said]


def _bound(found: "CriticalBatch") -> list[str]:
    """What X allows at most, beside the estimate X̂."""
    if found.price_bound is None:
        return []
    limits = ", ".join(f"{price.distortion:.3g} at {price.batch_size}" for price in found.price_bound)
    return [f"From X, which is not resolved, the distortion is at most {limits}."]


def headline(found: "CriticalBatch") -> str:
    """The answer in a sentence; where B* moves along the run, its range first."""
    rule = " by the square-root rule" if found.basis == "second_moment" else ""
    start = f"Scaling{rule} from batch size {found.batch_size}"
    moving = moving_range(found)
    if moving is not None:
        start += f" (B* = {_whole(moving.low)} to {_whole(moving.high)} along the run)"
    if found.one_sided:
        return (
            f"{start}: B* is at least {_whole(found.low)} ({found.confidence:.0%}, C² = {found.c2:g}); the gradient is "
            "too small beside its noise to say how far beyond."
        )
    limits = f"B* = {_whole(found.critical_batch)} [{_whole(found.low)}, {_whole(found.high)}]"
    limits += f" ({found.confidence:.0%} interval)"
    if found.basis in THEOREMS and not found.window_only:
        return f"{start}: beyond {limits}, training statistics must change by more than a factor of {_c2(found)}."
    if found.basis == "second_moment":
        return (
            f"{start}: beyond {limits}, the second moment, the gradient and its noise are "
            f"estimated to drift apart by more than a factor of {_c2(found)}."
        )
    return (
        f"{start}: beyond {limits}, expect to need more than {found.c2:g} times as many examples (C² = {found.c2:g})."
    )


def moving_range(found: "CriticalBatch") -> Estimate | None:
    """B* over the run, its smallest and largest, where it moves more than twofold within the window; else None."""
    first, last = found.window
    rows = [
        row.critical_batch
        for row in found.history
        if row.start < last and row.stop > first and math.isfinite(row.critical_batch.high)
    ]
    if len(rows) < 2:
        return None
    smallest, largest = min(rows, key=lambda row: row.value), max(rows, key=lambda row: row.value)
    if largest.value <= _TWOFOLD * smallest.value or largest.low <= smallest.high:
        return None
    return Estimate(found.critical_batch, smallest.value, largest.value)


def sde_sentence(signal: str, high: float, c2: float) -> str:
    """Say that the run is not C-close to its SDE (thm:eq_sde_sgd)."""
    return (
        f"The SDE does not describe this run: N/{signal} ≤ {high:.3g} is below {sde_threshold(c2):.3g}, so SGD and its "
        f"SDE differ by more than a factor of {math.sqrt(c2):.3g} in the weight norm, the gradient or the noise."
    )


def _numbers(found: "CriticalBatch") -> str:
    limits = (found.noise_to_signal, found.noise_to_signal_low, found.noise_to_signal_high)
    value, low, high = (f"{limit:.3g}" if math.isfinite(limit) else "∞" for limit in limits)
    return (
        f"N/{found.signal} = {value} [{low}, {high}] (gradient noise over signal at batch size {found.batch_size}), "
        f"from {found.readings} readings; gradient noise scale B_simple = {_whole(found.b_simple)}."
    )


def _c2(found: "CriticalBatch") -> str:
    return f"{found.c2:g} (C² = {found.c2:g})"


def _whole(value: float) -> str:
    return f"{value:.0f}" if math.isfinite(value) else "∞"
