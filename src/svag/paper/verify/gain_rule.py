"""ours:gain_rule: what any learning rate at κ times the batch does to R, G and N, and that only κ/D can keep them.

- The identity R′/R = μA and the bound max(μ, 1/μ) on the Rayleigh quotient at equilibrium, at the gain rule, the linear
  rule and κ/D²; the bound from both sides by linear programmes.
- With momentum, where X takes the place of G.
- With the pull T in the place of R on quadratics, by exact moments.
- Adam's form, the square-root rule at κ/D with betas kept: per baseline step it keeps the drift of every coordinate
  with D_i = D, eps included.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np

from svag.arrays import FloatArray
from svag.paper.exact.processes import SGD, WeakOrder
from svag.paper.exact.rayleigh import ChainProcess, Momentum, Paths
from svag.paper.exact.regression import RegressionProblem
from svag.paper.verify.adaptive import (
    CONTROL_SLOPE,
    COORDINATES,
    RATES,
    SLOPE,
    coordinate_distortion,
    field_of,
    order_in_rate,
    settled,
    signal_and_variance,
    statistics,
)
from svag.paper.verify.adaptive import KAPPAS as SMALL_KAPPAS
from svag.paper.verify.beds import STRONG, equilibrium_run, ornstein_uhlenbeck, regression
from svag.paper.verify.check import Z_LIMIT, Check, Claim, claims
from svag.paper.verify.svag_limit import furthest
from svag.paper.verify.thresholds import STEP, solvable, wrong_answers
from svag.theory.adaptive import RMSpropSettings
from svag.theory.distortion import distortion, spread
from svag.theory.equilibrium import momentum_signal, pull
from svag.theory.gain import Factors, balanced_gain, gain, least_spread, norm_ratio, rate_excess

LR, WEIGHT_DECAY = 0.1, 0.04
KAPPAS = (8, 32)
CHAINS = 300  # standard error of R′/R over μA: 1.7%, so that 10% is seen


def gain_rule(rng: np.random.Generator) -> Iterator[Check]:
    """ours:gain_rule: the theorem about rates on four beds, with the linear rule and κ/D² as controls."""
    claim, control = claims("ours:gain_rule")
    yield from _both_sides(claim, control)
    yield from _rayleigh(claim, control, rng)
    yield from _momentum(claim, control, rng)
    yield from _quadratics(claim, control)
    yield from _stability(claim, control)
    yield from _adaptive_steps(claim, control)
    yield from _adaptive_moving(claim, control)


# ── the bound from both sides ────────────────────────────────────────────────────────────────────────────────────────


def _both_sides(claim: Claim, control: Claim) -> Iterator[Check]:
    """Written in the ratios of R, G and κN the balances of both runs are one linear equation."""
    cases = [
        (rho, kappa, share * gain(rho, kappa), lr_wd)
        for rho, kappa, share, lr_wd in product((0.5, 8.0, 70.0), (0.25, 8.0, 256.0), (0.4, 1.5, 3.0), (0.0, 0.05))
        if share * gain(rho, kappa) * lr_wd < 2
    ]

    def wrong(factor: float) -> int:
        return sum(
            wrong_answers(factor * least_spread(*case), partial(_no_equilibrium, *case))
            for case in cases
            if factor * least_spread(*case) > 1 + STEP  # a spread is at least 1
        )

    either = f"wrong answers at (1 ± {STEP:g}) times it, of {2 * len(cases)}"
    yield claim.at_most(f"max(μ, 1/μ) is the least spread of R, G and κN: {either}", wrong(1.0), 0)
    yield control.at_least(f"10% more: {either}", wrong(1.1), 1)

    pairs = list(product((0.5, 8.0, 70.0), (0.25, 8.0, 256.0), (0.0, 0.05)))
    best = [(rho, kappa, balanced_gain(rho, kappa, lr_wd), lr_wd) for rho, kappa, lr_wd in pairs]
    lost = sum(_no_equilibrium(*case, 1 + STEP) for case in best)
    yield claim.at_most(f"at m* R, G and κN can stay within {STEP:g} (cases where not, of {len(best)})", lost, 0)
    kept = sum(
        not _no_equilibrium(rho, kappa, m * factor, lr_wd, 1 + STEP)
        for rho, kappa, m, lr_wd in best
        for factor in (1 - 3 * STEP, 1 + 3 * STEP)
    )
    yield claim.at_most(f"and at m*(1 ± {3 * STEP:g}) they cannot (cases where they can)", kept, 0)


def _no_equilibrium(rho: float, kappa: float, m: float, lr_wd: float, apart: float) -> bool:
    """No R′, G′ and N′ within a spread of `apart` fulfil (2 − mηλ)λR′ = mη(G′ + N′), given the baseline's balance."""
    growth = m * (2 - lr_wd)
    return not solvable((kappa * (1 + rho) * (2 - m * lr_wd), -growth * kappa, -growth * rho), apart)


