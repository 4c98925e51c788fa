"""The balance of the weight norm (eq:RGN_sgd, eq:RGN_sde), with momentum, and for any loss (ours).

Scale invariance makes every gradient orthogonal to the weights, so weight decay alone shrinks R = E|x|² and the
gradients alone make it grow. Each process has one function for the balance at equilibrium and one for the transient.
A loss that is not scale invariant adds its own pull on the weights, and over any window of a run the balance holds
exactly if the gain of R is included: `window_balance`. With momentum the velocity replaces the gradient, and X replaces
G in the certificates (see thm:eq_sde_sgd for β = 0).
"""

import math
from dataclasses import dataclass

from svag.arrays import FloatArray
from svag.theory import domain


@dataclass(frozen=True)
class Balance:
    """The two sides of an equilibrium, per unit of learning rate."""

    decay: float
    growth: float

    @property
    def residual(self) -> float:
        """Growth minus decay: 0 at equilibrium, positive while the norm grows."""
        return self.growth - self.decay

    @property
    def ratio(self) -> float:
        """Growth over decay: 1 at equilibrium."""
        return self.growth / self.decay


def sgd_balance(param_sq: float, grad_sq: float, noise_trace: float, *, lr: float, weight_decay: float) -> Balance:
    """SGD and NGD: (2 − ηλ)λR = η(G + N) (eq:RGN_sgd).

    >>> sgd_balance(10.0, 1.0, 18.5, lr=0.5, weight_decay=0.5).ratio
    1.1142857142857143
    """
    return svag_balance(param_sq, grad_sq, noise_trace, lr=lr, weight_decay=weight_decay)


def svag_balance(
    param_sq: float, grad_sq: float, noise_trace: float, *, lr: float, weight_decay: float, ell: float = 1.0
) -> Balance:
    """SVAG at every l: (2 − hλ)λR = hG + ηN with h = η/l (ours). N is that of the SGD run, not amplified.

    >>> svag_balance(10.0, 4.0, 18.5, lr=0.5, weight_decay=0.5, ell=4).growth
    9.75
    """
    h = domain.positive("lr", lr) / domain.positive("ell", ell)
    _check(param_sq, weight_decay, grad_sq=grad_sq, noise_trace=noise_trace)
    domain.decay_per_step(h * weight_decay)
    return Balance(decay=(2 - h * weight_decay) * weight_decay * param_sq, growth=h * grad_sq + lr * noise_trace)


def sde_balance(param_sq: float, sde_noise_trace: float, *, weight_decay: float) -> Balance:
    """Itô SDE: 2λR̄ = N̄ with N̄ = Tr(ηΣ) (eq:RGN_sde).

    >>> sde_balance(10.0, 5.0, weight_decay=0.25).residual
    0.0
    """
    _check(param_sq, weight_decay, sde_noise_trace=sde_noise_trace)
    return Balance(decay=2 * weight_decay * param_sq, growth=sde_noise_trace)


def second_order_sde_balance(
    param_sq: float, grad_sq: float, sde_noise_trace: float, *, lr: float, weight_decay: float
) -> Balance:
    """2nd-order SDE: (2 + ηλ)λR′ = ηG′ + N̄′ (eq:app_RGN_2nd_sde).

    >>> second_order_sde_balance(8.0, 2.0, 8.0, lr=0.5, weight_decay=0.5).ratio
    1.0
    """
    domain.positive("lr", lr)
    _check(param_sq, weight_decay, grad_sq=grad_sq, sde_noise_trace=sde_noise_trace)
    return Balance(
        decay=(2 + lr * weight_decay) * weight_decay * param_sq,
        growth=lr * grad_sq + sde_noise_trace,
    )


