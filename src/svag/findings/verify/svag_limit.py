"""SVAG tends to the Itô SDE at order 1, and plausible mistakes do not (thm:sde_svag, fig:proof_concept)."""

import math
from collections.abc import Iterator

import numpy as np

from svag.arrays import FloatArray
from svag.exact.affine_nd import RegressionProblem, stable_lr
from svag.exact.batch_reuse import reused_batch_moments
from svag.exact.processes import Ito, Ladder, NoisyGD, Svag
from svag.exact.weak_order import WeakOrder, measure_weak_order
from svag.findings.verify.beds import EFFECTIVE_STEPS, EXAMPLES, SKEWED, SYMMETRIC, ornstein_uhlenbeck, regression
from svag.findings.verify.check import Check, Claim, claims
from svag.findings.verify.weak_orders import (
    DEGREES,
    ELLS,
    RICHARDSON_SLOPE,
    SLOPE,
    affine_order,
    affine_richardson_order,
    circle_order,
    circle_richardson_order,
    furthest,
)


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
    yield from _regression(claim)
    slopes = affine_richardson_order(SKEWED, Svag).slopes[-1]
    yield claim.near("Richardson: slope in l, degrees 1–4", furthest(slopes, -2), -2, RICHARDSON_SLOPE)
    slopes = circle_richardson_order(Svag).slopes[-1]
    yield claim.near("Richardson: slope in l, nonlinear gradients", furthest(slopes, -2), -2, RICHARDSON_SLOPE)

    svag, ngd = (SKEWED.moments(process, EFFECTIVE_STEPS, DEGREES) for process in (Svag(16), NoisyGD(16)))
    apart = np.abs(svag / ngd - 1).max(axis=0)
    yield claim.at_most("SVAG and NGD agree in degrees 1, 2 (relative)", apart[1:3].max(), 1e-12)
    yield claim.at_least("SVAG and NGD differ in degrees 3, 4 (relative)", apart[3:].min(), 1e-6)

    ladder = affine_order(SKEWED, Ladder, Ito()).slopes[-1]
    yield control.near("ladder: x and x² alone would pass it, slope", furthest(ladder[:2], -1), -1, SLOPE)
    yield control.at_least("ladder ↛ Itô from degree 3, skewed noise: slope", ladder[2:].min(), -0.1)
    ladder = affine_order(SYMMETRIC, Ladder, Ito()).slopes[-1]
    yield control.near("ladder: degrees 1–3 pass it, symmetric noise, slope", furthest(ladder[:3], -1), -1, SLOPE)
    yield control.at_least("ladder ↛ Itô at degree 4, symmetric noise: slope", ladder[3], -0.1)
    ladder = circle_order(Ladder, Ito()).slopes[-1]
    yield control.at_least("ladder ↛ Itô, nonlinear gradients: slope", ladder.min(), -0.1)
    reused = measure_weak_order(
        ELLS,
        lambda ell: reused_batch_moments(EXAMPLES, ell, EFFECTIVE_STEPS, 2)[:, 2:],
        lambda ell: EXAMPLES.limit_moments(Ito(), EFFECTIVE_STEPS, 2, ell)[:, 2:],
    )
    yield control.at_least("reusing the previous batch ↛ Itô: slope of x²", reused.slopes[-1].min(), -0.1)


def _regression(claim: Claim) -> Iterator[Check]:
    """Linear regression in three dimensions: moments, loss, and the learning rate at which it becomes unstable."""
    bed = regression()
    order = measure_weak_order(
        ELLS,
        lambda ell: _with_loss(bed, bed.moments(EFFECTIVE_STEPS, ell)),
        lambda ell: _with_loss(bed, bed.sde_moments(EFFECTIVE_STEPS, ell)),
    )
    yield claim.near("SVAG → Itô: slope in l, regression, moments and loss", furthest(order.slopes[-1], -1), -1, SLOPE)
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
