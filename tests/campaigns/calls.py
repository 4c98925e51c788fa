"""Hostile calls of the public names: valid arguments, of which one to three are replaced by anything."""

import ast
import inspect
import math
import os
import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.lab.training.small import small
from torch import Tensor, nn

import svag
import svag.lab
import svag.theory

SOURCE = Path(svag.__file__).parent

# An error is one line that a person reads: a path, a short piece of a value, and what to do.
LONGEST = 400


NAMES = sorted({*svag.__all__, *svag.theory.__all__, *svag.lab.__all__})
"""Every public name, whichever package it belongs to; no two packages share one."""


def public(name: str) -> Any:
    """What a public name stands for."""
    return next(getattr(package, name) for package in (svag, svag.theory, svag.lab) if name in package.__all__)


@dataclass(frozen=True)
class Call:
    """A public name and what it is called with."""

    name: str
    arguments: dict[str, Any]
    changed: tuple[str, ...]

    def __call__(self) -> object:
        made = public(self.name)(**self.arguments)
        return next(made, None) if inspect.isgenerator(made) else made

    def __str__(self) -> str:
        given = ", ".join(f"{name}={_short(value)}" for name, value in self.arguments.items())
        return f"svag.{self.name}({given})"


def _short(value: object) -> str:
    try:
        return " ".join(repr(value).split())[:60]
    except Exception as error:
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def trouble(call: Call, error: Exception) -> str:
    """What is wrong with an error, empty if nothing is: it must be one short line that was written on purpose.

    Where an object is wanted (a network, a loader), Python's own line about one of another type says enough.
    """
    sentence = str(error)
    if "\n" in sentence or not sentence:
        return "not one line"
    if isinstance(error, OSError) and error.filename is not None:
        return ""  # the system's own sentence names the file, however long its name is
    if len(sentence) > LONGEST:
        return f"{len(sentence)} characters"
    if isinstance(error, TypeError | AttributeError | RecursionError) and OBJECTS & set(call.changed):
        return ""
    if isinstance(error, RuntimeError) and {"model", "loss_fn", "batch", "batches"} & set(call.changed):
        return ""  # of torch, in the caller's own network
    where = traceback.extract_tb(error.__traceback__)[-1]
    if where.name == Trap.refuse.__name__:
        return ""  # of the caller's own code
    if not Path(where.filename).is_relative_to(SOURCE):
        return f"raised in {where.filename}, line {where.lineno}"
    if where.lineno not in _raises(where.filename):
        return f"not raised on purpose in {Path(where.filename).relative_to(SOURCE)}, line {where.lineno}: {where.line}"
    return ""


# Arguments that are objects with methods, or paths of the system's own kind.
OBJECTS = {
    *("model", "optimizer", "loss_fn", "batch", "batches", "loader", "generator", "generators", "parameters", "check"),
    *("watching", "process_group", "path", "folder", "out", "data_dir", "readings", "formats", "reason"),
}


# Arguments for which Python decides what is true; an array of several values is neither.
SWITCHES = {
    "progress",
    "watching",
    "track_noise",
    "check_finite",
    "allow_shuffle",
    "scale_invariant",
    "ngd",
    "mail",
    "verbose",
}


