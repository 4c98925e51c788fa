"""SVAG tends to the Itô SDE at order 1, plausible mistakes do not, and the second-order SDE has order 2.

- Weak orders on the beds: which slopes a family of processes shows in l.
- SVAG against plausible mistakes (thm:sde_svag, fig:proof_concept). Two moments are not enough to tell them apart, so
  every bed is followed to the third at least.
- The second-order SDE: better at a finite time, worse at a noise-dominated equilibrium (thm:2nd_order_sde).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from svag.arrays import FloatArray
from svag.paper.exact.affine import AffineProblem, orbit, reused_batch_moments
from svag.paper.exact.noise import Atoms
from svag.paper.exact.processes import (
    SGD,
    CharacteristicProcess,
    EulerMaruyama,
    ExactLimit,
    ExactProcess,
    Ito,
    Levy,
    SecondOrder,
    SmallerBatches,
    Svag,
    WeakOrder,
    measure_weak_order,
    richardson,
)
from svag.paper.exact.regression import RegressionProblem, root_draws, stable_lr, svag_draws, third_moment_order
from svag.paper.verify.beds import (
    CIRCLE,
    EFFECTIVE_STEPS,
    EXAMPLES,
    SKEWED,
    SYMMETRIC,
    ornstein_uhlenbeck,
    regression,
)
from svag.paper.verify.check import Check, Claim, claims

ELLS = (16, 64, 256)
ONE_STEP_ELLS = (256, 1024, 4096)  # a single step is cheap, and its error has a longer way to its asymptote
DEGREES = 4
SLOPE = 0.01
RICHARDSON_SLOPE = 0.03


def affine_order(
    bed: AffineProblem, process: Callable[[int], ExactProcess], limit: ExactLimit, ells: Sequence[int] = ELLS
) -> WeakOrder:
    """Order in l of x, x², x³, x⁴ with affine gradients, maximum over all steps."""
    return measure_weak_order(
        ells,
        lambda ell: bed.moments(process(ell), EFFECTIVE_STEPS, DEGREES)[:, 1:],
        lambda ell: bed.limit_moments(limit, EFFECTIVE_STEPS, DEGREES, ell)[:, 1:],
    )


def circle_order(process: Callable[[int], CharacteristicProcess], limit: Ito | Levy) -> WeakOrder:
    """Order in l of cos x, sin x, cos 2x, sin 2x on the circle, maximum over all steps."""
    return measure_weak_order(ELLS, lambda ell: _circle_path(process(ell)), lambda ell: _circle_limit(limit, ell))


def affine_richardson_order(bed: AffineProblem, process: Callable[[int], ExactProcess]) -> WeakOrder:
    """Order in l of 2E(2l) − E(l) with affine gradients, maximum over effective steps."""
    return _richardson_order(
        lambda ell: bed.moments(process(ell), EFFECTIVE_STEPS, DEGREES)[::ell, 1:],
        bed.limit_moments(Ito(), EFFECTIVE_STEPS, DEGREES)[:, 1:],
    )


def circle_richardson_order(process: Callable[[int], CharacteristicProcess]) -> WeakOrder:
    """Order in l of 2E(2l) − E(l) on the circle, maximum over effective steps."""
    return _richardson_order(lambda ell: _circle_path(process(ell))[::ell], _circle_limit(Ito(), 1))


def one_step_order(bed: AffineProblem, process: Callable[[int], ExactProcess]) -> WeakOrder:
    """Order in l of E Δ, E Δ², E Δ³ of one step of η/l against the SDE's over the same time (lem:D, lem:Dtil)."""
    origin = bed.recentred()
    return measure_weak_order(
        ONE_STEP_ELLS,
        lambda ell: origin.step_matrix(process(ell), 3)[None, 1:, 0],
        lambda ell: origin.limit_moments(Ito(), 1, 3, ell)[1:2, 1:],
    )


def furthest(values: FloatArray, target: float) -> float:
    """The value furthest from its target: the one that decides."""
    return float(values.flat[np.argmax(np.abs(values - target))])


def _richardson_order(path: Callable[[int], FloatArray], limit: FloatArray) -> WeakOrder:
    return measure_weak_order((32, 64, 128), lambda ell: richardson(path(ell), path(2 * ell)), lambda ell: limit)


def _circle_path(process: CharacteristicProcess) -> FloatArray:
    return _circle_orbit(CIRCLE.step_matrix(process), EFFECTIVE_STEPS * process.ell)


def _circle_limit(limit: Ito | Levy, ell: int) -> FloatArray:
    return _circle_orbit(CIRCLE.flow(limit, CIRCLE.lr / ell), EFFECTIVE_STEPS * ell)


def _circle_orbit(step: FloatArray, steps: int) -> FloatArray:
    """E f at one start after each step, for the four test functions."""
    x, start = CIRCLE.grid, 5
    functions = np.stack([np.cos(x), np.sin(x), np.cos(2 * x), np.sin(2 * x)], axis=1)
    at_start: FloatArray = orbit(step, functions, steps)[:, start]
    return at_start