def momentum_balance(
    param_sq: float, velocity_sq: float, *, lr: float, weight_decay: float, momentum: float
) -> Balance:
    """SGD with momentum β: 2λR = (1 + β)η E|v|², v the velocity buffer of torch.optim.SGD (ours).

    >>> momentum_balance(10.0, 1.0, lr=0.5, weight_decay=0.0375, momentum=0.5).ratio
    1.0
    """
    beta = domain.momentum(momentum)
    _check(param_sq, weight_decay, velocity_sq=velocity_sq)
    if domain.positive("lr", lr) * weight_decay >= 2 * (1 + beta):
        raise ValueError(f"lr × weight_decay must stay below 2(1 + momentum), got {lr * weight_decay}: decay diverges")
    return Balance(decay=2 * weight_decay * param_sq, growth=(1 + beta) * lr * velocity_sq)


def sgd_norm_factors(*, lr: float, weight_decay: float, ell: float = 1.0) -> tuple[float, float, float]:
    """Coefficients of R, G and N in E|x|² after one step: (1 − hλ)², h² and h²l, h = η/l (eq:norm_sgd_wd).

    >>> sgd_norm_factors(lr=0.5, weight_decay=1.0)
    (0.25, 0.25, 0.25)
    """
    h = domain.positive("lr", lr) / domain.positive("ell", ell)
    return (1 - h * weight_decay) ** 2, h**2, h**2 * ell


def sgd_next_param_sq(
    param_sq: float, grad_sq: float, noise_trace: float, *, lr: float, weight_decay: float, ell: float = 1.0
) -> float:
    """E|x|² after one step: (1 − hλ)²R + h²(G + lN), h = η/l; SGD for l = 1 (eq:norm_sgd_wd).

    >>> sgd_next_param_sq(4.0, 1.0, 3.0, lr=0.5, weight_decay=1.0)
    2.0
    """
    _check(param_sq, weight_decay, grad_sq=grad_sq, noise_trace=noise_trace)
    of_r, of_g, of_n = sgd_norm_factors(lr=lr, weight_decay=weight_decay, ell=ell)
    return of_r * param_sq + of_g * grad_sq + of_n * noise_trace


def sde_param_sq_rate(param_sq: float, sde_noise_trace: float, *, weight_decay: float) -> float:
    """d/dt E|X|² = −2λR̄ + N̄ for the Itô SDE (eq:norm_sde_wd, whose Σ is Σ̄ = ηΣ).

    >>> sde_param_sq_rate(4.0, 3.0, weight_decay=0.25)
    1.0
    """
    return sde_balance(param_sq, sde_noise_trace, weight_decay=weight_decay).residual


def second_order_sde_param_sq_rate(
    param_sq: float, grad_sq: float, sde_noise_trace: float, *, lr: float, weight_decay: float
) -> float:
    """d/dt E|X|² = −(2 + ηλ)λR′ + ηG′ + N̄′ for the 2nd-order SDE (eq:app_ito_lemma).

    >>> second_order_sde_param_sq_rate(8.0, 2.0, 9.0, lr=0.5, weight_decay=0.5)
    1.0
    """
    return second_order_sde_balance(param_sq, grad_sq, sde_noise_trace, lr=lr, weight_decay=weight_decay).residual


E_FOLDS = 3.0
"""Minimum number of relaxation times 1/(4ηλ) for the weights to settle; five are better."""


def steps_to_equilibrium(lr: float, weight_decay: float, e_folds: float = 1.0) -> float:
    """Steps of SGD in which the distance to equilibrium falls by `e_folds` factors of e: 1/(4ηλ) each; allow 3 to 5.

    >>> steps_to_equilibrium(0.5, 0.0005)
    1000.0
    """
    return domain.positive("e_folds", e_folds) / (
        4 * domain.positive("lr", lr) * domain.positive("weight_decay", weight_decay)
    )


def relaxed_param_sq(start: float, settled: float, e_folds: float) -> float:
    r"""Return R on its way to equilibrium (ours, from eq:norm_sgd_wd with G + N ∝ 1/R, as scale invariance has it).

    $$R_k^2 = R_*^2 + (R_0^2 - R_*^2)\,e^{-4\eta\lambda k}$$

    where R₀ is the argument `start`, R* is `settled` and 4ηλk is `e_folds`; up to terms of order ηλ. Growth over decay
    of the weights is (R*/R)² on the way.

    >>> relaxed_param_sq(5.0, 3.0, 0.0)
    5.0
    >>> round(relaxed_param_sq(5.0, 3.0, math.log(16)), 12)  # 9 + 16/16
    3.162277660168
    """
    far = domain.positive("start", start) ** 2 - domain.positive("settled", settled) ** 2
    return math.sqrt(settled**2 + far * math.exp(-domain.non_negative("e_folds", e_folds)))


