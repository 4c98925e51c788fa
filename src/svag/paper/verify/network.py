"""The statements about scale-invariant losses, measured on a network: lem:sc, cor:sc and lem:2nd_sde_hessian.

The network is small, smooth and in double precision: two linear layers, each followed by a normalisation without eps,
and a frozen last layer. All its trainable weights together can be scaled without changing the loss.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from svag.noise.batches import gradients_of
from svag.noise.invariance import multiplied
from svag.noise.parameters import inner_product, square_norm
from svag.paper.verify.check import Check, Claim

Measured: TypeAlias = tuple[str, str, float, float]
"""A label, what must be 0, how far from 0 it is relative to the size of its terms, and what rounding may leave."""


class ScaleInvariantNet(nn.Module):
    """A loss that does not change when all trainable weights are multiplied by one number.

    With `shift` the last layer is followed by a trainable bias: no longer scale invariant, the negative control.
    """

    def __init__(self, generator: torch.Generator, shift: bool = False) -> None:
        super().__init__()
        self.first = nn.Parameter(_normal((8, 5), generator))
        self.second = nn.Parameter(_normal((8, 8), generator))
        self.head = nn.Parameter(_normal((3, 8), generator), requires_grad=False)
        self.shift = nn.Parameter(_normal((3,), generator), requires_grad=shift)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        hidden = torch.tanh(_standardise(x @ self.first.T))
        hidden = torch.tanh(_standardise(hidden @ self.second.T))
        logits: Tensor = hidden @ self.head.T + self.shift * self.shift.requires_grad
        return logits


def network_checks(seed: int = 0) -> list[Check]:
    """Check all statements on one random network and random data; with a trainable bias none of them holds.

    >>> sorted({check.label for check in network_checks()}), all(check.passed for check in network_checks())
    (['cor:sc', 'lem:2nd_sde_hessian', 'lem:sc'], True)
    """
    claims = [Claim(label).at_most(f"network: {claim}", *numbers) for label, claim, *numbers in _statements(seed)]
    return claims + [
        Claim(label, control=True).at_least(f"network with a trainable bias: {claim}", measured, 1e-6)
        for label, claim, measured, _ in _statements(seed, shift=True)
    ]


def _statements(seed: int, shift: bool = False) -> list[Measured]:
    generator = torch.Generator().manual_seed(seed)
    net = ScaleInvariantNet(generator, shift=shift)
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    x = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (12,), generator=generator)
    statements = (orthogonal_gradient, homogeneous_gradient, orthogonal_noise, radial_hessian)
    return [statement(net, weights, x, y) for statement in statements]


def orthogonal_gradient(net: nn.Module, weights: Sequence[nn.Parameter], x: Tensor, y: Tensor) -> Measured:
    """⟨x, ∇L⟩ = 0 (lem:sc, 1)."""
    gradients = gradients_of(_loss(net, x, y), weights)
    measured = abs(float(inner_product(weights, gradients))) / _lengths(weights, gradients)
    return "lem:sc", "⟨x, ∇L(x)⟩ = 0, relative to |x||∇L|", measured, 1e-12


def homogeneous_gradient(net: nn.Module, weights: Sequence[nn.Parameter], x: Tensor, y: Tensor) -> Measured:
    """c∇L(cx) = ∇L(x) (lem:sc, 2)."""
    c = 3.0
    here = gradients_of(_loss(net, x, y), weights)
    with multiplied(weights, c):
        there = gradients_of(_loss(net, x, y), weights)
    gap = square_norm([c * far - near for far, near in zip(there, here, strict=True)])
    measured = math.sqrt(float(gap) / float(square_norm(here)))
    return "lem:sc", f"c∇L(cx) = ∇L(x) at c = {c:g}, relative to |∇L|", measured, 1e-12


def orthogonal_noise(net: nn.Module, weights: Sequence[nn.Parameter], x: Tensor, y: Tensor) -> Measured:
    """Check xᵀΣx = 0 with Σ the covariance of one example's gradient: no noise in the direction of x (cor:sc)."""
    each = [gradients_of(_loss(net, x[i : i + 1], y[i : i + 1]), weights) for i in range(len(x))]
    along = torch.stack([inner_product(weights, gradient) for gradient in each])
    variance = float(along.var(correction=0))
    size = float(square_norm(weights)) * sum(float(square_norm(gradient)) for gradient in each) / len(each)
    return "cor:sc", "xᵀΣ(x)x = 0, relative to |x|²·E|∇L_γ|²", variance / size, 1e-24


def radial_hessian(net: nn.Module, weights: Sequence[nn.Parameter], x: Tensor, y: Tensor) -> Measured:
    """xᵀ∇²L∇L = ½xᵀ∇|∇L|² = −|∇L|² (lem:2nd_sde_hessian)."""
    gradients = torch.autograd.grad(_loss(net, x, y), list(weights), create_graph=True)
    square = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
    slope = torch.autograd.grad(square, list(weights))
    half = 0.5 * float(inner_product(weights, slope))
    measured = abs(half + square.item()) / square.item()
    return "lem:2nd_sde_hessian", "xᵀ∇²L∇L = −|∇L|², relative to |∇L|²", measured, 1e-11


def _loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(net(x), y)


def _standardise(hidden: Tensor) -> Tensor:
    centred = hidden - hidden.mean(dim=1, keepdim=True)
    return centred / centred.square().mean(dim=1, keepdim=True).sqrt()


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _lengths(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return math.sqrt(float(square_norm(one)) * float(square_norm(other)))
