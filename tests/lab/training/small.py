"""A small problem of one's own: an npz of 10 blurred classes, and specs that train on it in a blink."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import svag
import svag.lab
from svag.lab.data.load import load_data
from svag.lab.specs.spec import RunSpec
from svag.lab.training import loop
from svag.lab.training.loop import Loop
from svag.lab.training.run import run
from svag.lab.training.training import prepare

EXAMPLES = 64


def write_npz(path: Path, seed: int = 0, pixels: int = 6) -> Path:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, pixels, pixels))
    arrays: dict[str, Any] = {}
    for part, count in (("train", EXAMPLES), ("test", 40)):
        labels = rng.integers(0, 4, count)
        arrays[f"{part}_x"] = (centres[labels] + rng.normal(size=(count, pixels, pixels))).astype(np.float32)
        arrays[f"{part}_y"] = labels
    np.savez(path, **arrays)
    return path


def small(npz: Path, edits: dict[str, Any] | None = None) -> RunSpec:
    """Ten effective steps of SGD on a tiny residual network."""
    spec = RunSpec.from_dict(
        {
            "data": {"name": "npz", "path": str(npz)},
            "model": {"arch": "mlp", "norm": "layer", "width": 0.03125},
            "batch_size": 8,
            "lr": 0.1,
            "weight_decay": 0.01,
            "schedule": {"kind": "steps", "at": [0.5]},
            "budget": 10,
            "evaluate": {"every": 4},
        }
    )
    return spec.edited(edits or {})


def go(spec: RunSpec, folder: Path) -> svag.lab.RunRecord:
    return run(spec, folder, device="cpu", progress=False)


def interrupted(spec: RunSpec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop a run in its sixth step, right after the checkpoint of the fifth."""
    take = Loop._take_step

    def stop(self: Loop) -> None:
        if self._run.progress.step == 5:
            raise KeyboardInterrupt
        take(self)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Loop, "_take_step", stop)
        with pytest.raises(KeyboardInterrupt):
            run(spec, folder, device="cpu", progress=False, save_seconds=0)


def final(spec: RunSpec, folder: Path) -> list[torch.Tensor]:
    assert go(spec, folder).state == "finished"
    return list(weights(folder).values())


def fresh(spec: RunSpec) -> Any:
    """What a bare loop starts from."""
    return prepare(spec, load_data("npz", path=spec.data.path))


def weights(folder: Path) -> dict[str, Tensor]:
    """The final weights and buffers of a run."""
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    model: dict[str, Tensor] = state["model"]
    return model


def same_bits(one: Path, other: Path) -> bool:
    """Whether two runs left the same metrics and the same weights, bit for bit."""
    mine, theirs = weights(one), weights(other)
    return (
        (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
        and mine.keys() == theirs.keys()
        and all(torch.equal(mine[name], theirs[name]) for name in mine)
    )
