"""Killed with SIGKILL at any moment, a run resumes and ends bit for bit as if it had never been killed."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.lab.training.small import small, write_npz

from svag.lab.specs.fields import SpecError

ROOT = Path(__file__).parents[3]
CONV = {"model": {"arch": "preresnet8", "norm": "group", "width": 0.25}}
BATCH_NORM = {"model": {"arch": "preresnet8", "norm": "batch", "width": 0.25, "scale_invariant": True}}
AUGMENTED = {"data.augment": {"pad": 1, "flip": True}}
TEXT = {
    "data": {"name": "moby-dick", "context": 256, "subset": 64},
    "model": {"arch": "transformer", "depth": 1, "width": 8, "heads": 2},
    "optimizer": {"kind": "adamw"},
}
SURE = {"training", "writing"}
FROZEN = {"probe": {"kind": "frozen", "readings": 4, "window": [0, 10], "batches": 3}}


def verdicts(tmp_path: Path, trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    order = json.dumps({"work": str(tmp_path), "trials": trials})
    done = subprocess.run(
        [sys.executable, "-m", "tests.lab.training.killing"],
        input=order,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def order(npz: Path, edits: dict[str, Any], kills: list[tuple[str, int]], save_seconds: float = 0) -> dict[str, Any]:
    return {"spec": small(npz, edits).to_dict(), "kills": kills, "save_seconds": save_seconds}


def test_a_few_kills_at_each_kind_of_moment(tmp_path: Path) -> None:
    npz = write_npz(tmp_path / "data.npz")
    trials = [
        order(npz, CONV | AUGMENTED, [("training", 6), ("evaluation", 2)]),
        order(npz, BATCH_NORM | {"probe": {"kind": "in_run", "parts": 2}}, [("probing", 5), ("saving", 3)]),
        # at the comparison of parts, right after it, and between its readings
        order(npz, BATCH_NORM | {"probe": {"kind": "in_run", "parts": 2, "window": [3, 9]}},
              [("comparing", 1), ("probing", 1), ("probing", 4)]),
        order(npz, FROZEN | {"process": {"kind": "svag", "ell": 2}, "momentum": 0.5,
              "process.momentum_limit": "underdamped"}, [("probing", 3), ("writing", 4)]),
        order(npz, {"process": {"kind": "svag", "ell": 3, "split": 2}, "probe": {"kind": "in_run", "every": 2},
              "sampling": "shuffle"}, [("saving", 4), ("training", 20)]),
        order(npz, {"process": {"kind": "sde", "refine": 2}}, [("training", 7), ("training", 9)]),
        order(npz, {"model": {"arch": "tests.lab.training.dropout_net:build"}, "sampling": "shuffle", "momentum": 0.9},
              [("training", 5), ("evaluation", 2)]),
        order(npz, {"process": {"kind": "glsr", "parts": 4}} | BATCH_NORM, [("saving", 1), ("evaluation", 3)]),
        order(npz, {"optimizer": {"kind": "rmsprop"}, "lr": 0.01} | CONV, [("training", 4), ("saving", 3)]),
        order(npz, TEXT | {"process": {"kind": "svag", "ell": 2}, "probe": {"kind": "in_run"}},
              [("training", 5), ("writing", 4)]),
        order(npz, {}, [("training", 7)], save_seconds=1000),  # killed before its first checkpoint
    ]  # fmt: skip
    for number, verdict in enumerate(verdicts(tmp_path, trials)):
        assert verdict == {"killed": [True] * len(trials[number]["kills"]), "same": True, "state": "finished"}, number


def test_the_comparison_notices_a_run_that_is_not_the_same(tmp_path: Path) -> None:
    """The negative control: resumed without its generators, a run must not pass."""
    npz = write_npz(tmp_path / "data.npz")
    code = (
        "from svag.lab.training.streams import BatchStream\n"
        "BatchStream.load_state_dict = lambda self, state: None\n"
        "from tests.lab.training.killing import main\nmain()"
    )
    asked = json.dumps({"work": str(tmp_path), "trials": [order(npz, {}, [("training", 6)])]})
    done = subprocess.run(
        [sys.executable, "-c", code], input=asked, capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert json.loads(done.stdout) == [{"killed": [True], "same": False, "state": "finished"}], done.stderr[-2000:]


def random_trial(npz: Path, seed: int) -> dict[str, Any]:
    """A process, a sampling, a norm, a probe, with or without augmentation, and one to three kills."""
    choose = random.Random(seed)
    processes: list[dict[str, Any]] = [
        {"kind": "sgd"}, {"kind": "svag", "ell": 2}, {"kind": "svag", "ell": 4, "split": 2}, {"kind": "svag", "ell": 1},
        {"kind": "glsr", "parts": 2}, {"kind": "ngd"}, {"kind": "gd"}, {"kind": "sde", "refine": 2},
    ]  # fmt: skip
    while True:
        edits: dict[str, Any] = {
            "process": processes[seed % len(processes)],
            "model": {
                "arch": choose.choice(["preresnet8", "resnet8", "mlp", "tests.lab.training.dropout_net:build"]),
                "norm": choose.choice(["batch", "group", "layer", "none"]),
                "width": 0.25,
            },
            "sampling": choose.choice(["without_replacement", "with_replacement", "shuffle"]),
            "data.augment": choose.choice([False, {"pad": 1, "flip": True}]),
            "probe": choose.choice(["none", {"kind": "in_run", "parts": 2, "window": [2, 9]}, FROZEN["probe"]]),
            "momentum": choose.choice([0.0, 0.0, 0.9]),
            "seed": seed,
        }
        own = ":" in edits["model"]["arch"]
        if own:
            edits["model"] = {"arch": edits["model"]["arch"]}
        if own and (edits["process"]["kind"] in {"ngd", "gd", "sde"} or edits["process"].get("split", 1) > 1):
            continue
        events = ["training", "evaluation", "saving", "writing", "moment", "moment"]
        kills = [(choose.choice(events), choose.randint(1, 6)) for _ in range(choose.randint(1, 3))]
        try:
            return order(npz, edits, kills, save_seconds=choose.choice([0, 0, 0.05]))
        except SpecError:
            continue


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_fifty_random_kills_over_all_processes_samplings_norms_and_augmentation(tmp_path: Path, half: int) -> None:
    npz = write_npz(tmp_path / "data.npz")
    trials = [random_trial(npz, seed) for seed in range(half, 50, 2)]
    found = verdicts(tmp_path, trials)
    assert [verdict["same"] for verdict in found] == [True] * 25
    assert {verdict["state"] for verdict in found} == {"finished"}
    # a random moment may come after the end, and saving every .05 s depends on the clock; but every run trains and
    # writes six times, so a first kill there always strikes
    sure = [verdict["killed"][0] for one, verdict in zip(trials, found, strict=True) if one["kills"][0][0] in SURE]
    assert len(sure) >= 4
    assert all(sure)
