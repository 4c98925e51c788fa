"""Run directories with known answers, written by hand: no training."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from svag.lab.records.identity import identity
from svag.lab.specs.spec import RunSpec
from svag.noise.reading import Reading, row_of

BASE = RunSpec.from_dict(
    {
        "data": {"name": "fashion-small"},
        "model": {"arch": "preresnet8", "norm": "group", "width": 0.5, "scale_invariant": True},
        "batch_size": 32,
        "lr": 0.1,
        "weight_decay": 1e-3,
        "schedule": {"kind": "steps", "at": [0.8], "factor": 0.1},
        "budget": {"epochs": 60},
    }
)


TEXT = RunSpec.from_dict(
    {
        "data": {"name": "moby-dick", "context": 16},
        "model": {"arch": "transformer", "depth": 1, "width": 8, "heads": 1},
        "optimizer": {"kind": "adamw", "betas": [0.98, 0.99]},
        "batch_size": 16,
        "lr": 0.001,
        "weight_decay": 0.1,
        "budget": 4000,
    }
)


def at(batch_size: int, **edits: Any) -> RunSpec:
    """The base spec at another batch size, by the linear rule."""
    return BASE.edited({"batch_size": batch_size, "lr": 0.1 * batch_size / 32, **edits})


def write_run(
    root: Path,
    spec: RunSpec,
    final: float | None = None,
    *,
    curve: Mapping[int, float] | None = None,
    losses: Mapping[int, float] | None = None,
    readings: Sequence[Reading] = (),
    state: str | None = "finished",
) -> Path:
    """A run directory: last test accuracy `final`, training loss by step `losses`; interrupted if `state` is None.

    Of a text, `final` and `curve` are bits per character.
    """
    folder = root / identity(spec)[:12]
    folder.mkdir(parents=True)
    header = {"spec": spec.to_dict(), "identity": identity(spec), "steps": spec.steps()}
    (folder / "spec.json").write_text(json.dumps(header))
    points = {0: 0.1, **(curve or {}), **({} if final is None else {spec.steps(): final})}
    loss_at = losses or {}
    rows = [
        {
            "kind": "evaluation",
            "step": step,
            "test_accuracy": value,
            "test_loss": None if value is None else 1 - value,
            "train_loss": loss_at.get(step),
            **({"train_set_accuracy": value} if spec.evaluate.train else {}),
            **({"test_bits_per_character": value, "test_loss": _nats(value)} if spec.data.name == "moby-dick" else {}),
        }
        for step, value in sorted({**dict.fromkeys(loss_at), **points}.items())
    ]
    lines = [*rows, *(row_of(reading) for reading in readings)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if state is not None:
        (folder / "outcome.json").write_text(json.dumps({"state": state, "reason": "" if state == "finished" else "x"}))
    return folder


def _nats(bits: float | None) -> float | None:
    return None if bits is None else bits * math.log(2)


# 2 × 2 values around each mean in a fixed random order: averages are exact, blocks differ
PATTERN = [(0.9, 0.9), (0.9, 1.1), (1.1, 0.9), (1.1, 1.1)]
T = TypeVar("T")


def given(value: T | None) -> T:
    """A value that has to be there."""
    assert value is not None
    return value


def readings_at(
    spec: RunSpec, grad_sq: float, noise_trace: float, *, ell: int = 1, growth: float = 1.0, count: int = 400
) -> list[Reading]:
    """Readings with these averages from half to 80% of a run, of weights whose growth is `growth` times their decay."""
    start, span = spec.steps() / 2, 0.3 * spec.steps()
    eta, decay = spec.lr, spec.weight_decay
    step = eta / ell
    param_sq = (step * grad_sq + eta * noise_trace) / ((2 - step * decay) * decay) / growth
    return [
        Reading(
            grad_sq * g, noise_trace * n, param_sq, spec.batch_size, 4,
            step=int(start + span * number / count), lr=eta, weight_decay=decay, momentum=0.0, optimizer="SGD", ell=ell,
        )
        for number, (g, n) in enumerate(np.random.default_rng(0).permutation(PATTERN * (count // 4)).tolist())
    ]  # fmt: skip