# ── the Rayleigh quotient ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RatePair:
    """Two runs at equilibrium, (B, η) and (κB, mη): the ratios of their averages and what the theorem says of them.

    Attributes:
        ratios: of R, of G (X with momentum) and of κN, larger batch over smaller.
        predicted: R′/R by the theorem.
        bound: the least spread by the theorem.
        error: standard error of log(R′/R) − log(predicted), over independent chains.
    """

    ratios: tuple[float, float, float]
    predicted: float
    bound: float
    error: float

    @property
    def z(self) -> float:
        """|z| of the identity."""
        return abs(math.log(self.ratios[0] / self.predicted)) / self.error

    @property
    def apart(self) -> float:
        """The spread of the three ratios."""
        return spread(*self.ratios)

    @property
    def slack(self) -> float:
        """By how much sampling may lower spread over bound."""
        return math.exp(-Z_LIMIT * self.error)

    @property
    def outside(self) -> float:
        """How far R′/R lies outside the other two ratios, in standard errors."""
        r, *others = self.ratios
        return max(math.log(min(others) / r), math.log(r / max(others)), 0.0) / self.error


def _rayleigh(claim: Claim, control: Claim, rng: np.random.Generator) -> Iterator[Check]:
    base = _run(rng, SGD, 1, 1.0)
    rho = base.equilibrium().noise_to_signal
    for kappa in KAPPAS:
        d = distortion(rho, kappa)
        rates = {"m*": balanced_gain(rho, kappa, LR * WEIGHT_DECAY), "κ": kappa, "κ/D²": kappa / d**2}
        pairs = {name: _pair(base, _run(rng, SGD, kappa, m), rho, kappa, m) for name, m in rates.items()}
        said = f"κ = {kappa}, D = {d:.1f}"
        for name, pair in pairs.items():
            yield claim.at_most(f"R′/R = μA at m = {name}, {said}, {CHAINS} chains (|z|)", pair.z, Z_LIMIT)
        for name in ("κ", "κ/D²"):
            yield claim.at_least(
                f"R, G and κN at m = {name}, {said}: spread over max(μ, 1/μ)",
                pairs[name].apart / pairs[name].bound,
                pairs[name].slack,
            )
        kept = pairs["m*"]
        yield claim.at_most(f"R′/R at m*, {said}: outside G′/G and κN′/N (standard errors)", kept.outside, Z_LIMIT)
        for name, rule in (("κ", "the linear rule"), ("κ/D²", "too small a rate, κ/D²")):
            ratio = pairs[name].apart / kept.apart
            yield control.at_least(f"{rule}, {said}: spread over that at m*", ratio, 1.5)
        linear = pairs["κ"]
        without = replace(linear, predicted=linear.predicted / rate_excess(rho, kappa, kappa, LR * WEIGHT_DECAY))
        yield control.at_least(f"R′/R = A, without μ, at m = κ, {said} (|z|)", without.z, Z_LIMIT)


def _pair(base: Paths, large: Paths, rho: float, kappa: float, m: float) -> RatePair:
    lr_wd = LR * WEIGHT_DECAY
    r, g, n = (
        float(getattr(large, name).mean() / getattr(base, name).mean())
        for name in ("param_sq", "grad_sq", "noise_trace")
    )
    return RatePair(
        (r, g, kappa * n),
        norm_ratio(rho, kappa, m, grad_ratio=g, noise_ratio=kappa * n, lr_wd=lr_wd),
        least_spread(rho, kappa, m, lr_wd),
        # μA is (G′ + N′)/(G + N) up to constants
        math.hypot(*(_log_error(run.param_sq, run.grad_sq + run.noise_trace) for run in (base, large))),
    )