@cache
def _raises(file: str) -> frozenset[int]:
    """The lines of a source file that belong to a `raise`."""
    found = [node for node in ast.walk(ast.parse(Path(file).read_text())) if isinstance(node, ast.Raise)]
    return frozenset(line for node in found for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


class Trap:
    """Refuses to be a number, to be shown, to be compared and to be gone through."""

    def refuse(self, *_: object) -> Any:
        raise ZeroDivisionError("a trap")

    __float__ = __int__ = __index__ = __len__ = __iter__ = __bool__ = __lt__ = __gt__ = __getitem__ = refuse


def anything(choose: random.Random) -> Any:
    """A value that few arguments want."""
    makers: list[Callable[[], Any]] = [
        lambda: choose.choice([None, True, False, "", " ", [], {}, (), b"x", object(), 1j, {1, 2}, range(3), ...]),
        lambda: choose.choice([0, -1, 1, 2, 3, 7, 10**6, 10**12, 2**63, -(2**63), 10**400, -(10**5000), 2**53 + 1]),
        lambda: choose.choice(
            [0.0, -0.0, 0.5, 1.0, 2.0, 1e-320, 5e-324, 1e-9, 1e9, 1e37, 1e150, 1e300, 1.7e308, -1e300]
        ),
        lambda: choose.choice(
            [math.inf, -math.inf, math.nan, "inf", "nan", "1", "1e999", Fraction(1, 3), Decimal("0.5")]
        ),
        lambda: choose.choice(
            ["\0", "a\0b", "\udcff", "\x1b[31m", "a\nb", "x" * 10**6, "/dev/zero", "/dev/null", "/dev"]
        ),
        lambda: choose.choice(
            [np.ones(3), np.ones((0, 2)), np.array(2), np.array(["x"]), np.float32("nan"), np.int64(4)]
        ),
        lambda: choose.choice(
            [torch.ones(3), torch.zeros(0), torch.tensor(2), torch.tensor(math.nan), torch.ones(2, 2)]
        ),
        lambda: choose.choice(
            [[0] * 10**5, ["x"] * 10**5, [[]], [None], [math.nan], [1, "x"], [0.5, -1], (1, 2), (8, 16)]
        ),
        lambda: choose.choice([{1: []}, {1: [1.0]}, {"x": "y"}, {None: None}, {8: [math.nan] * 3}, {-1: [0.1, 0.2]}]),
        lambda: choose.choice([Trap(), [Trap()], Trap, print, lambda *_: None, math.inf.hex, nn.Linear(1, 1), svag]),
        lambda: choose.choice([nested(50), nested(2_000), itself()]),
        lambda: [anything(choose) for _ in range(choose.randrange(4))],
    ]
    return choose.choice(makers)()


def nested(levels: int) -> list[Any]:
    """A list in a list in a list."""
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


def itself() -> list[Any]:
    """A list that holds itself."""
    made: list[Any] = []
    made.append(made)
    return made


def hostile_calls(seed: int, folder: Path, npz: Path, count: int) -> Iterator[Call]:
    """`count` calls over all public names, each with one to three arguments replaced."""
    choose = random.Random(seed)
    names = NAMES
    for number in range(count):
        name = names[number % len(names)]
        arguments = valid(name, folder / str(number), npz)
        optional = [one for one in inspect.signature(public(name)).parameters if one not in arguments]
        changed = choose.sample([*arguments, *optional], min(choose.randint(1, 3), len(arguments) + len(optional)))
        hostile = {one: anything(choose) for one in changed if one not in _KEPT.get(name, ())}
        for switch in SWITCHES & set(hostile):
            hostile[switch] = choose.choice([None, 0, 2, "", "no", [], [0], {}, 1.5, object()])
        yield Call(name, arguments | hostile, tuple(hostile))


# What would make a call of an experiment or a run long, or write where it should not, though it is valid.
_KEPT = {
    **dict.fromkeys(("compare", "ladder", "ngd"), ("base", "out", "execution", "seeds", "ells", "glsr", "batch_sizes")),
    "run": ("spec", "out", "threads", "data_dir"),
    "append_readings": ("path",),
    "write_report": ("out",),
    "load_records": ("path",),
    "measure_throughput": ("batch_sizes",),
}


def valid(name: str, folder: Path, npz: Path) -> dict[str, Any]:
    """Arguments that the name accepts."""
    return _VALID[name](folder, npz) if name in _VALID else _fields(public(name))


def _fields(kind: type) -> dict[str, Any]:
    """Something for every field of a result: its class takes what it is given."""
    return {one: 1 for one, about in inspect.signature(kind).parameters.items() if about.default is about.empty}


def readings() -> list[svag.Reading]:
    return [svag.Reading(1.0 + step % 3, 9.0 + step % 2, 50.0, 32, 4, step=step, lr=0.1) for step in range(40)]


def _model() -> dict[str, Any]:
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1))
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}


