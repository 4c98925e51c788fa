"""The steps of the proof: one-step moments and what they add up to (lem:D, lem:Dtil and the lemmas behind them)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import comb

from svag.arrays import FloatArray
from svag.paper.exact.processes import Copies, ExactProcess, Ito, SmallerBatches, Svag, WeakOrder
from svag.paper.verify.beds import EFFECTIVE_STEPS, SKEWED, AdditiveNoise, ProportionalNoise, moments_of
from svag.paper.verify.check import Check, Claim, claims, raw_moments, relative_error
from svag.paper.verify.svag_limit import ELLS, ONE_STEP_ELLS, SLOPE, affine_order, furthest, one_step_order
from svag.theory.weights import copy_weights, outer, sde_step_moments, svag_step_moments, svag_weights, symmetrise


def svag_increment(rng: np.random.Generator) -> Iterator[Check]:
    """lem:D: the moments of one SVAG step, by enumerating every pair of batches."""
    claim, control = claims("lem:D")
    # enumeration is exact for any gradients: these are part of the problem, not of the draw
    gradients, lr = np.random.default_rng(2021).standard_normal((5, 3)) ** 3 + 1, 0.7
    mean = gradients.mean(axis=0)
    _, covariance, skewness = raw_moments(gradients - mean)
    worst, slips = np.zeros(3), np.full(2, np.inf)
    for ell, split in ((1, 1), (2, 1), (3, 1), (8, 1), (4, 2)):
        a, b = svag_weights(ell, split)
        moves = np.array([-lr / ell * (a * one + b * two) for one, two in product(gradients, repeat=2)])
        enumerated = raw_moments(moves)
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
    yield from _more_copies(claim, control)


def _more_copies(claim: Claim, control: Claim) -> Iterator[Check]:
    """The remark after lem:D: three or more batches a step reach the same SDE, if their weights satisfy (iii) too."""
    for copies in (3, 5):
        slope = furthest(affine_order(SKEWED, _evenly(copies), Ito()).slopes[-1], -1)
        yield claim.near(f"{copies} batches a step → Itô: slope in l, degrees 1–4", slope, -1, SLOPE)
    # the mean and the covariance of SVAG, but w₂ = w₃: Σw³ grows like l^(3/2)
    slopes = affine_order(SKEWED, lambda ell: Copies(ell, _lopsided(ell)), Ito()).slopes[-1]
    yield control.near("3 batches, two of equal weight: x and x² pass, slope", furthest(slopes[:2], -1), -1, SLOPE)
    yield control.at_least("but ↛ Itô at order 1: slope of x⁴", slopes[3], -0.8)
    third = WeakOrder(ONE_STEP_ELLS, np.abs(_increment_moments(lambda ell: Copies(ell, _lopsided(ell)), 3)[:, 3:]))
    yield control.at_least("since (iii) fails: slope in l of E Δ³", third.slopes[-1, 0], -1.7)


def _evenly(copies: int) -> Callable[[int], Copies]:
    return lambda ell: Copies(ell, copy_weights(ell, copies))


def _lopsided(ell: int) -> tuple[float, float, float]:
    """Weights with Σw = 1, Σw² = l and w₂ = w₃."""
    root = math.sqrt((3 * ell - 1) / 2)
    return (1 + 2 * root) / 3, (1 - root) / 3, (1 - root) / 3


def sde_increment(rng: np.random.Generator) -> Iterator[Check]:
    """lem:Dtil: the moments of the SDE over a time η/l, in closed form, are the leading terms up to 1/l²."""
    claim, control = claims("lem:Dtil")
    for noise, bed, gradient, covariance in _sdes():
        exact = np.array([[bed.increment_moment(p, bed.lr / ell) for p in (1, 2, 3)] for ell in ONE_STEP_ELLS])
        leading = []
        for ell in ONE_STEP_ELLS:
            stated = sde_step_moments(np.array([gradient]), np.array([[covariance]]), lr=bed.lr, ell=ell)
            leading.append([moment.item() for moment in (stated.first, stated.second, stated.third)])
        slopes = WeakOrder(ONE_STEP_ELLS, np.abs(exact - np.array(leading))).slopes[-1]
        for order, slope in zip(("i", "ii", "iii"), slopes, strict=True):
            yield claim.near(f"({order}) what is left beside the leading term, {noise}: slope in l", slope, -2, SLOPE)
        halved = WeakOrder(ONE_STEP_ELLS, np.abs(exact[:, 1:2] - np.array(leading)[:, 1:2] / 2)).slopes[-1, 0]
        yield control.near(f"(ii) with half the covariance, {noise}: slope in l", halved, -1, SLOPE)
    additive = AdditiveNoise()
    eighth = np.array([[additive.increment_moment(8, additive.lr / ell)] for ell in ONE_STEP_ELLS])
    slope = WeakOrder(ONE_STEP_ELLS, np.sqrt(eighth)).slopes[-1, 0]
    yield claim.near("(iv) √E|Δ̃⊗⁴|²: slope in l", slope, -2, SLOPE)


def increment_products(rng: np.random.Generator) -> Iterator[Check]:
    """app:lem:delta_prod_estimate: E|Δ̃|^α falls like l^(−α/2), not faster: the noise decides."""
    claim, control = claims("app:lem:delta_prod_estimate")
    bed = AdditiveNoise()
    times = [bed.lr / ell for ell in ONE_STEP_ELLS]
    lengths = {1: [bed.mean_length(t) for t in times]}
    lengths |= {order: [bed.increment_moment(order, t) for t in times] for order in (2, 4, 8)}
    for order, values in lengths.items():
        slope = WeakOrder(ONE_STEP_ELLS, np.array(values)[:, None]).slopes[-1, 0]
        yield claim.near(f"E|Δ̃|^{order}: slope in l", slope, -order / 2, SLOPE)
    still = np.array([[abs(bed.increment(t)[0])] for t in times])
    yield control.near(
        "without noise |Δ̃| falls like 1/l: slope", WeakOrder(ONE_STEP_ELLS, still).slopes[-1, 0], -1, SLOPE
    )


def smooth_functions(rng: np.random.Generator) -> Iterator[Check]:
    """lem:u_eta_estimate: one step of SVAG and the SDE differ by K/l² for every smooth function, here the cosine."""
    claim, control = claims("lem:u_eta_estimate")
    bed = AdditiveNoise()
    batches = ((bed.low, bed.p), (bed.high, 1 - bed.p))
    means = [bed.mean_cosine(bed.lr / ell) for ell in ONE_STEP_ELLS]
    svag = [_mean_cosine(bed, ell, svag_weights(ell), batches, batches) for ell in ONE_STEP_ELLS]
    slope = WeakOrder(ONE_STEP_ELLS, np.abs(np.subtract(svag, means))[:, None]).slopes[-1, 0]
    yield claim.near("E cos x after one step of SVAG, against the SDE: slope in l", slope, -2, 0.02)
    # a mistake: ∇L + √l(g − ∇L) from one batch g, the second weight belonging to the mean gradient
    roots = [(math.sqrt(ell), 1 - math.sqrt(ell)) for ell in ONE_STEP_ELLS]
    mean = ((bed.mean, 1.0),)
    cosines = [_mean_cosine(bed, ell, root, batches, mean) for ell, root in zip(ONE_STEP_ELLS, roots, strict=True)]
    slope = WeakOrder(ONE_STEP_ELLS, np.abs(np.subtract(cosines, means))[:, None]).slopes[-1, 0]
    yield control.at_least("one batch amplified by √l, with the same mean and covariance: slope in l", slope, -1.8)


_Draws = Sequence[tuple[float, float]]


def _mean_cosine(bed: AdditiveNoise, ell: int, weights: tuple[float, float], first: _Draws, second: _Draws) -> float:
    """E cos of the weights after one step, over all pairs of draws (value of b, probability)."""
    (a, b), x, h = weights, bed.start, bed.lr / ell
    return sum(p * q * math.cos(x - h * (a * (x - g) + b * (x - f))) for (g, p), (f, q) in product(first, second))


def _sdes() -> Iterator[tuple[str, AdditiveNoise | ProportionalNoise, float, float]]:
    """The two SDEs with laws in closed form, with ∇L and Σ at their start, from their definitions."""
    additive, proportional = AdditiveNoise(), ProportionalNoise()
    yield "additive noise", additive, additive.start - additive.mean, additive.variance
    x = proportional.start
    yield "proportional noise", proportional, proportional.slope * x, (proportional.scatter * x) ** 2


def one_step_to_multi_steps(rng: np.random.Generator) -> Iterator[Check]:
    """thm:one_step_to_multi_steps: errors of 1/l² a step add up to C/l, not to the printed C/l²."""
    claim, control = claims("thm:one_step_to_multi_steps")
    single, many = one_step_order(SKEWED, Svag), affine_order(SKEWED, Svag, Ito())
    yield claim.near("error of one step: slope in l, E Δ, E Δ², E Δ³", furthest(single.slopes[-1], -2), -2, SLOPE)
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
    worst = max(
        np.abs(bed.bed.limit_moments(Ito(), 1, 4)[1, 1:] / moments_of(bed, 4, bed.lr) - 1).max()
        for _, bed, _, _ in _sdes()
    )
    yield claim.at_most("the generator of the beds, against two laws in closed form (relative)", worst, 1e-12)
    for noise, bed, gradient, covariance in _sdes():
        drift, diffusion = -gradient, bed.lr * covariance
        slopes = {}
        for half in (0.5, 1.0):
            rest = [[_taylor_rest(bed, p, bed.lr / ell, drift, half * diffusion) for p in (2, 3, 4)] for ell in ELLS]
            slopes[half] = WeakOrder(ELLS, np.abs(rest)).slopes[-1]
        powers = f"ψ = x², x³, x⁴, {noise}"
        yield claim.near(f"with ½: slope in 1/t of the rest, {powers}", furthest(slopes[0.5], -2), -2, 0.05)
        yield control.near(f"without ½, as printed: slope in 1/t, {powers}", furthest(slopes[1.0], -1), -1, 0.05)
    bed = AdditiveNoise()
    x, drift, diffusion = bed.start, bed.mean - bed.start, bed.lr * bed.variance
    first_order = -drift * math.sin(x) - diffusion / 2 * math.cos(x)
    gaps = [abs(bed.mean_cosine(bed.lr / ell) - math.cos(x) - bed.lr / ell * first_order) for ell in ELLS]
    yield claim.near("ψ = cos x: slope in 1/t", WeakOrder(ELLS, np.array(gaps)[:, None]).slopes[-1, 0], -2, 0.05)


def _taylor_rest(
    bed: AdditiveNoise | ProportionalNoise, power: int, time: float, drift: float, half_diffusion: float
) -> float:
    """E X_t^p − x^p − t(b p x^(p−1) + ½σ² p(p−1)x^(p−2))."""
    x, p = bed.start, power
    stated = drift * p * x ** (p - 1) + half_diffusion * p * (p - 1) * x ** (p - 2)
    return float(moments_of(bed, p, time)[-1]) - x**p - time * stated


def moment_estimate(rng: np.random.Generator) -> Iterator[Check]:
    """lem:sgd_moment_estimate: a_k = E(1 + x_k²)^m obeys a_{k+1} ≤ (1 + C/l)a_k, C not growing in l."""
    claim, control = claims("lem:sgd_moment_estimate")
    ells = (1, 4, *ELLS)
    for m in (1, 4):
        rates = {ell: _growth_rate(Svag(ell), m) for ell in ells}
        yield claim.near(f"C of l = 256 over that of l = 64, m = {m}", rates[256] / rates[64], 1, 0.1)
        worst = 0.0
        for ell, rate in rates.items():
            moments = SKEWED.moments(Svag(ell), EFFECTIVE_STEPS, 2 * m)
            sizes = moments[:, ::2] @ comb(m, np.arange(m + 1))
            bound = sizes[0] * (1 + rate / ell) ** np.arange(sizes.size)
            worst = max(worst, float((sizes / bound).max()))
        yield claim.at_most(f"largest a_k over (1 + C/l)^k a_0, all l and k, m = {m}", worst, 1 + 1e-12)
        wrong = [_growth_rate(OverAmplified(ell), m) for ell in (16, 64)]
        yield control.at_least(
            f"noise amplified by l²: C grows from l = 16 to 64 by, m = {m}", wrong[1] / wrong[0], 3.5
        )


def _growth_rate(process: ExactProcess, m: int) -> float:
    """C = l·sup_x [E(1 + x′²)^m/(1 + x²)^m − 1], the sup over a grid and at infinity."""
    step = SKEWED.step_matrix(process, 2 * m)
    x = np.sinh(np.linspace(-12, 12, 4001))
    powers = x[:, None] ** np.arange(2 * m + 1)
    after = sum(comb(m, j) * (powers @ step[2 * j]) for j in range(m + 1))
    at_infinity = step[2 * m, 2 * m]
    return float(process.ell * (max((after / (1 + x**2) ** m).max(), at_infinity) - 1))


@dataclass(frozen=True)
class OverAmplified:
    """A mistake: Gaussian noise of l² times the covariance."""

    ell: int

    def cumulant_factor(self, j: int) -> float:
        """Mean kept, covariance l² instead of l."""
        return {1: 1.0, 2: float(self.ell**2)}.get(j, 0.0)


def _increment_moments(process: Callable[[int], ExactProcess], degree: int) -> FloatArray:
    """E Δ^p of one step for each l, p = 0 … degree."""
    origin = SKEWED.recentred()
    return np.array([origin.step_matrix(process(ell), degree)[:, 0] for ell in ONE_STEP_ELLS])


def _printed_third(grad: FloatArray, covariance: FloatArray, skewness: FloatArray, lr: float, ell: float) -> FloatArray:
    """lem:D (iii) as the paper displays it: without the sign, and without the factor l on ∇L ⊗ Σ."""
    rest = 3 * symmetrise(outer(grad, covariance)) + outer(grad, outer(grad, grad))
    return lr**3 / ell**2 * (3 - 1 / ell) / 2 * skewness + (lr / ell) ** 3 * rest
