"""SVAG around Adam and RMSprop tends to their SDEs, and the square-root rule has a distortion. The labels are ours.

- Weak orders in l with the settings that `refined` gives, and with wrong ones, which must not converge
  (ours:rmsprop_sde, ours:adam_sde).
- What a larger batch does to the second moment under the square-root rule, and by it to the steps
  (ours:square_root_rule).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np

from svag.arrays import FloatArray
from svag.paper.exact.adaptive import AdaptiveProblem, AdaptiveSettings, GridState, SettledStep, UpdateOrder
from svag.paper.exact.processes import WeakOrder, measure_weak_order
from svag.paper.verify.beds import COARSE, SECOND_MOMENT, STRONG, YOUNG
from svag.paper.verify.check import Check, Claim, claims
from svag.paper.verify.svag_limit import furthest
from svag.theory.adaptive import AdamSettings, RMSpropSettings, distortion_with_eps
from svag.theory.distortion import distortion, spread, step_ratio

ELLS = (8, 16, 32)
TIME = 4  # effective steps
SLOPE = 0.03
CONTROL_SLOPE = -0.1

RMSPROP = RMSpropSettings(lr=0.25, alpha=0.9, eps=0.2, weight_decay=0.1)
ADAM = AdamSettings(lr=0.25, betas=(0.5, 0.9), eps=0.2, weight_decay=0.2)
ADAMW = replace(ADAM, decoupled=True)
PLAIN = replace(ADAM, betas=(0.0, 0.9), weight_decay=0.0)

COORDINATES = (0.4, 1.3, 2.2)  # weights that stay where they are, each with a gradient and a variance of its own
RATES = (2**8, 2**10, 2**12)  # 1/(1 − β₂)
KAPPAS = (2, 4)

Refinement: TypeAlias = Callable[[int], AdaptiveSettings]
ScalingRule: TypeAlias = Callable[[RMSpropSettings, float], RMSpropSettings]

WRONG_RMSPROP: dict[str, Refinement] = {
    "lr/l, as for SGD": lambda ell: replace(RMSPROP.refined(ell), lr=RMSPROP.lr / ell),
    "eps not multiplied": lambda ell: replace(RMSPROP.refined(ell), eps=RMSPROP.eps),
    "1 − alpha not divided": lambda ell: replace(RMSPROP.refined(ell), alpha=RMSPROP.alpha),
    "coupled weight decay divided": lambda ell: replace(
        RMSPROP.refined(ell), weight_decay=RMSPROP.weight_decay / ell**0.5
    ),
}
WRONG_ADAMW: dict[str, Refinement] = {
    "lr/l, as for SGD": lambda ell: replace(ADAMW.refined(ell), lr=ADAMW.lr / ell),
    "eps not multiplied": lambda ell: replace(ADAMW.refined(ell), eps=ADAMW.eps),
    "1 − β₁ not divided": lambda ell: replace(ADAMW.refined(ell), betas=(ADAMW.betas[0], ADAMW.refined(ell).betas[1])),
    "1 − β₂ not divided": lambda ell: replace(ADAMW.refined(ell), betas=(ADAMW.refined(ell).betas[0], ADAMW.betas[1])),
    "decoupled weight decay not divided": lambda ell: replace(ADAMW.refined(ell), weight_decay=ADAMW.weight_decay),
}


def adaptive_order(
    bed: AdaptiveProblem,
    settings: AdaptiveSettings,
    refined: Refinement | None = None,
    ells: Sequence[int] = ELLS,
    order: UpdateOrder = "torch",
) -> WeakOrder:
    """Order in l of every function the bed watches, maximum over all sub-steps; each l must divide the last."""
    limit = bed.limit_path(settings, TIME, ells[-1])
    sub_step = refined or settings.refined
    return measure_weak_order(
        ells,
        # a wrong β₁ gives the process a moment that the limit has not
        lambda ell: bed.path(bed.svag(sub_step(ell), ell, order), TIME * ell)[:, : limit.shape[1]],
        lambda ell: limit[:: ells[-1] // ell],
    )


def slope_of_largest(order: WeakOrder) -> float:
    """Slope of the largest error over all functions, between the two finest refinements."""
    largest = replace(order, errors=order.errors.max(axis=1, keepdims=True))
    return float(largest.slopes[-1, 0])


def rmsprop_sde(rng: np.random.Generator) -> Iterator[Check]:
    """ours:rmsprop_sde: SVAG around RMSprop has weak order 1, with v updated before the step and after it."""
    claim, control = claims("ours:rmsprop_sde")
    orders: dict[str, UpdateOrder] = {"v first, as in torch": "torch", "v of the step before": "previous"}
    for name, order in orders.items():
        slopes = adaptive_order(SECOND_MOMENT, RMSPROP, order=order).slopes[-1]
        yield claim.near(f"SVAG → SDE of RMSprop: slope in l, {name}", furthest(slopes, -1), -1, SLOPE)
    theta = COORDINATES[1]
    still = replace(RMSPROP, weight_decay=0.0)
    signal, variance = float(STRONG.slope(np.array(theta)) ** 2), float(STRONG.spread(np.array(theta)) ** 2)
    settled = [STRONG.settled_step(STRONG.svag(still.refined(ell), ell), theta).second_moment / ell for ell in ELLS]
    apart = np.abs(np.array(settled) - (variance + signal / np.array(ELLS))).max()
    yield claim.at_most("fixed weight: E v/l is s + g²/l, so that the SDE drops g²", apart, 1e-11)
    for name, wrong in WRONG_RMSPROP.items():
        yield control.at_least(
            f"{name} ↛ SDE: slope of the largest error",
            slope_of_largest(adaptive_order(SECOND_MOMENT, RMSPROP, wrong)),
            CONTROL_SLOPE,
        )


def adam_sde(rng: np.random.Generator) -> Iterator[Check]:
    """ours:adam_sde: SVAG around Adam and AdamW has weak order 1, bias corrections included; β₁ = 0 stays 0."""
    claim, control = claims("ours:adam_sde")
    for name, settings in (("AdamW", ADAMW), ("Adam with L2", ADAM)):
        slopes = adaptive_order(YOUNG, settings).slopes[-1]
        yield claim.near(f"SVAG → SDE of {name}: slope in l", furthest(slopes, -1), -1, SLOPE)
    # without m a grid has two dimensions, and a larger l is cheap
    slopes = adaptive_order(YOUNG, PLAIN, ells=(16, 32, 64)).slopes[-1]
    yield claim.near("SVAG → SDE of Adam with β₁ = 0: slope in l", furthest(slopes, -1), -1, SLOPE)
    mistakes = {name: adaptive_order(COARSE, ADAMW, wrong, ELLS[1:]) for name, wrong in WRONG_ADAMW.items()}
    mistakes["β₁ = 0 becomes 1 − 1/l"] = adaptive_order(
        replace(COARSE, start=(0.8, 0.0, 0.36)), PLAIN, _scaled_zero, ELLS[1:]
    )
    for name, order in mistakes.items():
        yield control.at_least(f"{name} ↛ SDE: slope of the largest error", slope_of_largest(order), CONTROL_SLOPE)
    uncorrected = replace(COARSE, age=np.inf).limit_path(ADAMW, TIME)
    corrected = COARSE.limit_path(ADAMW, TIME)
    apart = np.abs(uncorrected - corrected).max()
    yield control.at_least("the SDE without bias corrections is another one: largest difference", apart, 0.02)


def _scaled_zero(ell: int) -> AdamSettings:
    fine = PLAIN.refined(ell)
    return replace(fine, betas=(1 - 1 / ell, fine.betas[1]))


def square_root_rule(rng: np.random.Generator) -> Iterator[Check]:
    """ours:square_root_rule: at κ times the batch κv′/v is D, and steps are short by √D."""
    claim, control = claims("ours:square_root_rule")
    yield from _second_moments(claim, control)
    yield from _steps(claim, control)
    yield from _moving(claim, control)


def _second_moments(claim: Claim, control: Claim) -> Iterator[Check]:
    """Weights that stay where they are: E v = g² + s for every β₂, coordinate by coordinate and in the sum."""
    settings = RMSpropSettings(lr=0.25, alpha=0.98)
    signal, variance = signal_and_variance()
    base = settled(settings, 1)
    for kappa in KAPPAS:
        large = settled(settings.scaled(kappa), kappa)
        v, v_large = field_of(base, "second_moment"), field_of(large, "second_moment")
        apart = np.abs(kappa * v_large / v - coordinate_distortion(kappa)).max()
        yield claim.at_most(f"κv′/v is D of each coordinate, κ = {kappa}", apart, 1e-11)
        noise_to_signal = variance.sum() / signal.sum()
        ratio = kappa * v_large.sum() / v.sum()
        expected = distortion(noise_to_signal, kappa)
        yield claim.near(f"κV′/V of the sums is D(N/G), κ = {kappa}", ratio, expected, 1e-11)
        yield control.at_least(f"V′ = V/κ, as the rule presumes, is off by, κ = {kappa}", abs(ratio - 1), 0.1)
        own = kappa * ((signal + variance / kappa) / v_large).sum() / ((signal + variance) / v).sum()
        yield control.near(f"in the optimizer's own metric the ratio is κ for any N/G, κ = {kappa}", own, kappa, 1e-11)


def _steps(claim: Claim, control: Claim) -> Iterator[Check]:
    """Per example, drift is divided by √D and diffusion by D, up to terms of order κ(1 − β₂)."""
    for eps in (0.0, 0.2, 5.0):
        order = _step_order(eps, eps_in_distortion=eps)
        slopes = order.slopes[-1]
        yield claim.near(
            f"drift·√D and diffusion·D → 1: slope in 1/(1 − β₂), eps = {eps}", furthest(slopes, -1), -1, SLOPE
        )
        yield claim.at_most(f"and how far from 1 at 1 − β₂ = 1/{RATES[-1]}, eps = {eps}", order.errors[-1].max(), 2e-3)
    linear = _step_order(0.2, eps_in_distortion=0.2, rule=_linear_rule)
    yield control.at_least("lr·κ: drift·√D ↛ 1, slope", linear.slopes[-1].min(), CONTROL_SLOPE)
    without = _step_order(0.2, eps_in_distortion=0.0)
    yield control.at_least("D without eps: drift·√D ↛ 1, slope", without.slopes[-1].min(), CONTROL_SLOPE)


def _step_order(eps: float, *, eps_in_distortion: float, rule: ScalingRule = RMSpropSettings.scaled) -> WeakOrder:
    """Deviations from 1 of drift·√D and diffusion·D, for every κ and coordinate, as 1/(1 − β₂) grows."""

    def deviations(settings: RMSpropSettings) -> Iterator[FloatArray]:
        base = settled(settings, 1)
        for kappa in KAPPAS:
            large = settled(rule(settings, kappa), kappa)
            d = coordinate_distortion(kappa, eps_in_distortion)
            yield field_of(large, "drift") / field_of(base, "drift") * np.sqrt(d) - 1
            yield field_of(large, "diffusion") / field_of(base, "diffusion") * d - 1

    return order_in_rate(eps, deviations)


def order_in_rate(eps: float, deviations: Callable[[RMSpropSettings], Iterator[FloatArray]]) -> WeakOrder:
    """How fast deviations from 0 fall as 1/(1 − β₂) grows."""
    settings = [RMSpropSettings(lr=0.25, alpha=1 - 1 / rate, eps=eps) for rate in RATES]
    return WeakOrder(RATES, np.array([np.abs(np.concatenate(list(deviations(each)))) for each in settings]))


def _linear_rule(settings: RMSpropSettings, kappa: float) -> RMSpropSettings:
    return replace(settings.scaled(kappa), lr=kappa * settings.lr)


def _moving(claim: Claim, control: Claim) -> Iterator[Check]:
    """Weights that move: V = G + N on average once stationary, and with the lag of the average at any other time."""
    settings = RMSpropSettings(lr=0.25, alpha=0.98, eps=0.2)
    base = STRONG.stationary(STRONG.at_batch(settings, 1), statistics)
    grad, noise, second = base
    yield claim.at_most("moving, stationary: V is G + N, relative", abs(second / (grad + noise) - 1), 1e-9)
    for kappa in KAPPAS:
        large = STRONG.stationary(STRONG.at_batch(settings.scaled(kappa), kappa), statistics)
        g, n, q = large / base
        expected = step_ratio(noise / grad, kappa, g, n)
        yield claim.near(f"moving, stationary: κV′/V is (κg + ρn)/(1 + ρ), κ = {kappa}", q, expected, 1e-9)
        least = distortion(noise / grad, kappa)
        yield claim.at_least(
            f"moving, stationary: spread of V, G and κN over D, κ = {kappa}", spread(g, n, q) / least, 1
        )
    steps = 20
    grads, noises, seconds = STRONG.path(STRONG.at_batch(settings, 1), steps, statistics).T
    exact, average = (grads + noises)[:-1].mean(), seconds[:-1].mean()
    lag = (seconds[-1] - seconds[0]) / ((1 - settings.alpha) * steps)
    apart = abs((average + lag) / exact - 1)
    yield claim.at_most("moving: mean V is mean G + N less ΔV/((1 − β₂)·steps), relative", apart, 1e-9)
    yield control.at_least("moving: without that lag it is off by, relative", abs(average / exact - 1), 0.01)


def statistics(state: GridState) -> FloatArray:
    """G, κN and κV at κ times the batch: what the rule presumes to be the same for every κ."""
    theta, w = state
    return np.stack([STRONG.slope(theta) ** 2, STRONG.spread(theta) ** 2, w], axis=1)


def signal_and_variance() -> tuple[FloatArray, FloatArray]:
    """g² and s of the baseline, one entry a coordinate."""
    theta = np.array(COORDINATES)
    return STRONG.slope(theta) ** 2, STRONG.spread(theta) ** 2


def coordinate_distortion(kappa: float, eps: float = 0.0) -> FloatArray:
    """D of each coordinate, ((√(Dv) + eps)/(√v + eps))² with eps."""
    signal, variance = signal_and_variance()
    pairs = zip(variance / signal, eps / np.sqrt(signal + variance), strict=True)
    return np.array([distortion_with_eps(distortion(ratio, kappa), to_root) for ratio, to_root in pairs])


def settled(settings: RMSpropSettings, kappa: int) -> list[SettledStep]:
    """One step at κ times the batch at each of the coordinates, with v settled there."""
    return [STRONG.settled_step(STRONG.at_batch(settings, kappa), theta) for theta in COORDINATES]


def field_of(steps: list[SettledStep], name: Literal["second_moment", "drift", "diffusion"]) -> FloatArray:
    """One field of several steps."""
    return np.array([getattr(step, name) for step in steps])
