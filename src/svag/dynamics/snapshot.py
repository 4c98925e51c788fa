"""What a step may change, kept so that a refused step changes nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


class Undo:
    """Puts a model and its optimizer back when a step does not come to its end."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._with_buffers = [module for module in model.modules() if any(True for _ in module.buffers(recurse=False))]

    @contextmanager
    def on_error(self, *, weights: bool) -> Iterator[None]:
        """Restore the buffers after any error, and the weights and the optimizer's state too if `weights`.

        A single update needs no copy of the weights: it is refused before it touches them. Several do.
        """
        buffers = [buffer.clone() for buffer in self._buffers()]
        parameters = [p.detach().clone() for p in self._parameters()] if weights else []
        state = {p: _copy(kept) for p, kept in self._optimizer.state.items()} if weights else {}
        try:
            yield
        except BaseException:
            with torch.no_grad():
                for live, kept in zip(self._buffers(), buffers, strict=True):
                    live.copy_(kept)
                if weights:
                    for live, kept in zip(self._parameters(), parameters, strict=True):
                        live.copy_(kept)
                    self._optimizer.state.clear()
                    self._optimizer.state.update(state)
            self._optimizer.zero_grad()
            raise

    def _buffers(self) -> Iterator[Tensor]:
        return (buffer for module in self._with_buffers for buffer in module.buffers(recurse=False))

    def _parameters(self) -> Iterator[Tensor]:
        return (p for group in self._optimizer.param_groups for p in group["params"])


def _copy(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value.clone() if isinstance(value, Tensor) else value for key, value in state.items()}
