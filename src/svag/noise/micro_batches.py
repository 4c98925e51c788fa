"""The parts of a step are micro-batches of one process: what each of them adds to `.grad`."""

import torch
from torch import Tensor, nn

from svag.noise.measured import by_device, flat_norms, flat_product, flatten, precise, total
from svag.noise.step_sums import StepSums


class MicroBatches:
    """Collects the sums of a step from `.grad`, which is only read, never changed.

    A part's gradient is what `.grad` gained since the part before. That takes two vectors of the size of the gradient
    and a few operations, however many parameters there are.
    """

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self._devices = by_device(parameters.values())
        self._gained: list[Tensor] = []
        self._norms: list[list[Tensor]] = [[] for _ in self._devices]
        self._parts, self._scale = 0, 1.0

    def micro_batch(self, scale: float) -> None:
        """One micro-batch has been back-propagated, with its loss multiplied by `scale`."""
        gradients = [[parameter.grad for parameter in group] for group in self._devices]
        if all(gradient is None for group in gradients for gradient in group):
            raise ValueError("there is no gradient yet: call micro_batch() after backward()")
        gained = [flatten(_filled(group, found)) for group, found in zip(self._devices, gradients, strict=True)]
        if self._gained:
            # the older vector is not needed any more and takes the difference
            parts = [torch.sub(now, before, out=before) for now, before in zip(gained, self._gained, strict=True)]
        else:
            parts = gained
        # squared and added up only when the step is closed: a probe should cost few operations per micro-batch
        for norms, part in zip(self._norms, parts, strict=True):
            norms.append(flat_norms(part) / scale if scale != 1.0 else flat_norms(part))
        self._gained, self._parts, self._scale = gained, self._parts + 1, scale

    def close(self) -> StepSums:
        """Return the sums of the step and start the next one."""
        gained, norms, parts, scale = self._gained, self._norms, self._parts, self._scale
        self.forget()
        if parts < 2:
            raise ValueError(
                f"a step needs at least 2 micro-batches, got {parts}: call micro_batch() after each one's backward()"
            )
        weights = [flatten(group) for group in self._devices]
        of_parts, of_all, of_weights = zip(*map(_squares, norms, gained, weights), strict=True)
        product = total([flat_product(one, other) for one, other in zip(weights, gained, strict=True)])
        return StepSums(
            # each loss was divided by their number, so that .grad is the mean of the parts' gradients
            sum_sq=total(of_parts) * parts**2,
            sq_sum=total(of_all) * (parts / scale) ** 2,
            param_sq=total(of_weights),
            param_dot_grad=product if scale == 1.0 else product / scale,
            parts=parts,
            scaled=scale != 1.0,
        )

    def forget(self) -> None:
        """Drop what was recorded since the last step."""
        self._gained, self._norms = [], [[] for _ in self._devices]
        self._parts, self._scale = 0, 1.0

    def remove(self) -> None:
        """Stop recording: nothing was attached to the model."""
        self.forget()


def _squares(norms: list[Tensor], gained: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Σ|g_i|², |Σg_i|² and |x|² on one device, squared together."""
    rows = [*norms, flat_norms(gained), flat_norms(weights)]
    squares = torch.cat(rows).to(precise(gained.device)).square_()
    size = len(norms[0])
    return squares[: -2 * size].sum(), squares[-2 * size : -size].sum(), squares[-size:].sum()


def _filled(parameters: list[nn.Parameter], gradients: list[Tensor | None]) -> list[Tensor]:
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]
