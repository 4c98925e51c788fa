"""What non-Gaussian noise does: linear scaling without the Itô SDE (sec:counterexample, subsec:app_levy_sde)."""

from collections.abc import Iterator

import numpy as np

from svag.exact.laws import kolmogorov, poisson_law, repeated, wasserstein
from svag.exact.poisson import PoissonProblem
from svag.exact.processes import Ito, Ladder, Levy, NoisyGD, Svag
from svag.findings.verify.beds import SKEWED, SYMMETRIC
from svag.findings.verify.check import Check, claims
from svag.findings.verify.weak_orders import SLOPE, affine_order, circle_order, furthest


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
    stays = kolmogorov(problem.law(Ladder(64)), sde)
    yield control.at_least("SGD is away from the SDE, and stays there along the ladder (Kolmogorov)", stays, 0.05)
    yield control.at_least("where 2l − 1 is a square the distance is larger: l = 13 over l = 16, times 13/16",
                           13 * kolmogorov(problem.law(Svag(13)), sde) / (16 * distance[16]), 1.5)  # fmt: skip


def levy_sde(rng: np.random.Generator) -> Iterator[Check]:
    """subsec:app_levy_sde: along linear scaling SGD tends to the Lévy SDE, along SVAG to the Itô SDE (fig:diagram)."""
    claim, control = claims("subsec:app_levy_sde")
    for noise, bed in (("skewed noise", SKEWED), ("symmetric noise", SYMMETRIC)):
        slopes = affine_order(bed, Ladder, Levy()).slopes[-1]
        yield claim.near(f"ladder → Lévy: slope in l, degrees 1–4, {noise}", furthest(slopes, -1), -1, SLOPE)
        slopes = affine_order(bed, Svag, Levy()).slopes[-1]
        yield control.at_least(f"SVAG ↛ Lévy at degree 4, {noise}: slope", slopes[3], -0.1)
    slopes = circle_order(Ladder, Levy()).slopes[-1]
    yield claim.near("ladder → Lévy: slope in l, nonlinear gradients", furthest(slopes, -1), -1, SLOPE)
    slopes = affine_order(SKEWED, NoisyGD, Ito()).slopes[-1]
    yield claim.near("NGD → Itô: slope in l, degrees 1–4", furthest(slopes, -1), -1, SLOPE)
    slopes = affine_order(SKEWED, Ladder, Levy(printed=True)).slopes[-1]
    yield control.at_least("ladder ↛ Lévy with the printed sign, degree 3: slope", slopes[2], -0.1)
