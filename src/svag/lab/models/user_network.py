"""A user's own network by import path, `package.module:callable`: found and built."""

import importlib
import inspect
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

from svag.lab.models.norms import Norm


@dataclass(frozen=True)
class Flags:
    """What a network may be asked for; the defaults are those of `build_model`."""

    norm: Norm = "batch"
    width: float = 1
    in_channels: int = 3
    num_classes: int = 10
    scale_invariant: bool = True
    image_size: tuple[int, int] = (32, 32)


@dataclass(frozen=True)
class UserNetwork:
    """A callable that makes a network, and its import path."""

    path: str
    build: Callable[..., object]


def load_user_network(path: str) -> UserNetwork:
    """Import `package.module:callable`, also from the current folder.

    >>> load_user_network("torch.nn:Nonsense")
    Traceback (most recent call last):
    ValueError: torch.nn has no callable 'Nonsense': write package.module:callable
    """
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or not name.isidentifier():
        raise ValueError(f"{path!r} is not an import path: write package.module:callable")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that it hides nothing; the command line does not look there by itself
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may fail in any way while it is imported
        raise ValueError(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    build = getattr(module, name, None)
    if not callable(build):
        raise ValueError(f"{module_name} has no callable {name!r}: write package.module:callable")
    return UserNetwork(path, build)


def build_user_network(network: UserNetwork, flags: Flags, generator: torch.Generator | None) -> nn.Module:
    """Call a user's callable with those of the flags that its signature names.

    A flag that was set and that the callable does not take is refused, never swallowed. torch's global generator is
    seeded from `generator` for the call and put back afterwards, so that the first weights depend on `generator` only.
    """
    parameters = inspect.signature(network.build).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    offered, default = asdict(flags), asdict(Flags())
    for name in ("norm", "width"):
        if offered[name] != default[name] and name not in parameters and not takes_all:
            raise ValueError(f"{network.path} takes no argument {name!r}, but {name}={offered[name]!r} was asked for")
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in offered
    ]
    if missing:
        raise ValueError(f"{network.path} needs {', '.join(missing)}: it can be given {', '.join(offered)} only")
    arguments = {name: value for name, value in offered.items() if name in parameters or takes_all}
    with torch.random.fork_rng(devices=[], enabled=generator is not None):
        if generator is not None:
            torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        try:
            made = network.build(**arguments)
        except Exception as error:  # whatever a user's code raises becomes one sentence
            raise ValueError(f"{network.path} failed: {type(error).__name__}: {error}") from error
    if not isinstance(made, nn.Module):
        raise ValueError(f"{network.path} must return a torch.nn.Module, got {type(made).__name__}")
    return made
