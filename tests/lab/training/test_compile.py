"""`compile: true`: every process and probe through a compiled network, with the numbers of the plain run.

Tracing and its own backward pass are torch.compile's; what they yield is run without a C++ compiler, which not every
machine has.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import go, interrupted, same_bits, small, weights
from torch import Tensor, nn

RESNET = {"arch": "preresnet8", "norm": "group", "width": 0.25, "scale_invariant": True}
BATCH_NORM = RESNET | {"norm": "batch"}
RUNS: dict[str, dict[str, Any]] = {
    "probed": {"model": RESNET, "probe": {"kind": "in_run", "parts": 2}},
    "frozen": {"model": BATCH_NORM, "probe": {"kind": "frozen", "readings": 2, "batches": 4}},
    "svag": {"model": BATCH_NORM, "process": {"kind": "svag", "ell": 2}},
    "split": {"process": {"kind": "svag", "ell": 2, "split": 2}},
    "adam": {"process": {"kind": "svag", "ell": 2}, "optimizer": {"kind": "adam"}, "lr": 0.01},
    "ngd": {"process": {"kind": "ngd"}, "budget": 4},
}


@pytest.fixture(autouse=True)
def traced(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Which networks were compiled."""
    found: list[nn.Module] = []
    without_inductor = partial(torch.compile, backend="aot_eager")

    def compile_(model: nn.Module, **settings: Any) -> Any:
        found.append(model)
        return without_inductor(model, **settings)

    monkeypatch.setattr(torch, "compile", compile_)
    return found


def close(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(
        torch.allclose(one[name], other[name], rtol=1e-3, atol=1e-5) for name in one
    )


@pytest.mark.parametrize("name", RUNS)
def test_a_compiled_run_is_the_plain_one_up_to_rounding(
    npz: Path, tmp_path: Path, traced: list[nn.Module], name: str
) -> None:
    plain = small(npz, RUNS[name])
    runs = {"plain": plain, "compiled": plain.edited({"compile": True}), "other": plain.edited({"lr": 0.2})}
    records = {kind: go(spec, tmp_path / kind) for kind, spec in runs.items()}
    assert len(traced) == 1
    assert close(weights(tmp_path / "plain"), weights(tmp_path / "compiled"))
    assert not close(weights(tmp_path / "plain"), weights(tmp_path / "other")), "the negative control"
    mine, theirs = (records[kind].readings for kind in ("plain", "compiled"))
    assert len(mine) == len(theirs)
    assert [one.noise_trace for one in theirs] == pytest.approx([one.noise_trace for one in mine], rel=1e-3)


def test_a_compiled_run_is_continued_bit_for_bit(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = small(npz, {"model": BATCH_NORM, "compile": True, "probe": {"kind": "in_run", "parts": 2, "every": 3}})
    go(spec, tmp_path / "straight")
    interrupted(spec, tmp_path / "run", monkeypatch)
    go(spec, tmp_path / "run")
    assert same_bits(tmp_path / "run", tmp_path / "straight")