def _run(rng: np.random.Generator, process: ChainProcess, kappa: int, m: float) -> Paths:
    # at the same η/(1 − β), so that runs with momentum move as fast
    beta = process.beta if isinstance(process, Momentum) else 0.0
    lr = m * LR * (1 - beta)
    return equilibrium_run(rng, process, lr=lr, weight_decay=WEIGHT_DECAY, batch_size=kappa, chains=CHAINS)


def _log_error(one: FloatArray, other: FloatArray) -> float:
    """Standard error of the log of a ratio of means, from pairs of independent chains."""
    influence = one / one.mean() - other / other.mean()
    return float(influence.std(ddof=1) / math.sqrt(influence.size))


def _momentum(claim: Claim, control: Claim, rng: np.random.Generator) -> Iterator[Check]:
    """R′/R = m(κx + ρ_X n)/(κ(1 + ρ_X)) with x = X′/X: the bound vanishes at κ/D_X, and is D/D_X at κ/D."""
    process, kappa = Momentum(0.5), 8
    base = _run(rng, process, 1, 1.0)
    rho, rho_x = (float(base.noise_trace.mean()) / signal for signal in (float(base.grad_sq.mean()), _signal(base)))
    d_over = distortion(rho, kappa) / distortion(rho_x, kappa)
    rates = {"κ/D": gain(rho, kappa), "κ/D_X": gain(rho_x, kappa), "κ": float(kappa)}
    pairs = {name: _moving_pair(base, _run(rng, process, kappa, m), rho_x, kappa, m) for name, m in rates.items()}
    for name, pair in pairs.items():
        yield claim.at_most(f"momentum ½: R′/R = μA with X for G at m = {name}, κ = {kappa} (|z|)", pair.z, Z_LIMIT)
    plain, own = pairs["κ/D"], pairs["κ/D_X"]
    yield claim.at_least("momentum ½: spread of R, X and κN at κ/D, over D/D_X", plain.apart / plain.bound, plain.slack)
    yield claim.near("momentum ½: and that bound is D/D_X, relative", plain.bound / d_over, 1, 1e-12)
    yield claim.at_most("momentum ½: R′/R at κ/D_X: outside X′/X and κN′/N (standard errors)", own.outside, Z_LIMIT)
    yield control.at_least("momentum ½: at κ/D it is outside (standard errors)", plain.outside, Z_LIMIT)


def _moving_pair(base: Paths, large: Paths, rho: float, kappa: float, m: float) -> RatePair:
    x, n = _signal(large) / _signal(base), kappa * float(large.noise_trace.mean() / base.noise_trace.mean())
    return RatePair(
        (float(large.param_sq.mean() / base.param_sq.mean()), x, n),
        norm_ratio(rho, kappa, m, grad_ratio=x, noise_ratio=n),
        least_spread(rho, kappa, m),
        math.hypot(*(_log_error(run.param_sq, run.velocity_sq) for run in (base, large))),  # X + N = (1 − β²)|v|²
    )


def _signal(run: Paths) -> float:
    return momentum_signal(float(run.velocity_sq.mean()), float(run.noise_trace.mean()), 0.5)


# ── quadratics, by exact moments ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class StationaryRun:
    """Exact averages of one stationary run with weight decay."""

    pull: float
    param_sq: float
    grad_sq: float
    noise_trace: float


def _quadratics(claim: Claim, control: Claim) -> Iterator[Check]:
    """A quadratic is not scale invariant: T takes the place of R, and the factor in ηλ goes."""
    kappa, decay = 8, 0.3
    beds = {"noise that depends on x": regression(lr=0.05), "additive noise": ornstein_uhlenbeck(lr=0.15)}
    for name, bed in beds.items():
        base = _stationary(bed, decay)
        rho = base.noise_trace / base.grad_sq
        d = distortion(rho, kappa)
        identities, bounds, norms, own_rates = [], [], [], []
        for m in (kappa / d, float(kappa), kappa / d**2):
            large = _stationary(replace(bed, lr=m * bed.lr, batch_size=kappa * bed.batch_size), decay)
            g, n = large.grad_sq / base.grad_sq, kappa * large.noise_trace / base.noise_trace
            expected = norm_ratio(rho, kappa, m, grad_ratio=g, noise_ratio=n)
            identities.append(large.pull / base.pull / expected - 1)
            bounds.append(spread(large.pull / base.pull, g, n) / least_spread(rho, kappa, m))
            norms.append(large.param_sq / base.param_sq / expected - 1)
            both = norm_ratio(rho, kappa, m, grad_ratio=g, noise_ratio=n, lr_wd=bed.lr * decay)
            own_rates.append(large.pull / base.pull / both - 1)
        said = f"quadratic, {name}, D = {d:.2f}"
        yield claim.at_most(f"{said}: T′/T = (mD/κ)A at κ/D, κ and κ/D², relative", _largest(identities), 1e-11)
        yield claim.at_least(f"{said}: spread of T, G and κN over max(μ, 1/μ)", min(bounds), 1 - 1e-11)
        yield control.at_least(f"{said}: R′/R in its place is off by, relative", _largest(norms), 0.05)
        yield control.at_least(f"{said}: with the factor in ηλ it is off by, relative", _largest(own_rates), 0.005)


