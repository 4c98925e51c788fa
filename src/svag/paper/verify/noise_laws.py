"""What non-Gaussian noise does (sec:counterexample, subsec:app_levy_sde), and what the tail-index estimator reads.

The estimator is right on i.i.d. stable values and wrong on correlated Gaussians (thm:test, thm:test_on_gaussian).
"""

from collections.abc import Callable, Iterator
from itertools import combinations, product

import numpy as np
from scipy.stats import levy_stable

from svag.arrays import FloatArray
from svag.paper.exact.affine import AffineProblem
from svag.paper.exact.noise import Atoms, CompoundPoisson
from svag.paper.exact.poisson import DiscreteLaw, PoissonProblem, kolmogorov, poisson_law, repeated, wasserstein
from svag.paper.exact.processes import EulerMaruyama, Ito, Levy, SmallerBatches, Svag
from svag.paper.verify.beds import SKEWED, SYMMETRIC
from svag.paper.verify.check import Z_LIMIT, Check, claims, z_score
from svag.paper.verify.svag_limit import SLOPE, affine_order, circle_order, furthest
from svag.theory.tail_index import expected_inverse_tail_index, inverse_tail_index, inverse_tail_index_per_coordinate
from svag.theory.weights import IndependentSampling, noise_amplitude


def counterexample(rng: np.random.Generator) -> Iterator[Check]:
    """sec:counterexample: with Poisson gradients linear scaling is exact and the SDE is wrong, except along SVAG."""
    claim, control = claims("sec:counterexample")
    problem = PoissonProblem(lr=0.1, examples=9.0)
    sde = problem.sde_law()
    laws = {ell: problem.law(Svag(ell)) for ell in (1, 2, 16, 64)}
    errors = [abs(law.cumulant(j) / problem.cumulant(j, Svag(ell)) - 1) for ell, law in laws.items() for j in (1, 2, 3)]
    yield claim.at_most("cumulants 1–3 of the law of SVAG, against closed form (relative)", max(errors), 1e-8)
    distance = {ell: kolmogorov(law, sde) for ell, law in laws.items()}
    yield claim.near("SVAG → SDE: slope in l of the Kolmogorov distance, l = 16, 64",
                     np.log(distance[64] / distance[16]) / np.log(4), -1, 0.05)  # fmt: skip
    transport = {ell: wasserstein(law, sde) for ell, law in laws.items()}
    yield claim.near("SVAG → SDE: slope in l of the Wasserstein distance, l = 16, 64",
                     np.log(transport[64] / transport[16]) / np.log(4), -1, 0.05)  # fmt: skip
    counts = np.arange(31.0)
    by_batch = [repeated(poisson_law(batch), int(problem.examples / batch)).cdf(counts) for batch in (0.25, 1, 3, 9)]
    yield claim.at_most("linear scaling: law of SGD for B = ¼, 1, 3, 9 (cdf)", np.ptp(by_batch, axis=0).max(), 1e-12)
    along = [kolmogorov(_ladder_law(problem, ell), sde) for ell in (1, 16, 64)]
    yield control.at_least("SGD is away from the SDE, and stays there along the ladder (Kolmogorov)", min(along), 0.05)
    yield control.at_most(
        "ladder: the distance at l = 64 over that at l = 1, minus 1", abs(along[2] / along[0] - 1), 1e-9
    )
    # E x, E x², … of NGD step by step, against those of N(−ηT, η²T)
    m, v = -problem.lr * problem.examples, problem.lr**2 * problem.examples
    normal = np.array([m, m**2 + v, m**3 + 3 * m * v, m**4 + 6 * m**2 * v + 3 * v**2])
    ngd = [
        _poisson_bed(problem, batch).moments(EulerMaruyama(1), int(problem.examples) // batch, 4)[-1]
        for batch in (1, 3, 9)
    ]
    apart = max(np.abs(moments[1:] / normal - 1).max() for moments in ngd)
    yield claim.at_most("NGD at B = 1, 3, 9 has the law of the SDE: moments 1–4 (relative)", apart, 1e-12)
    law = np.array([sde.mean, sde.mean**2 + sde.sd**2])
    yield claim.at_most(
        "and these are those of the law in closed form (relative)", np.abs(law / normal[:2] - 1).max(), 1e-12
    )
    yield control.at_least("where 2l − 1 is a square the distance is larger: l = 13 over l = 16, times 13/16",
                           13 * kolmogorov(problem.law(Svag(13)), sde) / (16 * distance[16]), 1.5)  # fmt: skip


def _ladder_law(problem: PoissonProblem, ell: int) -> DiscreteLaw:
    """The law after l × T steps of batches of 1/l, convolved step by step."""
    count = repeated(poisson_law(1 / ell), int(problem.examples) * ell)
    kept = count.probabilities > 1e-18
    return DiscreteLaw(-problem.lr * count.points[kept][::-1], count.probabilities[kept][::-1])


def _poisson_bed(problem: PoissonProblem, batch: int) -> AffineProblem:
    """The same gradients for the matrices on moments: one atom of size 1, at the rate Bη."""
    return AffineProblem(CompoundPoisson(Atoms((0.0,), (-1.0,), (1.0,))), problem.lr * batch, batch)


def gaussian_noise(rng: np.random.Generator) -> Iterator[Check]:
    """eq:noisy_gd: Gaussian weights on the examples have the covariance of a batch, by enumerating the batches."""
    claim, control = claims("eq:noisy_gd")
    g = np.array([0.3, -1.0, 2.5, 0.8])
    squares = np.square(g - g.mean()).sum()
    kinds: tuple[tuple[IndependentSampling, Callable[..., Iterator[tuple[float, ...]]]], ...] = (
        ("without_replacement", lambda size: combinations(g.tolist(), size)),
        ("with_replacement", lambda size: product(g.tolist(), repeat=size)),
    )
    worst, plain = 0.0, []
    for sampling, batches in kinds:
        for size, refine in product((1, 2, 3), (1, 5)):
            variance = np.var([np.mean(batch) for batch in batches(size)])
            # Var Σ α(z_i − z̄)g_i = α²Σ(g_i − ḡ)²
            amplified = noise_amplitude(size, g.size, sampling=sampling, refine=refine) ** 2 * squares
            worst = max(worst, abs(amplified / (refine * variance) - 1))
            plain.append(abs(squares / (g.size * size) / variance - 1))
    yield claim.at_most("variance of the weighted pass against all batches, B = 1, 2, 3 of 4 (relative)", worst, 1e-12)
    yield control.at_least("without the factor for batches without replacement (relative)", max(plain), 0.4)


def levy_sde(rng: np.random.Generator) -> Iterator[Check]:
    """subsec:app_levy_sde: along linear scaling SGD tends to the Lévy SDE, along SVAG to the Itô SDE (fig:diagram)."""
    claim, control = claims("subsec:app_levy_sde")
    for noise, bed in (("skewed noise", SKEWED), ("symmetric noise", SYMMETRIC)):
        slopes = affine_order(bed, SmallerBatches, Levy()).slopes[-1]
        yield claim.near(f"ladder → Lévy: slope in l, degrees 1–4, {noise}", furthest(slopes, -1), -1, SLOPE)
        slopes = affine_order(bed, Svag, Levy()).slopes[-1]
        yield control.at_least(f"SVAG ↛ Lévy at degree 4, {noise}: slope", slopes[3], -0.1)
    slopes = circle_order(SmallerBatches, Levy()).slopes[-1]
    yield claim.near("ladder → Lévy: slope in l, nonlinear gradients", furthest(slopes, -1), -1, SLOPE)
    slopes = affine_order(SKEWED, EulerMaruyama, Ito()).slopes[-1]
    yield claim.near("NGD → Itô: slope in l, degrees 1–4", furthest(slopes, -1), -1, SLOPE)
    slopes = affine_order(SKEWED, SmallerBatches, Levy(printed=True)).slopes[-1]
    yield control.at_least("ladder ↛ Lévy with the printed sign, degree 3: slope", slopes[2], -0.1)


BLOCK = 10
REPEATS = 400  # enough that a z-score is normal far out


def stable_values(rng: np.random.Generator) -> Iterator[Check]:
    """thm:test: the estimator converges to 1/α on i.i.d. symmetric α-stable values."""
    claim, control = claims("thm:test")
    for alpha in (1.0, 1.5, 2.0):
        estimates = np.array([inverse_tail_index(_stable(rng, alpha, 1000), BLOCK) for _ in range(REPEATS)])
        yield claim.at_most(
            f"1/α for α = {alpha:g}, 400 × 1,000 values (|z|)", abs(z_score(estimates - 1 / alpha)), Z_LIMIT
        )
    centred = _stable(rng, 2.0, 1000 * REPEATS).reshape(REPEATS, 1000)
    lagged = centred[:, 1:] + centred[:, :-1]  # neighbours share a value: no longer independent
    estimates = np.array([inverse_tail_index(row[:990], BLOCK) for row in lagged])
    yield control.at_least(
        "values that depend on their neighbours: 1/α is not ½ (|z|)", abs(z_score(estimates - 0.5)), 10 * Z_LIMIT
    )


def gaussian_values(rng: np.random.Generator) -> Iterator[Check]:
    """thm:test_on_gaussian: what the estimator reads on N(0, Σ), and that one coordinate at a time reads ½."""
    claim, control = claims("thm:test_on_gaussian")
    dimension = 20
    ends = [expected_inverse_tail_index(_equicorrelated(dimension, beta)) for beta in (0.0, 1.0)]
    yield claim.near("equal correlations, β = 0: expected 1/α", ends[0], 0.5, 1e-12)
    yield claim.near("equal correlations, β = 1: expected 1/α", ends[1], 1.0, 1e-12)
    covariance = _equicorrelated(dimension, 0.3)
    draws = rng.multivariate_normal(np.zeros(dimension), covariance, size=(REPEATS, 200))
    naive = np.array([inverse_tail_index(draw.ravel(), dimension) for draw in draws])
    expected = expected_inverse_tail_index(covariance)
    yield claim.at_most(
        "end-to-end reading on N(0, Σ) against its expectation (|z|)", abs(z_score(naive - expected)), Z_LIMIT
    )
    yield control.at_least("and it is far from ½, though α = 2 (|z|)", abs(z_score(naive - 0.5)), 10 * Z_LIMIT)
    scales = np.geomspace(0.2, 3.0, dimension)
    unequal = covariance * np.outer(scales, scales)
    for repeats in (1, 3):
        stretched = draws[:, :198] * scales  # a multiple of 3 draws; N(0, SΣS)
        read = np.array([inverse_tail_index(draw.ravel(), repeats * dimension) for draw in stretched])
        gap = abs(z_score(read - expected_inverse_tail_index(unequal, repeats)))
        yield claim.at_most(
            f"unequal variances, blocks of m = {repeats} draws: against its expectation (|z|)", gap, Z_LIMIT
        )
        alike = abs(z_score(read - expected_inverse_tail_index(covariance, repeats)))
        yield control.at_least(f"and against that of equal variances, m = {repeats} (|z|)", alike, 5 * Z_LIMIT)
    single = np.array([inverse_tail_index_per_coordinate(draw, dimension).mean() for draw in draws])
    yield claim.at_most("coordinate by coordinate it reads ½ (|z|)", abs(z_score(single - 0.5)), Z_LIMIT)


def _stable(rng: np.random.Generator, alpha: float, size: int) -> FloatArray:
    return np.asarray(levy_stable.rvs(alpha, 0.0, size=size, random_state=rng), dtype=np.float64)


def _equicorrelated(dimension: int, beta: float) -> FloatArray:
    return beta * np.ones((dimension, dimension)) + (1 - beta) * np.eye(dimension)