_NEAR_BALANCE = 0.1


def e_folds_to_balance(start_over_settled: float) -> float:
    """Return 4ηλ·steps until growth over decay of the weights, (R*/R)², is within 0.1 of 1, from R₀/R*.

    The result depends on the start: three e-folds are too few from R₀ = 2R*, and none is needed from R*.

    >>> round(e_folds_to_balance(2.0), 3)  # (4 − 1)e^(−t) = 1/0.9 − 1
    3.296
    >>> e_folds_to_balance(1.0)
    0.0
    """
    far = domain.positive("start_over_settled", start_over_settled) ** 2 - 1
    near = 1 - _NEAR_BALANCE if far > 0 else 1 + _NEAR_BALANCE
    return max(0.0, math.log(abs(far) * near / _NEAR_BALANCE)) if far else 0.0


def _check(param_sq: float, weight_decay: float, **squares: float) -> None:
    """Refuse impossible values; only an unbiased estimate of G may be negative."""
    domain.positive("param_sq", param_sq)
    domain.positive("weight_decay", weight_decay)
    for name, value in squares.items():
        (domain.finite if name == "grad_sq" else domain.non_negative)(name, value)


def pull(param_sq: float, param_dot_grad: float, *, lr: float, weight_decay: float, ell: float = 1.0) -> float:
    r"""Return T, the rate at which weight decay and the loss's own pull shrink |x|², per unit of learning rate.

    $$T = (2 - h\lambda)\lambda R + 2(1 - h\lambda)\langle x,\nabla L\rangle, \qquad h = \eta/l$$

    where R is the argument `param_sq`, ⟨x, ∇L⟩ is `param_dot_grad`, η is `lr` and λ is `weight_decay`, which may be 0.
    Where |x|² is stationary, T = hG + ηN for SVAG(l), and so T = η(G + N) for SGD, whatever the loss.

    >>> pull(4.0, 0.5, lr=1.0, weight_decay=0.5)
    3.5
    >>> pull(4.0, 0.5, lr=1.0, weight_decay=0.0)  # no weight decay: 2⟨x, ∇L⟩
    1.0
    """
    h = domain.positive("lr", lr) / domain.positive("ell", ell)
    decay = domain.decay_per_step(h * domain.non_negative("weight_decay", weight_decay))
    own = 2 * (1 - decay) * domain.finite("param_dot_grad", param_dot_grad)
    return (2 - decay) * weight_decay * domain.positive("param_sq", param_sq) + own


def pull_share(param_sq: float, param_dot_grad: float, *, lr: float, weight_decay: float, ell: float = 1.0) -> float:
    """How much the loss itself pulls on the weights, relative to weight decay: 0 for a scale-invariant loss.

    It is the second term of `pull` over the first. Growth over decay at equilibrium is 1 + share instead of 1.

    >>> pull_share(4.0, 0.5, lr=1.0, weight_decay=0.5)
    0.16666666666666674
    >>> pull_share(4.0, 0.0, lr=1.0, weight_decay=0.5)
    0.0
    """
    domain.positive("weight_decay", weight_decay)
    both = pull(param_sq, param_dot_grad, lr=lr, weight_decay=weight_decay, ell=ell)
    return both / pull(param_sq, 0.0, lr=lr, weight_decay=weight_decay, ell=ell) - 1


