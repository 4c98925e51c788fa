"""A user's own network by import path, and the checks of every network before it is trained."""

import copy
import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from svag.lab.networks.norms import Flags
from svag.lab.specs.fields import LONGEST, cut, shown


def _loaded(path: str) -> Callable[..., object]:
    """Import `package.module:callable`, also from the current folder.

    >>> _loaded("torch.nn:Nonsense")
    Traceback (most recent call last):
    ValueError: torch.nn has no callable 'Nonsense': write package.module:callable
    """
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not name.isidentifier():
        raise ValueError(f"{shown(path)} is not an import path: write package.module:callable")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that it hides nothing; the command line does not have it on its path
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module may fail, or end the program, while it is imported
        raise ValueError(f"cannot import {module_name}: {_sentence(error)}") from error
    build = getattr(module, name, None)
    if not callable(build):
        raise ValueError(f"{module_name} has no callable {name!r}: write package.module:callable")
    made: Callable[..., object] = build
    return made


def build_own_network(path: str, flags: Flags, generator: torch.Generator | None) -> nn.Module:
    """Import a user's callable by its path, and call it with those of the flags that its signature names.

    A flag that was set but that the callable does not take is refused, never ignored. torch's global generator is
    seeded from `generator` for the call and put back afterwards, so that the first weights depend on `generator` only.
    """
    build = _loaded(path)
    parameters = inspect.signature(build).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    offered, default = asdict(flags), asdict(Flags())
    for name in ("norm", "width"):
        if offered[name] != default[name] and name not in parameters and not takes_all:
            raise ValueError(f"{path} takes no argument {name!r}, but {name}={offered[name]!r} was asked for")
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in offered
    ]
    if missing:
        raise ValueError(f"{path} needs {', '.join(missing)}: it can be given {', '.join(offered)} only")
    arguments = {name: value for name, value in offered.items() if name in parameters or takes_all}
    with torch.random.fork_rng(devices=[], enabled=generator is not None):
        if generator is not None:
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        try:
            made = build(**arguments)
        except (Exception, SystemExit) as error:  # whatever a user's code raises becomes one sentence
            raise ValueError(f"{path} failed: {_sentence(error)}") from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"{path} must return a torch.nn.Module, got {type(made).__name__}")
    return made


TOLERANCE = 1e-3
"""How far L(3x) may be from L(x), relative to the spread of the logits, in a network that is declared scale invariant.

Our own networks are exact to rounding; a user's norms with torch's usual eps of 1e-5 pass too."""


def check_network(network: nn.Module, images: Tensor, num_classes: int, *, scale_invariant: bool) -> None:
    """Refuse a network that cannot be trained on `images`, or that is not scale invariant although it is declared so.

    A copy is checked, in training mode: the network, its buffers and torch's generator stay as they are.

    Args:
        network: the network, on the device of the images.
        images: a few training images; at least two, for BatchNorm.
        num_classes: how many logits an image must give.
        scale_invariant: whether the logits must not change when all trainable parameters are multiplied by 3.
    """
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("the network has no trainable parameters: leave requires_grad of at least one at True")
    try:
        logits = _logits(copy.deepcopy(network).train(), images)
    except (Exception, SystemExit) as error:  # a user's forward may fail in any way
        shape = "×".join(map(str, images.shape[1:]))
        raise ValueError(f"the network cannot take images of shape {shape}: {_sentence(error)}") from error
    if not isinstance(logits, Tensor):
        raise ValueError(f"the network must return a tensor of logits, got {type(logits).__name__}")
    if logits.shape != (len(images), num_classes):
        raise ValueError(
            f"the network must return {num_classes} logits for each image, got shape {tuple(logits.shape)} "
            f"for {len(images)} images"
        )
    if not bool(logits.isfinite().all()):
        raise ValueError("the network gives logits that are not finite at its first weights: check its initialisation")
    if scale_invariant and float(logits.std()) == 0:
        raise ValueError(
            f"the network gives the same logits for the first {len(images)} images, so nothing can be said about its "
            "scale invariance: are these images constant?"
        )
    if scale_invariant:
        error_of_scaling = _precise_scaling_error(network, images)
        if not error_of_scaling <= TOLERANCE:
            raise ValueError(
                f"the network is declared scale invariant, but multiplying its weights by 3 moves its logits by "
                f"{error_of_scaling:.1%} of their spread: use norms without affine, no biases and a frozen last layer, "
                "or declare scale_invariant: false"
            )


def _precise_scaling_error(network: nn.Module, images: Tensor) -> float:
    """In double precision, unless the network holds single-precision constants that cannot be converted."""
    try:
        twin, wide = copy.deepcopy(network).double().train(), images.double()
        return scaling_error(twin, wide, _logits(twin, wide))
    except RuntimeError:
        twin = copy.deepcopy(network).train()
        return scaling_error(twin, images, _logits(twin, images))


def scaling_error(network: nn.Module, images: Tensor, logits: Tensor) -> float:
    """Multiply the trainable parameters by 3 in place and return how far the logits move, relative to their spread."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.mul_(3)
    moved = (_logits(network, images) - logits).abs().max()
    return float(moved / logits.std())


def _logits(network: nn.Module, images: Tensor) -> Tensor:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)  # so that dropout drops the same units in both passes
        logits: Tensor = network(images)
    return logits


def _sentence(error: BaseException) -> str:
    """The error of a user's code in one line; the further lines from torch are not useful."""
    return f"{type(error).__name__}: {cut(str(error).strip().partition(chr(10))[0], 3 * LONGEST)}"
