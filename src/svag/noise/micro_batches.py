"""The parts of a step are micro-batches of one process: hooks write down their norms as they pass."""

import weakref
from collections.abc import Sequence

from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.utils.hooks import RemovableHandle

from svag.noise.measured import row_norms, total_square


class MicroBatches:
    """Collects Σ|u_i|² over the micro-batches of a step, whose gradients u_i add up to `.grad`.

    A hook sees each parameter's gradient before it is added to `.grad`: no gradient is copied or kept, only norms. What
    goes elsewhere (torch.autograd.grad) is not seen.
    """

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self._fresh_seen = False
        self._norms: dict[str, Tensor] = {}
        self._twice: set[str] = set()
        self._sum_sq: Tensor | None = None
        self._parts, self._scale = 0, 1.0
        # a parameter does not own the node that accumulates its gradient: it lives as long as we hold it
        self._nodes = {name: get_gradient_edge(parameter).node for name, parameter in parameters.items()}
        self._remove = weakref.finalize(self, _remove_all, [self._listen(name) for name in parameters])

    def micro_batch(self, scale: float) -> None:
        """One micro-batch has been back-propagated, with its loss multiplied by `scale`."""
        # a norm without a gradient is left from an older step, in which other parameters were used
        norms = [norm for name, norm in self._norms.items() if self._parameters[name].grad is not None]
        twice = self._twice
        self._twice, self._norms = set(), {}
        if twice and self._fresh_seen:
            self.forget()
            raise ValueError(
                f"{min(twice)} received two gradients in one micro-batch: call micro_batch() after every backward()"
            )
        if not norms:
            raise ValueError("no gradient arrived since the last micro_batch(): call it after backward()")
        square = total_square(norms) / scale**2
        self._sum_sq = square if self._sum_sq is None else self._sum_sq + square
        self._parts, self._scale = self._parts + 1, scale

    def close(self) -> tuple[Tensor, int, float]:
        """Return Σ|u_i|², the number of parts and the scale that is still in `.grad`, and start the next step."""
        sum_sq, parts, scale, unclosed = self._sum_sq, self._parts, self._scale, bool(self._norms)
        self.forget()
        if parts and unclosed:
            raise ValueError(
                "a gradient arrived after the last micro_batch(): call micro_batch() after every backward()"
            )
        if sum_sq is None or parts < 2:
            raise ValueError(
                f"a step needs at least 2 micro-batches, got {parts}: call micro_batch() after each one's backward()"
            )
        return sum_sq, parts, scale

    def forget(self) -> None:
        """Drop what was recorded since the last step."""
        self._norms, self._twice = {}, set()
        self._sum_sq, self._parts, self._scale = None, 0, 1.0

    def remove(self) -> None:
        """Take the hooks off the parameters."""
        self._remove()

    def _listen(self, name: str) -> RemovableHandle:
        weak = weakref.ref(self)  # a recorder that is dropped takes its hooks along

        def record(gradients: Sequence[Tensor]) -> None:
            recorder = weak()
            if recorder is not None:
                recorder._record(name, gradients[0])

        handle: RemovableHandle = self._nodes[name].register_prehook(record)
        return handle

    def _record(self, name: str, gradient: Tensor) -> None:
        # `.grad` is None in the first backward of a step: what was recorded before belongs to a step nobody closed
        fresh = self._parameters[name].grad is None
        self._fresh_seen |= fresh
        if fresh:
            self._twice.discard(name)
        elif name in self._norms:
            self._twice.add(name)
        self._norms[name] = row_norms(gradient)


def _remove_all(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
