"""The parts of a step are micro-batches of one process: hooks write down their norms as they pass."""

import weakref

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from svag.noise.measured import row_norms, total_square
from svag.noise.undisturbed import probes_listen


class MicroBatches:
    """Collects Σ|u_i|² over the micro-batches of a step, whose gradients u_i add up to `.grad`.

    A hook sees each parameter's gradient before it is added to `.grad`: no gradient is copied or kept, only norms.
    """

    def __init__(self, parameters: dict[str, nn.Parameter]) -> None:
        self._fresh_seen = False
        self._norms: dict[str, Tensor] = {}
        self._twice = ""
        self._sum_sq: Tensor | None = None
        self._parts, self._scale = 0, 1.0
        handles = [self._listen(name, parameter) for name, parameter in parameters.items()]
        self._remove = weakref.finalize(self, _remove_all, handles)

    def micro_batch(self, scale: float) -> None:
        """One micro-batch has been back-propagated, with its loss multiplied by `scale`."""
        twice, norms = self._twice, self._norms
        self._twice, self._norms = "", {}
        if twice and self._fresh_seen:
            self.forget()
            raise ValueError(
                f"{twice} received two gradients in one micro-batch: call micro_batch() after every backward()"
            )
        if not norms:
            raise ValueError("no gradient arrived since the last micro_batch(): call it after backward()")
        square = total_square(list(norms.values())) / scale**2
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
        self._norms, self._twice = {}, ""
        self._sum_sq, self._parts, self._scale = None, 0, 1.0

    def remove(self) -> None:
        """Take the hooks off the parameters."""
        self._remove()

    def _listen(self, name: str, parameter: nn.Parameter) -> RemovableHandle:
        weak = weakref.ref(self)  # a recorder that is dropped takes its hooks along

        def record(gradient: Tensor) -> None:
            recorder = weak()
            if recorder is not None and probes_listen():
                recorder._record(name, gradient, fresh=parameter.grad is None)

        handle: RemovableHandle = parameter.register_hook(record)
        return handle

    def _record(self, name: str, gradient: Tensor, fresh: bool) -> None:
        # `.grad` is None in the first backward of a step: what was recorded before belongs to a step nobody closed
        self._fresh_seen |= fresh
        if name in self._norms and not fresh:
            self._twice = name
        self._norms[name] = row_norms(gradient)


def _remove_all(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
