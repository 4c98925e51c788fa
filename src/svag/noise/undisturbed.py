"""Measuring without leaving a trace: buffers, modes and generators are as they were, whatever happens."""

import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@contextmanager
def undisturbed(model: nn.Module, generators: Iterable[torch.Generator] = ()) -> Iterator[None]:
    """Keep what a forward pass changes: buffers (BatchNorm), train/eval modes, global and given generators.

    Gradients are recorded inside even when the caller switched them off. A data-parallel model does not synchronise.
    """
    devices = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    states = [(generator, generator.get_state()) for generator in generators]
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002  # the user's augmentation uses it
    modes = [(module, module.training) for module in model.modules()]
    with ExitStack() as stack:
        stack.callback(put_back, snapshot(model))
        stack.enter_context(torch.random.fork_rng(devices=devices))
        stack.enter_context(torch.enable_grad())
        if isinstance(model, DistributedDataParallel):
            stack.enter_context(_alone(model))
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002
            for generator, state in states:
                generator.set_state(state)
            for module, training in modes:
                module.training = training


@contextmanager
def buffers_kept_on_error(model: nn.Module) -> Iterator[None]:
    """Put back the buffers of `model` only if something goes wrong."""
    kept = snapshot(model)
    try:
        yield
    except BaseException:
        put_back(kept)
        raise


@contextmanager
def _alone(model: DistributedDataParallel) -> Iterator[None]:
    """Suspend communication between ranks: of gradients, and of the buffers that rank 0 sends before a forward pass.

    A forward pass under no_sync() also tells the next one not to send them, which would outlast this block.
    """
    sends = model.require_forward_param_sync
    model.require_forward_param_sync = False
    try:
        with model.no_sync():
            yield
    finally:
        model.require_forward_param_sync = sends


def snapshot(model: nn.Module) -> list[tuple[nn.Module, str, Tensor, Tensor]]:
    """Copies of all buffers, and where they belong."""
    return [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()  # named_buffers() takes twice as long, in every sub-step of SVAG
        if buffer is not None
    ]


def put_back(kept: list[tuple[nn.Module, str, Tensor, Tensor]]) -> None:
    """Restore the buffers of a snapshot, also those that a forward pass has replaced by new tensors."""
    with torch.no_grad():
        for module, name, buffer, content in kept:
            buffer.copy_(content)
            setattr(module, name, buffer)
