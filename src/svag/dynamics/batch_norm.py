"""How fast running statistics move (BatchNorm) when one step of SGD becomes many.

One SGD step updates the running statistics once; one effective step of SVAG does so 2l times (l times when only one
batch is evaluated). Their momentum is refined so that they remember the same stretch of time.
"""

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from svag.theory.refinement import refined_average


class RunningStatistics:
    """The momentum of all running statistics, refined while a context is open."""

    def __init__(self, model: nn.Module, updates: int) -> None:
        self._layers = [
            module
            for module in model.modules()
            if isinstance(module, _NormBase) and module.momentum is not None and module.running_mean is not None
        ]
        self._updates = updates
        self._own: list[float | None] = []

    def refine(self) -> None:
        """μ → 1 − (1 − μ)^(1/updates). A cumulative average (momentum None) has no time scale and stays."""
        self._own = [layer.momentum for layer in self._layers]
        for layer in self._layers:
            if layer.momentum is not None:
                layer.momentum = refined_average(layer.momentum, self._updates)

    def restore(self) -> None:
        """Give every layer its own momentum back, bit for bit."""
        for layer, momentum in zip(self._layers, self._own, strict=True):
            layer.momentum = momentum