def window_balance(
    param_sq: FloatArray, param_dot_grad: FloatArray, step_sq: FloatArray, *, lr: FloatArray, weight_decay: float
) -> Balance:
    r"""Growth and decay of |x|² over a window of SGD steps, for any loss and any schedule: an identity, step by step.

    $$\sum_k\eta_k^2|\hat g_k|^2 - \sum_k\bigl[\eta_k\lambda(2-\eta_k\lambda)R_k
      + 2\eta_k(1-\eta_k\lambda)\langle x_k,\hat g_k\rangle\bigr] = R_{\text{end}} - R_{\text{start}}$$

    where R_k is the argument `param_sq`, ⟨x_k, ĝ_k⟩ is `param_dot_grad`, |ĝ_k|² (or its estimate G + N) is `step_sq`
    and η_k is `lr`, one number each a step. `residual` of the result is the gain of |x|² over the window, exactly;
    `ratio` is 1 where |x|² is stationary. So with a changing rate G and N are averaged with weights η_k², R with η_k.

    >>> import numpy as np
    >>> x, g, lr = 2.0, 3.0, 0.5  # one step of size ½ from x = 2, in one dimension, without weight decay
    >>> one = window_balance(*(np.array([v]) for v in (x**2, x * g, g**2)), lr=np.array([lr]), weight_decay=0.0)
    >>> one.residual, (x - lr * g) ** 2 - x**2
    (-3.75, -3.75)
    """
    decay = lr * domain.non_negative("weight_decay", weight_decay)
    shrink = decay * (2 - decay) * param_sq + 2 * lr * (1 - decay) * param_dot_grad
    return Balance(decay=float(shrink.sum()), growth=float((lr**2 * step_sq).sum()))


def effective_lr(lr: float, momentum: float) -> float:
    """Learning rate of the SDE that SGD with momentum approximates: η/(1 − β).

    >>> round(effective_lr(0.1, momentum=0.9), 12)
    1.0
    """
    return domain.positive("lr", lr) / (1 - domain.momentum(momentum))


def momentum_excess(
    param_sq: float, noise_trace: float, *, lr: float, weight_decay: float, momentum: float = 0.0
) -> float:
    """Return E = 2λR / (η_eff N): the size of the weights relative to the SDE's equilibrium.

    The SDE has E = 1. E > C² means that SGD and the SDE are not C-close; no G is needed.

    >>> round(momentum_excess(8.0, 1.0, lr=0.1, weight_decay=0.125, momentum=0.5), 12)
    10.0
    """
    decay = 2 * domain.positive("weight_decay", weight_decay) * domain.positive("param_sq", param_sq)
    return decay / (effective_lr(lr, momentum) * domain.positive("noise_trace", noise_trace))


def effective_noise_to_signal(excess: float) -> float:
    """ρ_eff = 1/(E − 1), which replaces N/G in `max_kappa` for a run with momentum.

    It is N/X with the X of `momentum_signal`.

    >>> effective_noise_to_signal(1.25)
    4.0
    """
    if domain.finite("excess", excess) <= 1:
        raise ValueError(
            f"E = 2λR/(η_eff N) must exceed 1 to bound the scaling, got {excess}: there is no signal besides the noise"
        )
    return 1 / (excess - 1)


def momentum_signal(velocity_sq: float, noise_trace: float, momentum: float) -> float:
    """Return X = (1 − β²)E|v|² − N, which replaces G with momentum; v is the buffer of torch.optim.SGD.

    X = G + 2βE⟨v, ∇L⟩ up to a term in λ, and G itself without momentum. As a difference it is hard to resolve, and an
    average of few readings may be negative.

    >>> momentum_signal(8.0, 5.0, momentum=0.5)
    1.0
    """
    beta = domain.momentum(momentum)
    return (1 - beta**2) * domain.non_negative("velocity_sq", velocity_sq) - domain.finite("noise_trace", noise_trace)


def estimated_momentum_signal(grad_sq: float, momentum: float) -> float:
    """Estimate X from G as X̂ = G(1 − β)/(1 + β): exact at a stationary quadratic with noise that does not depend on x.

    >>> round(1 / estimated_momentum_signal(1.0, momentum=0.9), 9)  # G/19
    19.0
    """
    beta = domain.momentum(momentum)
    return domain.finite("grad_sq", grad_sq) * (1 - beta) / (1 + beta)
