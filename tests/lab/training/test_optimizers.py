"""Every kind of optimizer: the lab steps torch's own, and an interrupted run ends as if it had not been."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import fresh, go, interrupted, same_bits, small, weights

from svag.lab.records.record import read_record
from svag.lab.specs.fields import SpecError
from svag.lab.training.streams import BatchStream

KINDS: dict[str, dict[str, Any]] = {
    "sgd": {"momentum": 0.9},
    "adam": {"betas": [0.8, 0.95], "eps": 1e-6},
    "adamw": {"betas": [0.8, 0.95], "eps": 1e-6},
    "rmsprop": {"alpha": 0.9, "eps": 1e-6},
}
TORCH: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=0.01, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.01, betas=(0.8, 0.95), eps=1e-6, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.01, betas=(0.8, 0.95), eps=1e-6, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, weight_decay=0.01, alpha=0.9, eps=1e-6, foreach=True),
}
IN_RUN = {"probe": {"kind": "in_run", "parts": 4}}
TEXT = {
    "data": {"name": "moby-dick", "context": 256, "subset": 64},
    "model": {"arch": "transformer", "depth": 1, "width": 8, "heads": 2},
}


def with_kind(kind: str) -> dict[str, Any]:
    return {"optimizer": {"kind": kind, **KINDS[kind]}, "lr": 0.01, "schedule": {"kind": "constant"}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_the_optimizer_of_torch_bit_for_bit(npz: Path, tmp_path: Path, kind: str) -> None:
    spec = small(npz, with_kind(kind))
    go(spec, tmp_path)
    bare = fresh(spec)
    optimizer, batches = TORCH[kind](bare.model.parameters()), BatchStream(bare.data, spec, "batches", 8)
    for _ in range(10):
        optimizer.zero_grad()
        bare.loss(batches.draw()).backward()
        optimizer.step()
    found = weights(tmp_path)
    assert all(torch.equal(found[name], mine) for name, mine in bare.model.state_dict().items())


@pytest.mark.parametrize("edits", [IN_RUN, TEXT | IN_RUN], ids=["images", "text"])
@pytest.mark.parametrize("kind", KINDS)
def test_resumed_runs_end_the_same(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, edits: dict[str, Any]
) -> None:
    spec = small(npz, edits | with_kind(kind))
    interrupted(spec, tmp_path / "run", monkeypatch)
    assert go(spec, tmp_path / "run").state == "finished"
    go(spec, tmp_path / "straight")
    assert same_bits(tmp_path / "run", tmp_path / "straight")
    go(spec.edited({"lr": 0.011}), tmp_path / "other")
    assert not same_bits(tmp_path / "other", tmp_path / "straight")


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_svag_around_adam(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    spec = small(npz, IN_RUN | with_kind(kind))
    go(spec, tmp_path / "plain")
    go(spec.edited({"process": {"kind": "svag", "ell": 1}}), tmp_path / "one")
    assert same_bits(tmp_path / "plain", tmp_path / "one")
    fine = spec.edited({"process": {"kind": "svag", "ell": 2}})
    interrupted(fine, tmp_path / "two", monkeypatch)
    go(fine, tmp_path / "two")
    go(fine, tmp_path / "straight")
    assert same_bits(tmp_path / "two", tmp_path / "straight")
    assert not same_bits(tmp_path / "two", tmp_path / "plain")


def test_readings_hold_the_second_moment_and_no_balance(npz: Path, tmp_path: Path) -> None:
    record = go(small(npz, IN_RUN | with_kind("adamw")), tmp_path)
    assert [reading.second_moment is not None for reading in record.readings] == [False, *[True] * 9]
    assert {reading.optimizer for reading in record.readings} == {"AdamW"}
    last = read_record(tmp_path).readings[-1]
    assert (last.betas, last.eps, last.weight_decay) == ((0.8, 0.95), 1e-6, 0.01)
    assert record.final["noise"]["balance"] is None


@pytest.mark.parametrize(
    ("edits", "path"),
    [
        ({"process": {"kind": "ngd"}}, "process.kind"),
        ({"process": {"kind": "gd"}}, "process.kind"),
        ({"process": {"kind": "sde", "refine": 2}}, "process.kind"),
        ({"process": {"kind": "glsr", "parts": 2}}, "process.kind"),
        ({"process": {"kind": "svag", "ell": 4, "split": 2}}, "process.split"),
        ({"process": {"kind": "svag", "ell": 4, "momentum_limit": "overdamped"}}, "process.momentum_limit"),
    ],
)
@pytest.mark.parametrize("kind", ["adam", "adamw", "rmsprop"])
def test_what_exists_for_sgd_only_says_so(npz: Path, kind: str, edits: dict[str, Any], path: str) -> None:
    with pytest.raises(SpecError, match="SGD") as refused:
        small(npz, with_kind(kind) | edits)
    assert refused.value.path == path
    small(npz, edits | {"optimizer": {"momentum": 0.9 if "limit" in path else 0.0}})


def test_a_cold_rmsprop_has_no_svag(npz: Path) -> None:
    edits = with_kind("rmsprop") | {"process": {"kind": "svag", "ell": 4}}
    with pytest.raises(SpecError, match=r"^optimizer\.kind:"):
        small(npz, edits)
    small(npz, edits | {"optimizer": {"kind": "adam", "betas": [0, 0.9]}})