def _stability(claim: Claim, control: Claim) -> Iterator[Check]:
    """How far the rule can go on a quadratic with additive noise: in one dimension, to any κ.

    A stationary direction of curvature h has N/G = 2/(ηh) − 1, so that 1 + ρ, which the gain never exceeds, is the
    largest stable factor on the rate, and the law of x stays as it was. With several curvatures 1 + ρ lies beyond the
    limit of the steepest one: a gain planned from the baseline's N/G has no brake there.
    """
    line = RegressionProblem(np.ones((2, 1, 1)), np.array([[1.0], [-1.0]]), 0.1, 1, np.zeros(1))
    base = _stationary(line, 0.0)
    rho = base.noise_trace / base.grad_sq
    yield claim.near("1-d quadratic: 1 + ρ over the largest stable factor 2/(ηh)", (1 + rho) * line.lr / 2, 1, 1e-12)

    def kept(kappa: int, m: float) -> float:
        return _stationary(replace(line, lr=m * line.lr, batch_size=kappa), 0.0).param_sq / base.param_sq - 1

    gained = [kept(kappa, gain(rho, kappa)) for kappa in (8, 256, 10_000)]
    yield claim.at_most(
        "1-d quadratic: E x² at κ/D, κ = 8, 256 and 10,000, against the baseline's", _largest(gained), 1e-9
    )
    yield control.at_least("1-d quadratic: at the linear rule, κ = 8, it is larger by, relative", kept(8, 8.0), 0.5)

    plane = ornstein_uhlenbeck(lr=0.15)
    base = _stationary(plane, 0.0)
    steepest = float(np.linalg.eigvalsh(plane.hessians.mean(axis=0)).max())
    over = (1 + base.noise_trace / base.grad_sq) * plane.lr * steepest / 2
    yield claim.at_least("2-d quadratic: 1 + ρ over the largest stable factor", over, 1.05)


def _stationary(bed: RegressionProblem, weight_decay: float) -> StationaryRun:
    """R, T, G and N from E yyᵀ of the run with weight decay; G and N are those of the loss alone."""
    d = bed.start.size
    moments = replace(bed, hessians=bed.hessians + weight_decay * np.eye(d)).equilibrium()
    each = bed.augmented()
    squares = np.einsum("nij,jk,nik->n", each, moments, each)
    mean = each.mean(axis=0)
    grad_sq = float(np.einsum("ij,jk,ik->", mean, moments, mean))
    param_sq = float(np.trace(moments[1:, 1:]))
    own = float(np.trace((moments @ mean.T)[1:, 1:]))  # E⟨x, ∇L⟩
    return StationaryRun(
        pull(param_sq, own, lr=bed.lr, weight_decay=weight_decay),
        param_sq,
        grad_sq,
        float(squares.mean() - grad_sq) / bed.batch_size,
    )


def _largest(errors: list[float]) -> float:
    return max(abs(error) for error in errors)


