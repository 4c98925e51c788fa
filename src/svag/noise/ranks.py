"""The parts of a step are the ranks of a data-parallel model: a communication hook writes down their norms."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # it is there, and DDP checks for it
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from svag.noise.measured import inner_product, square_norm, total
from svag.noise.step_sums import StepSums


class Ranks:
    """Collects the sums of a step over the ranks, whose gradients average to `.grad`.

    The hook sees what a rank has accumulated just before it is reduced, and then reduces it as
    DistributedDataParallel does by itself. Closing a step costs one all-reduce of one number.
    """

    def __init__(self, model: DistributedDataParallel, parameters: dict[str, nn.Parameter]) -> None:
        self.group = model.process_group
        self._parameters = list(parameters.values())
        self._ids = {id(parameter) for parameter in self._parameters}
        self._active, self._fresh_seen = True, False
        self._squares: list[Tensor] = []
        self._reductions, self._scale = 0, 1.0
        try:
            model.register_comm_hook(self, _record_and_reduce)
        except RuntimeError as error:
            raise ValueError(
                "this DistributedDataParallel model already has a communication hook, and it takes only one, for ever: "
                "keep using the first probe, make it before any other hook, or measure with svag.measure_noise"
            ) from error
        self._node = get_gradient_edge(self._parameters[0]).node  # it lives as long as we hold it
        self._handle = self._node.register_prehook(self._notice)

    def micro_batch(self, scale: float) -> None:
        """Note the scale; the parts are the ranks, however many micro-batches each of them accumulates."""
        self._scale = scale

    def close(self) -> StepSums:
        """Return the sums of the step and start the next one."""
        squares, reductions, scale = self._squares, self._reductions, self._scale
        self.forget()
        if not squares:
            raise ValueError("no gradient was reduced in this step: its last backward() must be outside no_sync()")
        if reductions > 1 and self._fresh_seen:
            raise ValueError(
                f"gradients were reduced {reductions} times in one step: accumulate under no_sync() and reduce once, "
                "at the last backward()"
            )
        ranks = dist.get_world_size(self.group)
        sum_sq = total(squares) / scale**2
        dist.all_reduce(sum_sq, group=self.group)
        pairs = [(parameter, parameter.grad) for parameter in self._parameters if parameter.grad is not None]
        gradients = [gradient for _, gradient in pairs]
        return StepSums(
            sum_sq=sum_sq,
            sq_sum=square_norm(gradients) * (ranks / scale) ** 2,
            param_sq=square_norm(self._parameters),
            param_dot_grad=inner_product([parameter for parameter, _ in pairs], gradients) / scale,
            parts=ranks,
            scaled=scale != 1.0,
        )

    def forget(self) -> None:
        """Drop what was recorded since the last step."""
        self._squares = []
        self._reductions, self._scale = 0, 1.0

    def remove(self) -> None:
        """Stop recording; the communication hook cannot be taken off, and goes on reducing as usual."""
        self._active = False
        self._handle.remove()

    def record(self, bucket: GradBucket) -> None:
        """Keep the square of one bucket; the first bucket of a backward pass starts anew."""
        if not self._active:
            return
        if bucket.index() == 0:
            self._squares, self._reductions = [], self._reductions + 1
        pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
        measured = [gradient for parameter, gradient in pairs if id(parameter) in self._ids]
        if measured:
            self._squares.append(square_norm(measured))

    def _notice(self, gradients: Sequence[Tensor]) -> None:
        # `.grad` is None in the first backward of a step: reductions before it belong to a step nobody closed
        if self._parameters[0].grad is None:
            self._fresh_seen, self._reductions = True, 0


def _record_and_reduce(ranks: Ranks, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    ranks.record(bucket)
    return allreduce_hook(ranks.group, bucket)