def _loss(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def loss(batch: Tensor) -> Tensor:
        output: Tensor = model(batch)
        return output.square().mean()

    return loss


def _noise(**more: Any) -> dict[str, Any]:
    made = _model()
    return {"model": made["model"], "loss_fn": _loss(made["model"]), **more}


def _reading_file(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    svag.append_readings(folder / "readings.jsonl", readings()[:2])
    return folder / "readings.jsonl"


def _experiment(folder: Path, npz: Path) -> dict[str, Any]:
    execution = svag.lab.Execution(
        workers=1, device="cpu", progress=False, shard=(10**6 - 1, 10**6)
    )  # plans, and runs nothing
    return {"base": small(npz), "out": folder, "execution": execution, "seeds": 1}


_VALID: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "BatchSampler": lambda *_: {"n": 10, "batch_size": 4, "generator": torch.Generator()},
    "Execution": lambda *_: {"workers": 1},
    "GainPlan": lambda *_: {"base_batch_size": 16, "batch_size": 64, "phases": ((0, 2.0), (10, 4.0)), "base_steps": 20},
    "GainRule": lambda *_: {"probe": svag.NoiseProbe(**_model(), batch_size=4), "base_batch_size": 2},
    "NoiseProbe": lambda *_: {**_model(), "batch_size": 4},
    "NoisyGD": lambda *_: {**_model(), "batch_size": 4, "dataset_size": 10, "generator": torch.Generator()},
    "Reading": lambda *_: readings()[0].to_dict(),
    "RunSpec": lambda _, npz: small(npz).to_dict(),
    "SVAG": lambda *_: {**_model(), "ell": 4},
    "append_readings": lambda folder, _: {"path": _reading_file(folder), "readings": readings()[:2]},
    "build_model": lambda *_: {"arch": "mlp", "norm": "layer", "width": 0.03125, "image_size": (4, 4)},
    "compare": lambda folder, npz: {**_experiment(folder, npz), "ells": (1, 2), "margin": 0.1},
    "critical_batch_size": lambda *_: {"batch_size": 32, "noise_to_signal": 5.0},
    "distortion": lambda *_: {"kappa": 4, "noise_to_signal": 5.0},
    "gain": lambda *_: {"noise_to_signal": 5.0, "kappa": 4},
    "gain_scaling": lambda *_: {"noise_to_signal": 5.0, "kappa": 4, "lr": 0.1, "batch_size": 32},
    "independent_pairs": lambda *_: {"loader": [torch.ones(2, 3), torch.ones(2, 3)]},
    "ladder": lambda folder, npz: {**_experiment(folder, npz), "batch_sizes": (8, 16)},
    "large_run_refutes": lambda *_: {"noise_to_signal": 5.0, "kappa": 4},
    "linear_scaling": lambda *_: {"kappa": 4, "lr": 0.1, "batch_size": 32},
    "load_readings": lambda folder, _: {"path": _reading_file(folder)},
    "load_records": lambda *_: {"path": os.devnull},
    "max_kappa": lambda *_: {"noise_to_signal": 5.0},
    "measure_noise": lambda *_: _noise(batches=[torch.ones(4, 3), torch.zeros(4, 3)]),
    "measure_throughput": lambda *_: {
        **(m := _model()),
        "loss_fn": _loss(m["model"]),
        "batch": torch.ones(4, 3),
        "batch_sizes": [1],
    },
    "ngd": _experiment,
    "price_list": lambda *_: {"readings": readings()},
    "run": lambda folder, npz: {"spec": small(npz, {"budget": 2}), "out": folder, "device": "cpu", "progress": False},
    "scale_invariance_error": lambda *_: _noise(batch=torch.ones(4, 3)),
    "scaling_verdict": lambda *_: {"errors_by_batch": {8: [0.1, 0.2, 0.15], 16: [0.2, 0.25, 0.3]}, "resamples": 10},
    "sde_verdict": lambda *_: {"finals_by_ell": {1: [0.5, 0.6, 0.7], 4: [0.5, 0.55, 0.6]}, "margin": 0.1},
    "sgd_refutes_sde": lambda *_: {"noise_to_signal": 0.5},
    "square_root_scaling": lambda *_: {"kappa": 2, "lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1},
    "svag_weights": lambda *_: {"ell": 4},
    "write_report": lambda folder, _: {"folder": folder, "out": folder},
}