# ── Adam's form ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _adaptive_steps(claim: Claim, control: Claim) -> Iterator[Check]:
    """Per baseline step the drift of a coordinate is kept where its D_i is D, and its diffusion is divided by D."""
    for eps in (0.0, 0.2, 5.0):
        order = _own_gain_order(eps)
        yield claim.near(
            f"RMSprop at κ/D, D_i = D: drift and diffusion·D → those of the baseline, slope in 1/(1 − β₂), eps = {eps}",
            furthest(order.slopes[-1], -1),
            -1,
            SLOPE,
        )
        yield claim.at_most(f"and how far at 1 − β₂ = 1/{RATES[-1]}, eps = {eps}", order.errors[-1].max(), 2e-3)
    pooled = _pooled_gain_order()
    yield claim.near(
        "RMSprop at κ/D of the sums: drift → √(D/D_i), eps = 0, slope in 1/(1 − β₂)",
        furthest(pooled.slopes[-1], -1),
        -1,
        SLOPE,
    )
    for name, power in (("the square-root rule, lr·√κ", 0.0), ("lr·√(κ/D²)", 2.0)):
        wrong = _own_gain_order(0.2, power=power)
        yield control.at_least(
            f"RMSprop by {name}: drift ↛ the baseline's, slope", wrong.slopes[-1].min(), CONTROL_SLOPE
        )
    fixed = _own_gain_order(0.2, eps_factor=False)
    yield control.at_least(
        "RMSprop at κ/D, eps kept: drift ↛ the baseline's, slope", fixed.slopes[-1].min(), CONTROL_SLOPE
    )


def _own_gain_order(eps: float, *, power: float = 1.0, eps_factor: bool = True) -> WeakOrder:
    """Deviations from 1 of drift and of diffusion·D per baseline step, each coordinate at κ/D_i^power."""
    signal, variance = signal_and_variance()

    def deviations(settings: RMSpropSettings) -> Iterator[FloatArray]:
        base = settled(settings, 1)
        for kappa, (i, rho) in product(SMALL_KAPPAS, enumerate(variance / signal)):
            d = distortion(rho, kappa)
            gained = _gained(settings, kappa / d**power)
            if not eps_factor:
                gained = replace(gained, eps=eps)
            large = STRONG.settled_step(STRONG.at_batch(gained, kappa), COORDINATES[i])
            # the bed divides by κ, and one step at κB counts as κ/D baseline steps
            yield np.array([large.drift * d / base[i].drift - 1, large.diffusion * d / base[i].diffusion * d - 1])

    return order_in_rate(eps, deviations)


def _pooled_gain_order() -> WeakOrder:
    """Deviations from √(D/D_i) of the drift per baseline step, all coordinates at κ/D of Σs/Σg²."""
    signal, variance = signal_and_variance()

    def deviations(settings: RMSpropSettings) -> Iterator[FloatArray]:
        drifts = field_of(settled(settings, 1), "drift")
        for kappa in SMALL_KAPPAS:
            d = distortion(variance.sum() / signal.sum(), kappa)
            moved = field_of(settled(_gained(settings, kappa / d), kappa), "drift") * d
            yield moved / drifts / np.sqrt(d / coordinate_distortion(kappa)) - 1

    return order_in_rate(0.0, deviations)


def _gained(settings: RMSpropSettings, made: float) -> RMSpropSettings:
    """The square-root rule at a gain, with alpha kept."""
    factors = Factors.at(made, "square_root")
    return replace(settings, lr=settings.lr * factors.lr, eps=settings.eps * factors.eps)


def _adaptive_moving(claim: Claim, control: Claim) -> Iterator[Check]:
    """Weights that move: V = G + N once stationary, so mV′/V = μA at the rate √m·η, whatever the rate."""
    settings = RMSpropSettings(lr=0.25, alpha=0.98, eps=0.2)
    base = STRONG.stationary(STRONG.at_batch(settings, 1), statistics)
    rho = float(base[1] / base[0])
    for kappa in SMALL_KAPPAS:
        d = distortion(rho, kappa)
        identities, bounds = [], []
        for m in (kappa / d, float(kappa), kappa / d**2):
            large = STRONG.stationary(STRONG.at_batch(_gained(settings, m), kappa), statistics)
            g, n, q = (float(ratio) for ratio in large / base)
            moment = m * q / kappa  # the bed multiplies V by κ
            identities.append(moment / norm_ratio(rho, kappa, m, grad_ratio=g, noise_ratio=n) - 1)
            bounds.append(spread(moment, g, n) / least_spread(rho, kappa, m))
        said = f"RMSprop, moving, κ = {kappa}, D = {d:.2f}"
        yield claim.at_most(f"{said}: mV′/V = μA at κ/D, κ and κ/D², relative", _largest(identities), 1e-9)
        yield claim.at_least(f"{said}: spread of mV, G and κN over max(μ, 1/μ)", min(bounds), 1 - 1e-9)
