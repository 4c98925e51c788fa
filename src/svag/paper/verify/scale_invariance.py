"""Scale-invariant losses: the identities behind the equilibrium, and the transient of E|x|² (lem:sc, cor:sc)."""

from collections.abc import Iterator

import numpy as np

from svag.arrays import FloatArray
from svag.paper.exact.processes import SGD
from svag.paper.exact.rayleigh import RayleighProblem, param_sq, simulate
from svag.paper.verify.beds import rayleigh, sphere
from svag.paper.verify.check import Z_LIMIT, Check, claims, relative_error, z_score
from svag.theory.equilibrium import (
    relaxed_param_sq,
    sde_param_sq_rate,
    second_order_sde_param_sq_rate,
    sgd_next_param_sq,
    sgd_norm_factors,
    steps_to_equilibrium,
)
from svag.theory.weights import svag_weights

LR, WEIGHT_DECAY = 0.1, 0.05


def orthogonality(rng: np.random.Generator) -> Iterator[Check]:
    """lem:sc: ⟨x, ∇L⟩ = 0 and c∇L(cx) = ∇L(x)."""
    claim, control = claims("lem:sc")
    problem, x = rayleigh(), 3 * sphere(rng, 100)
    gradient = problem.gradient(x)
    yield claim.at_most("⟨x, ∇L⟩ over |x||∇L|", np.abs(_cosine(x, gradient)).max(), 1e-13)
    yield claim.at_most(
        "c∇L(cx) − ∇L(x), c = 7 (relative)", relative_error(7 * problem.gradient(7 * x), gradient), 1e-12
    )
    yield claim.at_most(
        "∇L against a complex step of L (relative)", relative_error(_complex_step(problem, x), gradient), 1e-12
    )
    decayed = gradient + WEIGHT_DECAY * x
    yield control.at_least("with weight decay it is not orthogonal", np.abs(_cosine(x, decayed)).min(), 1e-3)


def noise_orthogonality(rng: np.random.Generator) -> Iterator[Check]:
    """cor:sc: xᵀΣx = 0, because every example's gradient is orthogonal to x."""
    claim, _ = claims("cor:sc")
    problem, x = rayleigh(), 3 * sphere(rng, 100)
    gradients = _example_gradients(problem, x)
    centred = gradients - gradients.mean(axis=0)
    along = np.einsum("ncd,cd->nc", centred, x) ** 2
    total = (centred**2).sum(axis=2) * param_sq(x)
    yield claim.at_most("xᵀΣx over |x|² Tr Σ", (along.sum(axis=0) / total.sum(axis=0)).max(), 1e-24)
    trace = (centred**2).sum(axis=2).mean(axis=0)
    yield claim.at_most(
        "closed form of N against enumeration (relative)", relative_error(problem.noise_trace(x, 1), trace), 1e-12
    )


def hessian_identity(rng: np.random.Generator) -> Iterator[Check]:
    """lem:2nd_sde_hessian: xᵀ∇²L∇L = −|∇L|²."""
    claim, _ = claims("lem:2nd_sde_hessian")
    problem, x = rayleigh(), 3 * sphere(rng, 100)
    gradient = problem.gradient(x)
    product = problem.hessian_product(x, gradient)
    yield claim.at_most(
        "xᵀ∇²L∇L + |∇L|² (relative)", relative_error((x * product).sum(axis=1), -param_sq(gradient)), 1e-12
    )
    step = 1e-6
    difference = (problem.gradient(x + step * gradient) - problem.gradient(x - step * gradient)) / (2 * step)
    yield claim.at_most("∇²L∇L against central differences (relative)", relative_error(product, difference), 1e-7)