def sde_svag(rng: np.random.Generator) -> Iterator[Check]:
    """thm:sde_svag: the weak error of SVAG is C/l for every test function; that of the ladder is not."""
    claim, control = claims("thm:sde_svag")
    for noise, bed in (("skewed noise", SKEWED), ("symmetric noise", SYMMETRIC), ("three examples", EXAMPLES)):
        slopes = affine_order(bed, Svag, Ito()).slopes[-1]
        yield claim.near(f"SVAG → Itô: slope in l, degrees 1–4, {noise}", furthest(slopes, -1), -1, SLOPE)
    slopes = affine_order(SKEWED, lambda ell: Svag(ell, split=2), Ito()).slopes[-1]
    yield claim.near("split SVAG (m=2) → Itô: slope in l, degrees 1–4", furthest(slopes, -1), -1, SLOPE)
    slopes = circle_order(Svag, Ito()).slopes[-1]
    yield claim.near("SVAG → Itô: slope in l, nonlinear gradients", furthest(slopes, -1), -1, SLOPE)
    yield from _regression(claim, control)
    slopes = affine_richardson_order(SKEWED, Svag).slopes[-1]
    yield claim.near("Richardson: slope in l, degrees 1–4", furthest(slopes, -2), -2, RICHARDSON_SLOPE)
    slopes = circle_richardson_order(Svag).slopes[-1]
    yield claim.near("Richardson: slope in l, nonlinear gradients", furthest(slopes, -2), -2, RICHARDSON_SLOPE)

    svag, ngd = (SKEWED.moments(process, EFFECTIVE_STEPS, DEGREES) for process in (Svag(16), EulerMaruyama(16)))
    apart = np.abs(svag / ngd - 1).max(axis=0)
    yield claim.at_most("SVAG and NGD agree in degrees 1, 2 (relative)", apart[1:3].max(), 1e-12)
    yield claim.at_least("SVAG and NGD differ in degrees 3, 4 (relative)", apart[3:].min(), 1e-6)

    ladder = affine_order(SKEWED, SmallerBatches, Ito()).slopes[-1]
    yield control.near("ladder: x and x² alone would pass it, slope", furthest(ladder[:2], -1), -1, SLOPE)
    yield control.at_least("ladder ↛ Itô from degree 3, skewed noise: slope", ladder[2:].min(), -0.1)
    ladder = affine_order(SYMMETRIC, SmallerBatches, Ito()).slopes[-1]
    yield control.near("ladder: degrees 1–3 pass it, symmetric noise, slope", furthest(ladder[:3], -1), -1, SLOPE)
    yield control.at_least("ladder ↛ Itô at degree 4, symmetric noise: slope", ladder[3], -0.1)
    ladder = circle_order(SmallerBatches, Ito()).slopes[-1]
    yield control.at_least("ladder ↛ Itô, nonlinear gradients: slope", ladder.min(), -0.1)
    reused = measure_weak_order(
        ELLS,
        lambda ell: reused_batch_moments(EXAMPLES, ell, EFFECTIVE_STEPS, 2)[:, 2:],
        lambda ell: EXAMPLES.limit_moments(Ito(), EFFECTIVE_STEPS, 2, ell)[:, 2:],
    )
    yield control.at_least("reusing the previous batch ↛ Itô: slope of x²", reused.slopes[-1].min(), -0.1)


def _regression(claim: Claim, control: Claim) -> Iterator[Check]:
    """Linear regression in three dimensions: three moments, loss, and the learning rate at which it gets unstable."""
    bed = regression()
    order = measure_weak_order(
        ELLS,
        lambda ell: _with_loss(bed, bed.moments(EFFECTIVE_STEPS, ell)),
        lambda ell: _with_loss(bed, bed.sde_moments(EFFECTIVE_STEPS, ell)),
    )
    yield claim.near("SVAG → Itô: slope in l, regression, moments and loss", furthest(order.slopes[-1], -1), -1, SLOPE)
    slopes = third_moment_order(bed, EFFECTIVE_STEPS, svag_draws).slopes[-1]
    yield claim.near("SVAG → Itô: slope in l, regression, third moments", furthest(slopes, -1), -1, 5 * SLOPE)
    slopes = third_moment_order(bed, EFFECTIVE_STEPS, root_draws).slopes[-1]
    yield control.at_least("one batch amplified by √l ↛ Itô at order 1: slope of a third moment", slopes.max(), -0.8)
    stable = np.array([stable_lr(bed.hessians, bed.batch_size, ell) for ell in (*ELLS, math.inf)])
    gaps = WeakOrder(ELLS, np.abs(1 / stable[:-1] - 1 / stable[-1])[:, None])
    yield claim.near("largest stable η of SVAG → that of Itô: slope in l", gaps.slopes[-1, 0], -1, SLOPE)


