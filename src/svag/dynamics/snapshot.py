"""What a step may change, kept so that a refused step changes nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from svag.noise.undisturbed import buffers_kept_on_error


@contextmanager
def unchanged_on_error(model: nn.Module, optimizer: Optimizer, *, weights: bool) -> Iterator[None]:
    """Restore the model's buffers after any error, and the weights and the optimizer's state too if `weights`.

    A single update needs no copy of the weights: it is refused before it touches them. Several do.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]] if weights else []
    kept = [p.detach().clone() for p in parameters]
    state = {p: _copy(mine) for p, mine in optimizer.state.items()} if weights else {}
    try:
        with buffers_kept_on_error(model):
            yield
    except BaseException:
        if weights:
            with torch.no_grad():
                for parameter, content in zip(parameters, kept, strict=True):
                    parameter.copy_(content)
            optimizer.state.clear()
            optimizer.state.update(state)
        optimizer.zero_grad()
        raise


def _copy(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value.clone() if isinstance(value, Tensor) else value for key, value in state.items()}
