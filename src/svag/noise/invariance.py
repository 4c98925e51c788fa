"""Is the loss scale invariant? The two statements of lem:sc as a test for any model: ⟨x, ∇L⟩ = 0 and L(cx) = L(x)."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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
    with multiplied(measured, scale), undisturbed(model), torch.no_grad():
        return _finite(f"the loss at {scale:g} times the parameters", loss_fn(batch).item())


@contextmanager
def multiplied(parameters: Sequence[nn.Parameter], scale: float) -> Iterator[None]:
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
