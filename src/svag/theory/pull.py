"""What a loss that is not scale invariant adds to the balance of the weight norm (beside eq:RGN_sgd; ours)."""

from svag.theory import domain


def pull_share(param_sq: float, param_dot_grad: float, *, lr: float, weight_decay: float, ell: float = 1.0) -> float:
    r"""How much the loss itself pulls on the weights, relative to weight decay: 0 for a scale-invariant loss.

    $$(2 - h\lambda)\lambda R + 2(1 - h\lambda)\langle x,\nabla L\rangle = hG + \eta N, \qquad h = \eta/l$$

    is the balance of SVAG(l), and of SGD for l = 1, for any loss; the share is the second term over the first. ⟨x, ∇L⟩
    is the argument `param_dot_grad` and R is `param_sq`. Growth over decay at equilibrium is 1 + share instead of 1.

    >>> pull_share(4.0, 0.5, lr=1.0, weight_decay=0.5)
    0.16666666666666666
    >>> pull_share(4.0, 0.0, lr=1.0, weight_decay=0.5)
    0.0
    """
    h = domain.positive("lr", lr) / domain.positive("ell", ell)
    decay = domain.decay_per_step(h * domain.positive("weight_decay", weight_decay))
    pull = 2 * (1 - decay) * domain.finite("param_dot_grad", param_dot_grad)
    return pull / ((2 - decay) * weight_decay * domain.positive("param_sq", param_sq))
