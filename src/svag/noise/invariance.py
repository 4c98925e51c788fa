"""Is the loss scale invariant? The tests of lem:sc for any model, and the paper's statements measured on one network.

`scale_invariance_error` asks whether ⟨x, ∇L⟩ = 0 and L(cx) = L(x). `network_checks` measures lem:sc, cor:sc and
lem:2nd_sde_hessian on a small, smooth network in double precision: two linear layers, each followed by a normalisation
without eps, and a frozen last layer. All its trainable weights together can be scaled without changing the loss.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from svag.noise.batches import batch_size_of, gradients_of, mean_loss, refuse_swapped
from svag.noise.parameters import inner_product, measured_parameters, square_norm
from svag.noise.undisturbed import undisturbed

Batch = TypeVar("Batch")


def scale_invariance_error(
    model: nn.Module,
    loss_fn: Callable[[Batch], Tensor],
    batch: Batch,
    *,
    parameters: Iterable[Tensor] | None = None,
) -> float:
    r"""How far the loss is from scale invariance in the trainable parameters: 0 when it is scale invariant (lem:sc).

    $$\max\Bigl\{\frac{|\langle x,\nabla L\rangle|}{|x|\,|\nabla L|},\;
      \max_{c\in\{1/2,\,2\}}\frac{|L(cx)-L(x)|}{|L(x)|}\Bigr\}$$

    where x are the trainable parameters of `model` (or the given `parameters`) and L is `loss_fn` on `batch`, in the
    mode the model is in. Rounding leaves about 1e-6 in single precision. The model is as it was afterwards.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> x = torch.tensor([[1.0, 2.0]])
    >>> scale_invariance_error(model, lambda x: model(x).mean(), x) > 0.4  # linear: L(cx) = cL(x)
    True
    """
    measured = list(measured_parameters(model, parameters).values())
    refuse_swapped(loss_fn, batch)
    batch_size_of(batch)
    with undisturbed(model):
        loss = mean_loss(loss_fn, batch)
        gradients = gradients_of(loss, measured)
    value = _finite("the loss", loss.item())
    lengths = math.sqrt(float(square_norm(measured)) * _finite("the gradient", float(square_norm(gradients))))
    radial = abs(float(inner_product(measured, gradients))) / lengths if lengths else 0.0
    change = max(abs(_loss_at(scale, model, loss_fn, batch, measured) - value) for scale in (0.5, 2.0))
    return max(radial, change / abs(value) if value else change)


def _loss_at(
    scale: float, model: nn.Module, loss_fn: Callable[[Batch], Tensor], batch: Batch, measured: list[nn.Parameter]
) -> float:
    """Loss at `scale` times the parameters."""
    # the same generator states as at scale 1, so that Dropout drops the same units
    with _multiplied(measured, scale), undisturbed(model), torch.no_grad():
        return _finite(f"the loss at {scale:g} times the parameters", loss_fn(batch).item())


@contextmanager
def _multiplied(parameters: Sequence[nn.Parameter], scale: float) -> Iterator[None]:
    """Multiply the parameters, and put them back bit for bit."""
    kept = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter in parameters:
                parameter.mul_(scale)
        yield
    finally:
        with torch.no_grad():
            for parameter, content in zip(parameters, kept, strict=True):
                parameter.copy_(content)


def _finite(what: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{what} is not finite ({value}): scale invariance cannot be tested with this batch")
    return value


@dataclass(frozen=True)
class NetworkCheck:
    """One statement of the paper, measured.

    Attributes:
        label: the paper's label.
        claim: what must be 0, in words.
        measured: how far from 0 it is, relative to the size of its terms.
        tolerance: what rounding alone may leave.
    """

    label: str
    claim: str
    measured: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the statement holds up to rounding."""
        return self.measured <= self.tolerance


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


def network_checks(seed: int = 0, shift: bool = False) -> list[NetworkCheck]:
    """Measure all statements on one random network and random data; `shift` is the negative control.

    >>> sorted({check.label for check in network_checks()})
    ['cor:sc', 'lem:2nd_sde_hessian', 'lem:sc']
    >>> all(check.holds for check in network_checks()), any(check.holds for check in network_checks(shift=True))
    (True, False)
    """
    generator = torch.Generator().manual_seed(seed)
    net = ScaleInvariantNet(generator, shift=shift)
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    x = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (12,), generator=generator)
    return [
        orthogonal_gradient(net, weights, x, y),
        homogeneous_gradient(net, weights, x, y),
        orthogonal_noise(net, weights, x, y),
        radial_hessian(net, weights, x, y),
    ]


def orthogonal_gradient(net: nn.Module, weights: Sequence[nn.Parameter], x: Tensor, y: Tensor) -> NetworkCheck:
    """⟨x, ∇L⟩ = 0 (lem:sc, 1)."""
    gradients = gradients_of(_loss(net, x, y), weights)
    measured = abs(float(inner_product(weights, gradients))) / _lengths(weights, gradients)
    return NetworkCheck("lem:sc", "⟨x, ∇L(x)⟩ = 0, relative to |x||∇L|", measured, 1e-12)


def homogeneous_gradient(net: nn.Module, weights: Sequence[nn.Parameter], x: Tensor, y: Tensor) -> NetworkCheck:
    """c∇L(cx) = ∇L(x) (lem:sc, 2)."""
    c = 3.0
    here = gradients_of(_loss(net, x, y), weights)
    with _multiplied(weights, c):
        there = gradients_of(_loss(net, x, y), weights)
    gap = square_norm([c * far - near for far, near in zip(there, here, strict=True)])
    measured = math.sqrt(float(gap) / float(square_norm(here)))
    return NetworkCheck("lem:sc", f"c∇L(cx) = ∇L(x) at c = {c:g}, relative to |∇L|", measured, 1e-12)


def orthogonal_noise(net: nn.Module, weights: Sequence[nn.Parameter], x: Tensor, y: Tensor) -> NetworkCheck:
    """Check xᵀΣx = 0 with Σ the covariance of one example's gradient: no noise in the direction of x (cor:sc)."""
    each = [gradients_of(_loss(net, x[i : i + 1], y[i : i + 1]), weights) for i in range(len(x))]
    along = torch.stack([inner_product(weights, gradient) for gradient in each])
    variance = float(along.var(correction=0))
    size = float(square_norm(weights)) * sum(float(square_norm(gradient)) for gradient in each) / len(each)
    return NetworkCheck("cor:sc", "xᵀΣ(x)x = 0, relative to |x|²·E|∇L_γ|²", variance / size, 1e-24)


def radial_hessian(net: nn.Module, weights: Sequence[nn.Parameter], x: Tensor, y: Tensor) -> NetworkCheck:
    """xᵀ∇²L∇L = ½xᵀ∇|∇L|² = −|∇L|² (lem:2nd_sde_hessian)."""
    gradients = torch.autograd.grad(_loss(net, x, y), list(weights), create_graph=True)
    square = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
    slope = torch.autograd.grad(square, list(weights))
    half = 0.5 * float(inner_product(weights, slope))
    measured = abs(half + square.item()) / square.item()
    return NetworkCheck("lem:2nd_sde_hessian", "xᵀ∇²L∇L = −|∇L|², relative to |∇L|²", measured, 1e-11)


def _loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(net(x), y)


def _standardise(hidden: Tensor) -> Tensor:
    centred = hidden - hidden.mean(dim=1, keepdim=True)
    return centred / centred.square().mean(dim=1, keepdim=True).sqrt()


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _lengths(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    return math.sqrt(float(square_norm(one)) * float(square_norm(other)))
