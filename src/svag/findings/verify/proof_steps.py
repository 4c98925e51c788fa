"""The steps of the proof: one-step moments and what they add up to (lem:D, lem:Dtil and the lemmas behind them)."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from svag.arrays import FloatArray
from svag.exact.processes import Ito, SmallerBatches, Svag
from svag.exact.weak_order import WeakOrder
from svag.findings.verify.beds import EFFECTIVE_STEPS, SKEWED
from svag.findings.verify.check import Check, claims, relative_error
from svag.findings.verify.svag_limit import ELLS, ONE_STEP_ELLS, SLOPE, affine_order, furthest, one_step_order
from svag.theory.weights import outer, sde_step_moments, svag_step_moments, svag_weights, symmetrise


def svag_increment(rng: np.random.Generator) -> Iterator[Check]:
    """lem:D: the moments of one SVAG step, by enumerating every pair of batches."""
    claim, control = claims("lem:D")
    # enumeration is exact for any gradients: these are part of the problem, not of the draw
    gradients, lr = np.random.default_rng(2021).standard_normal((5, 3)) ** 3 + 1, 0.7
    mean = gradients.mean(axis=0)
    centred = gradients - mean
    covariance = np.einsum("ni,nj->ij", centred, centred) / len(gradients)
    skewness = np.einsum("ni,nj,nk->ijk", centred, centred, centred) / len(gradients)
    worst, slips = np.zeros(3), np.full(2, np.inf)
    for ell, split in ((1, 1), (2, 1), (3, 1), (8, 1), (4, 2)):
        a, b = svag_weights(ell, split)
        moves = np.array([-lr / ell * (a * one + b * two) for one, two in product(gradients, repeat=2)])
        enumerated = (
            moves.mean(axis=0),
            np.einsum("ni,nj->ij", moves, moves) / len(moves),
            np.einsum("ni,nj,nk->ijk", moves, moves, moves) / len(moves),
        )
        # parts of one example each: the batch of the run has `split` of them
        batch = mean, covariance / split, skewness / split**2
        formula = svag_step_moments(*batch, lr=lr, ell=ell, split=split)
        stated = (formula.first, formula.second, formula.third)
        worst = np.maximum(worst, [relative_error(s, e) for s, e in zip(stated, enumerated, strict=True)])
        if ell > 1 and split == 1:
            printed = _printed_third(*batch, lr, ell)
            mended = -_printed_third(mean, ell * covariance, skewness, lr, ell)
            slips = np.minimum(slips, [relative_error(-printed, enumerated[2]), relative_error(-mended, enumerated[2])])
    for order, error in zip(("i", "ii", "iii"), worst, strict=True):
        yield claim.at_most(f"moment ({order}) of a step, against enumeration (relative)", error, 1e-12)
    eighth = WeakOrder(ONE_STEP_ELLS, np.sqrt(_increment_moments(Svag, 8)[:, 8:]))
    yield claim.near("(iv) √E|Δ⊗⁴|²: slope in l", eighth.slopes[-1, 0], -2, SLOPE)
    yield control.at_least("(iii) without the factor l on ∇L ⊗ Σ, as printed (relative)", slips[0], 0.1)
    yield control.at_least("(iii) without its sign, as printed (relative)", slips[1], 0.1)
    third = WeakOrder(ONE_STEP_ELLS, np.abs(_increment_moments(SmallerBatches, 3)[:, 3:]))
    yield control.near("(iii) fails for the ladder: slope in l of E Δ³", third.slopes[-1, 0], -1, SLOPE)


def sde_increment(rng: np.random.Generator) -> Iterator[Check]:
    """lem:Dtil: the moments of the SDE over a time η/l, by its generator, are the leading terms up to 1/l²."""
    claim, control = claims("lem:Dtil")
    origin = SKEWED.recentred()
    _, kappa_1, kappa_2 = (cumulant(0.0) for cumulant in origin.cumulants(2))
    exact = np.array([origin.limit_moments(Ito(), 1, 8, ell)[1] for ell in ONE_STEP_ELLS])
    leading = []
    for ell in ONE_STEP_ELLS:
        stated = sde_step_moments(np.array([kappa_1]), np.array([[kappa_2]]), lr=origin.lr, ell=ell)
        leading.append([moment.item() for moment in (stated.first, stated.second, stated.third)])
    slopes = WeakOrder(ONE_STEP_ELLS, np.abs(exact[:, 1:4] - np.array(leading))).slopes[-1]
    for order, slope in zip(("i", "ii", "iii"), slopes, strict=True):
        yield claim.near(f"({order}) what is left beside the leading term: slope in l", slope, -2, SLOPE)
    slope = WeakOrder(ONE_STEP_ELLS, np.sqrt(exact[:, 8:])).slopes[-1, 0]
    yield claim.near("(iv) √E|Δ̃⊗⁴|²: slope in l", slope, -2, SLOPE)
    halved = WeakOrder(ONE_STEP_ELLS, np.abs(exact[:, 2:3] - np.array(leading)[:, 1:2] / 2)).slopes[-1, 0]
    yield control.near("(ii) with half the covariance: slope in l", halved, -1, SLOPE)


def one_step_to_multi_steps(rng: np.random.Generator) -> Iterator[Check]:
    """thm:one_step_to_multi_steps: errors of 1/l² a step add up to C/l, not to the printed C/l²."""
    claim, control = claims("thm:one_step_to_multi_steps")
    one, many = one_step_order(SKEWED, Svag), affine_order(SKEWED, Svag, Ito())
    yield claim.near("error of one step: slope in l, E Δ, E Δ², E Δ³", furthest(one.slopes[-1], -2), -2, SLOPE)
    yield claim.near("error after lT/η steps: slope in l, degrees 1–4", furthest(many.slopes[-1], -1), -1, SLOPE)
    scaled = many.errors * np.square(ELLS)[:, None]
    yield control.at_least(
        "C/l² as printed: l² × error grows from l=64 to 256 by", (scaled[-1] / scaled[-2]).min(), 3.9
    )
    ladder = one_step_order(SKEWED, SmallerBatches).slopes[-1]
    yield control.near("one step of the ladder, E Δ³: slope in l", ladder[2], -1, SLOPE)


def ito_taylor(rng: np.random.Generator) -> Iterator[Check]:
    """app:lem:ito_taylor: E ψ(X_t) = ψ + t(bψ′ + ½σ²ψ″) + O(t²); the printed display lacks the ½."""
    claim, control = claims("app:lem:ito_taylor")
    start, degree = SKEWED.start, 4
    _, kappa_1, kappa_2 = (cumulant(start) for cumulant in SKEWED.cumulants(2))
    drift, diffusion = -kappa_1, SKEWED.lr * kappa_2
    p = np.arange(2, degree + 1)
    first, second = p * start ** (p - 1), p * (p - 1) * start ** (p - 2)
    slopes = {}
    for half in (0.5, 1.0):
        rest = [
            SKEWED.limit_moments(Ito(), 1, degree, ell)[1, 2:]
            - start**p
            - SKEWED.lr / ell * (drift * first + half * diffusion * second)
            for ell in ELLS
        ]
        slopes[half] = WeakOrder(ELLS, np.abs(rest)).slopes[-1]
    yield claim.near("with ½: slope in 1/t of the rest, ψ = x², x³, x⁴", furthest(slopes[0.5], -2), -2, 0.05)
    yield control.near("without ½, as printed: slope in 1/t", furthest(slopes[1.0], -1), -1, 0.05)


def moment_estimate(rng: np.random.Generator) -> Iterator[Check]:
    """lem:sgd_moment_estimate: moments are bounded uniformly in l and k."""
    claim, control = claims("lem:sgd_moment_estimate")
    bed, degree = replace(SKEWED, start=0.0), 8
    bound = bed.limit_moments(Ito(), EFFECTIVE_STEPS, degree, 64).max(axis=0)[2::2]
    peaks = [bed.moments(Svag(ell), EFFECTIVE_STEPS, degree).max(axis=0)[2::2] for ell in (1, 4, *ELLS)]
    yield claim.at_most("largest E x^2m over all l, k, over the SDE's (m ≤ 4)", (np.array(peaks) / bound).max(), 4.0)
    wrong = [bed.moments(OverAmplified(ell), EFFECTIVE_STEPS, 2)[:, 2].max() for ell in (4, 16)]
    yield control.at_least("noise amplified by l², not l: E x² grows from l=4 to 16 by", wrong[1] / wrong[0], 4.0)


@dataclass(frozen=True)
class OverAmplified:
    """A mistake: Gaussian noise of l² times the covariance."""

    ell: int

    def cumulant_factor(self, j: int) -> float:
        """Mean kept, covariance l² instead of l."""
        return {1: 1.0, 2: float(self.ell**2)}.get(j, 0.0)


def _increment_moments(process: type[Svag | SmallerBatches], degree: int) -> FloatArray:
    """E Δ^p of one step for each l, p = 0 … degree."""
    origin = SKEWED.recentred()
    return np.array([origin.step_matrix(process(ell), degree)[:, 0] for ell in ONE_STEP_ELLS])


def _printed_third(grad: FloatArray, covariance: FloatArray, skewness: FloatArray, lr: float, ell: float) -> FloatArray:
    """lem:D (iii) as the paper displays it: without the sign, and without the factor l on ∇L ⊗ Σ."""
    rest = 3 * symmetrise(outer(grad, covariance)) + outer(grad, outer(grad, grad))
    return lr**3 / ell**2 * (3 - 1 / ell) / 2 * skewness + (lr / ell) ** 3 * rest
