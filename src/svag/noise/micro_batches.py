"""The parts of a step are micro-batches of one process: what each of them adds to `.grad`."""

import torch
from torch import Tensor, nn

from svag.noise.measured import by_device, flat_norms, flat_product, flat_square, flatten, sum_squares, total
from svag.noise.step_sums import StepSums


class MicroBatches:
    """Collects the sums of a step from `.grad`, which is only read, never changed.

    A part's gradient is what `.grad` gained since the part before. That takes two vectors of the size of the gradient
    and a few operations, however many parameters there are.
    """

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self._devices = by_device(parameters.values())
        self._gained: list[Tensor] = []
        self._norms: list[Tensor] = []
        self._parts, self._scale = 0, 1.0

    def micro_batch(self, scale: float) -> None:
        """One micro-batch has been back-propagated, with its loss multiplied by `scale`."""
        gradients = [[parameter.grad for parameter in group] for group in self._devices]
        if all(gradient is None for group in gradients for gradient in group):
            raise ValueError("there is no gradient yet: call micro_batch() after backward()")
        gained = [flatten(_filled(*group)) for group in zip(self._devices, gradients, strict=True)]
        if self._gained:
            # the older vector is not needed any more and takes the difference
            parts = [torch.sub(now, before, out=before) for now, before in zip(gained, self._gained, strict=True)]
        else:
            parts = gained
        # squared and added up only when the step is closed: a probe should cost few operations per micro-batch
        self._norms += [flat_norms(part) / scale if scale != 1.0 else flat_norms(part) for part in parts]
        self._gained, self._parts, self._scale = gained, self._parts + 1, scale

    def close(self) -> StepSums:
        """Return the sums of the step and start the next one."""
        gained, norms, parts, scale = self._gained, self._norms, self._parts, self._scale
        self.forget()
        if parts < 2:
            raise ValueError(
                f"a step needs at least 2 micro-batches, got {parts}: call micro_batch() after each one's backward()"
            )
        products = [flat_product(flatten(group), part) for group, part in zip(self._devices, gained, strict=True)]
        return StepSums(
            # each loss was divided by their number, so that .grad is the mean of the parts' gradients
            sum_sq=total([sum_squares(torch.cat(group)) for group in by_device(norms)]) * parts**2,
            sq_sum=total([flat_square(part) for part in gained]) * (parts / scale) ** 2,
            param_dot_grad=total(products) / scale,
            parts=parts,
            scaled=scale != 1.0,
        )

    def forget(self) -> None:
        """Drop what was recorded since the last step."""
        self._gained, self._norms = [], []
        self._parts, self._scale = 0, 1.0

    def remove(self) -> None:
        """Stop recording: nothing was attached to the model."""
        self.forget()


def _filled(parameters: list[nn.Parameter], gradients: list[Tensor | None]) -> list[Tensor]:
    return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]