def sgd_norm(rng: np.random.Generator) -> Iterator[Check]:
    """eq:norm_sgd_wd: one step by enumeration, and the whole transient of E|x|² along 20,000 chains."""
    claim, control = claims("eq:norm_sgd_wd")
    problem, x = rayleigh(), 2 * sphere(rng, 100)
    after = x - LR * (_example_gradients(problem, x) + WEIGHT_DECAY * x)
    enumerated = (after**2).sum(axis=2).mean(axis=0)
    grad_sq, noise_trace = problem.grad_sq(x), problem.noise_trace(x, 1)
    stated = [
        sgd_next_param_sq(*values, lr=LR, weight_decay=WEIGHT_DECAY)
        for values in zip(param_sq(x), grad_sq, noise_trace, strict=True)
    ]
    yield claim.at_most(
        "E|x|² after one step, against enumeration (relative)", relative_error(np.array(stated), enumerated), 1e-12
    )

    paths = simulate(
        problem, SGD, lr=LR, weight_decay=WEIGHT_DECAY, batch_size=1, steps=40, start=sphere(rng, 20_000), rng=rng
    )
    shrink, of_g, of_n = sgd_norm_factors(lr=LR, weight_decay=WEIGHT_DECAY)
    growth = of_g * paths.grad_sq + of_n * paths.noise_trace
    expected = undecayed = paths.param_sq[0]
    for step in range(40):
        expected, undecayed = shrink * expected + growth[step], undecayed + growth[step]
        if step + 1 in (1, 5, 40):
            gap = abs(z_score(paths.param_sq[step + 1] - expected))
            yield claim.at_most(f"transient of E|x|², 20,000 chains, step {step + 1} (|z|)", gap, Z_LIMIT)
    gap = abs(z_score(paths.param_sq[40] - undecayed))
    yield control.at_least("the same without the factor (1 − ηλ)² (|z|)", gap, 10 * Z_LIMIT)


def relaxation(rng: np.random.Generator) -> Iterator[Check]:
    """eq:norm_sgd_wd: the distance to equilibrium falls by e in 1/(4ηλ) steps, where G + N = const/|x|²."""
    claim, control = claims("eq:norm_sgd_wd")
    lr, decay, constant = 0.1, 0.01, 3.0
    fixed = np.sqrt(lr**2 * constant / (1 - (1 - lr * decay) ** 2))
    r = 1.001 * fixed
    for _ in range(round(steps_to_equilibrium(lr, decay))):
        r = sgd_next_param_sq(r, constant / r, 0.0, lr=lr, weight_decay=decay)
    yield claim.near("what is left of a distance after 1/(4ηλ) steps, times e", (r / fixed - 1) / 0.001 * np.e, 1, 0.02)
    # from far away it is R² that relaxes: the gap to the recursion, at 3.5 e-folds from R₀ = 5R*, is of order ηλ
    gaps, plain = [], 0.0
    for decay in (0.01, 0.001):
        fixed = np.sqrt(lr**2 * constant / (1 - (1 - lr * decay) ** 2))
        r, steps = 5 * fixed, round(steps_to_equilibrium(lr, decay, e_folds=3.5))
        for _ in range(steps):
            r = sgd_next_param_sq(r, constant / r, 0.0, lr=lr, weight_decay=decay)
        passed = 4 * lr * decay * steps
        gaps.append(abs(relaxed_param_sq(5 * fixed, fixed, passed) / r - 1))
        plain = abs((1 + 4 * np.exp(-passed)) * fixed / r - 1)
    yield claim.near("R after 3.5 e-folds from 5R*: slope in ηλ of its gap", np.log10(gaps[0] / gaps[1]), 1, 0.02)
    yield claim.near("growth over decay there, (R*/R)²", (fixed / r) ** 2, 1 / (1 + 24 * np.exp(-3.5)), 0.001)
    yield control.at_least("the same if R relaxed as R² does (relative gap)", plain, 0.1)


