"""Experiments with `--executor ray`, as a user runs them."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.lab.cli.answers import answer, invoke

from svag.paper.cli.app import app


def test_on_ray_the_answer_is_the_one_of_this_machine(base: Path, tmp_path: Path) -> None:
    flags = ["compare", str(base), "--ell", "1", "4", "--seeds", "2", "--workers", "1", "--device", "cpu"]
    here = answer([*flags, "--out", str(tmp_path / "here")])
    there = answer([*flags, "--out", str(tmp_path / "there"), "--executor", "ray"])
    places = {"page", "summary", "figures", "tables"}
    here, there = ({name: one[name] for name in one if name not in places} for one in (here, there))
    assert _without_paths(here) == _without_paths(there)


def test_on_ray_the_runs_of_the_shard_are_announced_in_the_time_of_this_machine(base: Path, tmp_path: Path) -> None:
    flags = ["ngd", str(base), "--seeds", "2", "--out", str(tmp_path / "out"), "--dry-run", "--executor", "ray"]
    whole = answer([*flags, "--address", "auto"])["estimate"]
    assert (whole["runs"], whole["workers"], whole["of"]) == (6, 1, "cores of this machine")
    shards = [answer([*flags, "--shard", f"{part}/2"])["estimate"] for part in (0, 1)]
    assert [one["runs"] for one in shards] != [6, 6]
    assert (sum(one["runs"] for one in shards), sum(one["examples"] for one in shards)) == (6, whole["examples"])
    assert answer([*flags, "--workers", "3"])["estimate"]["workers"] == 3


def test_on_ray_a_dry_run_does_not_fetch_data(tmp_path: Path) -> None:
    flags = ["--size", "paper", "--data-dir", str(tmp_path), "--dry-run", "--executor", "ray", "--shard", "0/6"]
    estimate = answer(["reproduce", "fig:app_svag_c100", *flags])["estimate"]
    assert "cifar100" in estimate["unknown"]


def test_an_address_without_ray_is_refused(base: Path, tmp_path: Path) -> None:
    flags = ["ngd", str(base), "--seeds", "2", "--out", str(tmp_path / "out"), "--dry-run"]
    refused = invoke(app, [*flags, "--address", "auto"])
    assert refused.exit_code == 2
    assert refused.stderr.startswith("Error: --address: ")


def test_without_the_extra_ray_is_refused_before_anything_else(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    refused = invoke(app, ["compare", str(base), "--out", str(tmp_path / "out"), "--executor", "ray"])
    assert refused.exit_code == 2
    assert refused.stderr.endswith("'.[ray]'\n")
    assert not (tmp_path / "out").exists()


def _without_paths(found: Any) -> Any:
    return json.loads(re.sub(r'"(path|seconds|out)": [^,}]*', r'"\1": null', json.dumps(found)))
