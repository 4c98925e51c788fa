"""What a closed step leaves on the device: the sums from which its reading is made."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class StepSums:
    """Sums over the parts' gradients g_i of one step, as 0-d tensors that nobody has waited for yet.

    Attributes:
        sum_sq: Σ|g_i|².
        sq_sum: |Σg_i|².
        param_sq: R = |x|².
        param_dot_grad: ⟨x, Σg_i/n⟩.
        parts: their number n.
        scaled: a GradScaler was at work, so that an overflow is part of the plan.
    """

    sum_sq: Tensor
    sq_sum: Tensor
    param_sq: Tensor
    param_dot_grad: Tensor
    parts: int
    scaled: bool