def sde_norm(rng: np.random.Generator) -> Iterator[Check]:
    """eq:norm_sde_wd: d/dt E|X|² is the limit of what small steps do to |x|², with Tr Σ̄ = Tr(ηΣ), not Tr Σ."""
    claim, control = claims("eq:norm_sde_wd")
    problem, x = rayleigh(), 2 * sphere(rng, 100)
    r, gradient, noise = param_sq(x), problem.gradient(x), LR * problem.noise_trace(x, 1)
    stated = np.array([sde_param_sq_rate(*v, weight_decay=WEIGHT_DECAY) for v in zip(r, noise, strict=True)])
    printed = -2 * WEIGHT_DECAY * r + problem.noise_trace(x, 1)
    pace = {ell: _svag_pace(problem, x, ell) for ell in (64, 256)}
    slope = np.log(relative_error(pace[256], stated) / relative_error(pace[64], stated)) / np.log(4)
    yield claim.near("Itô SDE: rate against SVAG's steps, enumerated: slope in l of the gap", slope, -1, 0.02)
    yield claim.at_most("and the gap at l = 256 (relative)", relative_error(pace[256], stated), 0.02)
    yield control.at_least("as printed, with Tr Σ, at l = 256 (relative)", relative_error(printed, pace[256]), 0.1)
    # drift −∇(L′ + (η/4)|∇L′|²), its second part by central differences of |∇L′|²; Tr Σ by enumerating examples
    each = _example_gradients(problem, x)
    trace = ((each - each.mean(axis=0)) ** 2).sum(axis=2).mean(axis=0)
    step = 1e-5
    bend = (_decayed_sq(problem, (1 + step) * x) - _decayed_sq(problem, (1 - step) * x)) / (2 * step)  # ⟨x, ∇|∇L′|²⟩
    enumerated = -2 * (x * (each.mean(axis=0) + WEIGHT_DECAY * x)).sum(axis=1) - LR / 2 * bend + LR * trace
    second = [
        second_order_sde_param_sq_rate(*v, lr=LR, weight_decay=WEIGHT_DECAY)
        for v in zip(r, param_sq(gradient), noise, strict=True)
    ]
    gap = relative_error(np.array(second), enumerated)
    yield claim.at_most("2nd-order SDE: rate against differences and enumeration (relative)", gap, 1e-7)
    yield control.at_least("and against the Itô SDE's (relative)", relative_error(stated, enumerated), 1e-3)


def _svag_pace(problem: RayleighProblem, x: FloatArray, ell: int) -> FloatArray:
    """(E|x′|² − |x|²)/(η/l) of one step of SVAG, over all pairs of examples."""
    (a, b), h, each = svag_weights(ell), LR / ell, _example_gradients(problem, x)
    after = [param_sq(x - h * (a * one + b * two + WEIGHT_DECAY * x)) for one in each for two in each]
    return np.asarray((np.mean(after, axis=0) - param_sq(x)) / h, dtype=np.float64)


def _decayed_sq(problem: RayleighProblem, x: FloatArray) -> FloatArray:
    """|∇L′|² with L′ = L + (λ/2)|x|²."""
    return param_sq(problem.gradient(x) + WEIGHT_DECAY * x)


def _example_gradients(problem: RayleighProblem, x: FloatArray) -> FloatArray:
    """∇L_i(x) one example at a time: examples × chains × d."""
    return np.array([problem.weighted_gradient(x, weights[None]) for weights in np.eye(len(problem.examples))])


def _complex_step(problem: RayleighProblem, x: FloatArray) -> FloatArray:
    """∇L by the complex-step derivative of the definition ⟨a_i, x⟩²/|x|²."""
    columns = []
    for axis in np.eye(x.shape[1]):
        z = x + 1e-30j * axis
        loss = ((z @ problem.examples.T) ** 2 / (z**2).sum(axis=1, keepdims=True)).mean(axis=1)
        columns.append(loss.imag / 1e-30)
    return np.array(columns).T


def _cosine(x: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray((x * y).sum(axis=1) / np.sqrt(param_sq(x) * param_sq(y)), dtype=np.float64)