def _with_loss(bed: RegressionProblem, moments: FloatArray) -> FloatArray:
    return np.column_stack([_components(moments), bed.loss(moments)])


def proof_concept(rng: np.random.Generator) -> Iterator[Check]:
    """fig:proof_concept: SGD is order 1 in η; SVAG is order 1 in 1/l at a fixed η."""
    claim, control = claims("fig:proof_concept")
    duration, lr = 4, 0.5
    in_lr = measure_weak_order(
        (64, 256, 1024),
        lambda rate: _components(ornstein_uhlenbeck(1 / rate).moments(duration * rate)),
        lambda rate: _components(ornstein_uhlenbeck(1 / rate).sde_moments(duration * rate)),
    )
    yield claim.near("SGD → Itô: slope in 1/η, 2-d quadratic", furthest(in_lr.slopes[-1], -1), -1, SLOPE)
    steps, fixed = int(duration / lr), ornstein_uhlenbeck(lr)
    in_ell = measure_weak_order(
        ELLS,
        lambda ell: _components(fixed.moments(steps, ell)),
        lambda ell: _components(fixed.sde_moments(steps, ell)),
    )
    yield claim.near(f"SVAG → Itô: slope in l at η = {lr}", furthest(in_ell.slopes[-1], -1), -1, SLOPE)
    slopes = third_moment_order(fixed, steps, svag_draws).slopes[-1]
    yield claim.near(f"SVAG → Itô: slope in l at η = {lr}, third moments", furthest(slopes, -1), -1, 5 * SLOPE)
    slopes = third_moment_order(fixed, steps, root_draws).slopes[-1]
    yield control.at_least("one batch amplified by √l ↛ Itô at order 1: slope of a third moment", slopes.max(), -0.8)
    quiet = measure_weak_order(
        ELLS,
        lambda ell: _components(fixed.moments(steps, ell, noise=1 / ell)),
        lambda ell: _components(fixed.sde_moments(steps, ell)),
    )
    yield control.at_least("noise that is not amplified ↛ Itô: slope in l", quiet.slopes[-1].max(), -0.1)


def _components(moments: FloatArray) -> FloatArray:
    """E x_i and E x_i x_j, i ≤ j, one row a step."""
    rows, columns = np.triu_indices(moments.shape[1])
    return moments[:, rows[1:], columns[1:]]


# Additive noise: x′ = x − η(x + ξ), an Ornstein–Uhlenbeck process in the limit.
ADDITIVE = AffineProblem(Atoms((1.0, 1.0), (1.0, -1.0), (0.5, 0.5)), lr=0.1)


def second_order_sde(rng: np.random.Generator) -> Iterator[Check]:
    """thm:2nd_order_sde: weak order 2 in η, and the warning for the equilibrium."""
    claim, control = claims("thm:2nd_order_sde")
    yield claim.near(
        "2nd-order SDE: slope in 1/η, degrees 1–4", furthest(_order(SecondOrder()).slopes[-1], -2), -2, 2 * SLOPE
    )
    yield control.near("Itô SDE: slope in 1/η, degrees 1–4", furthest(_order(Ito()).slopes[-1], -1), -1, SLOPE)
    variance = ADDITIVE.equilibrium(SGD, 2)[2]
    error: dict[ExactLimit, float] = {
        limit: ADDITIVE.limit_equilibrium(limit, 2)[2] / variance - 1
        for limit in (Ito(), SecondOrder(), SecondOrder(corrected=True))
    }
    y = ADDITIVE.lr  # ηa, with a = 1
    expected: dict[ExactLimit, float] = {
        Ito(): -y / 2,
        SecondOrder(): -y / (1 + y / 2),
        SecondOrder(corrected=True): (1 + y) * (1 - y / 2) / (1 + y / 2) - 1,
    }
    apart = max(abs(error[limit] - expected[limit]) for limit in expected)
    yield claim.at_most("equilibrium variance of three SDEs: relative errors against closed form", apart, 1e-12)
    worse = error[SecondOrder()] / error[Ito()]
    yield claim.at_least("the 2nd-order SDE is worse there than the Itô SDE, by", worse, 1.9)
    mended = abs(error[SecondOrder(corrected=True)] / error[Ito()])
    yield claim.at_most("with the diffusion corrected: error over the Itô SDE's", mended, 0.1)


def _order(limit: ExactLimit) -> WeakOrder:
    """Order in 1/η of SGD against an SDE over a fixed time of 2.4."""

    def bed(rate: int) -> AffineProblem:
        return replace(SKEWED, lr=1 / rate)

    def steps(rate: int) -> int:
        return 12 * rate // 5

    return measure_weak_order(
        (40, 160, 640),
        lambda rate: bed(rate).moments(SGD, steps(rate), DEGREES)[:, 1:],
        lambda rate: bed(rate).limit_moments(limit, steps(rate), DEGREES)[:, 1:],
    )
