"""Damaged runs, and runs of hostile names: `list`, `predict` and `report` go on with the healthy ones, and name them.

Two hundred folders with one damaged run, and two hundred runs of hostile names, half of them damaged; `run` refuses
those, or continues.
"""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.campaigns.calls import LONGEST
from tests.lab.specs.damage import copied, damaged, enlarged, hostile_name
from tests.lab.specs.fuzz import answers_within
from tests.lab.training.small import go, small
from typer.testing import CliRunner

from svag.lab.cli.errors import exit_code
from svag.lab.execution.plan import plan_runs
from svag.lab.experiments import save_experiment
from svag.lab.experiments.ladder import Ladder
from svag.lab.report.write import write_report
from svag.lab.specs.spec import RunSpec
from svag.paper.cli.app import app

FOLDERS, SEED = 200, 18_201
NAMES, TOGETHER, NAMES_SEED = 200, 50, 33_701


@pytest.fixture
def healthy(npz: Path, tmp_path: Path) -> Path:
    """A ladder of two batch sizes and two seeds."""
    base = small(npz, {"probe": {"kind": "in_run", "parts": 2}, "model.scale_invariant": True})
    ladder = Ladder.of(base, [8, 16], 2)
    for planned in plan_runs(ladder.runs(), tmp_path / "healthy"):
        go(planned.spec, planned.folder)
    save_experiment(ladder, tmp_path / "healthy")
    return tmp_path / "healthy"


def listed(folder: Path) -> str:
    """What is wrong with `svag list`; empty if the healthy runs are there."""
    result = CliRunner().invoke(app, ["list", str(folder), "--json"])
    if result.exit_code != 0:
        return f"list ends with {result.exit_code}: {repr(result.exception)[:300]}"
    finished = sum(record["state"] == "finished" for record in json.loads(result.stdout))
    return "" if finished >= 3 else f"list finds {finished} healthy runs of 3"


def predicted(folder: Path) -> str:
    """What is wrong with `svag predict`; empty if it answers, or says in a line why not."""
    result = CliRunner().invoke(app, ["predict", str(folder)])
    lines = result.stderr.strip().splitlines()
    if result.exit_code and not isinstance(result.exception, SystemExit):
        return f"predict ends with {result.exit_code}: {repr(result.exception)[:300]}"
    if result.exit_code and (result.stdout or any(len(line) > LONGEST + len(str(folder)) for line in lines)):
        return f"predict says {result.output[:400]}"
    return ""


def reported(folder: Path) -> str:
    """What is wrong with the report; empty if it is written, or refused in a line."""
    try:
        write_report(folder, formats=())
    except Exception as error:
        short = "\n" not in str(error) and len(str(error)) <= LONGEST + len(str(folder))
        return "" if exit_code(type(error)) is not None and short else f"report: {type(error).__name__}: {error!s:.300}"
    return ""


@pytest.mark.slow
def test_damaged_folders(
    healthy: Path, tmp_path: Path, say: Callable[[str], None], seeded: Callable[[int], int]
) -> None:
    runs = sorted(one.relative_to(healthy) for one in (healthy / "runs").iterdir() if one.is_dir())
    ways, wrong, seed = Counter[str](), [], seeded(SEED)
    for number in range(FOLDERS):
        folder = copied(healthy, tmp_path / str(number))
        how = damaged(folder / runs[number % len(runs)], seed + number)
        ways[how.split()[0]] += 1
        for look in (listed, predicted, reported):
            try:
                with answers_within(60):
                    found = look(folder)
            except TimeoutError as error:
                found = f"{look.__name__}: {error}"
            if found:
                wrong.append(f"folder {number} ({how}): {found}")
    say(f"{FOLDERS} damaged folders (seeds {seed} to {seed + FOLDERS - 1}), {len(wrong)} wrong answers")
    assert not wrong, "\n".join(wrong)
    assert (ways.total(), len(runs)) == (FOLDERS, 4)


def all_listed(folder: Path, good: set[str]) -> str:
    """What is wrong with `svag list` of a folder of hostile names; empty if each run has one row."""
    table, found = (CliRunner().invoke(app, ["list", str(folder), *flags]) for flags in ([], ["--json"]))
    if (table.exit_code, found.exit_code) != (0, 0):
        return f"list ends with {table.exit_code} and {found.exit_code}: {table.exception!r:.300}"
    records = json.loads(found.stdout)
    if lost := good - {record["path"] for record in records if record["state"] == "finished"}:
        return f"list has lost {len(lost)} of {len(good)} healthy runs"
    lines = table.stdout.split("\n")
    header = next(number for number, line in enumerate(lines) if line.startswith("run "))  # after what all runs share
    rows = len(lines[header + 1 : -1])
    return "" if rows == len(records) else f"list has {rows} rows for {len(records)} runs"


def drawn(folder: Path) -> str:
    """What is wrong with `svag report`, in a process of its own, which a name might abort; empty if it is written."""
    command = [sys.executable, "-m", "svag", "report", str(folder), "--format", "png"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    whole = done.returncode == 0 and (folder / "report" / "figures" / "test-accuracy.png").exists()
    return "" if whole else f"report ends with {done.returncode}: {done.stderr[-300:]!r}"


def continued(spec: Path, run: Path) -> str:
    """What is wrong with `svag run` in a damaged folder; empty if it finishes the run, or says in a line why not."""
    done = CliRunner().invoke(app, ["run", str(spec), "--out", str(run), "--device", "cpu"])
    if isinstance(done.exception, SystemExit | None) and (done.exit_code == 0) == (": finished at" in done.stdout):
        return ""
    return f"run ends with {done.exit_code}: {done.exception!r:.300} {done.output[-300:]}"


@pytest.mark.slow
def test_hostile_names_and_files(
    healthy: Path, tmp_path: Path, say: Callable[[str], None], seeded: Callable[[int], int]
) -> None:
    run = min((healthy / "runs").iterdir())
    spec = tmp_path / "spec.yaml"
    spec.write_text(RunSpec.from_dict(json.loads((run / "spec.json").read_bytes())["spec"]).to_yaml())
    wrong, names, first = [], 0, seeded(NAMES_SEED)
    for number in range(NAMES // TOGETHER):
        choose = random.Random(first + number)
        folder = tmp_path / f"{number}{hostile_name(choose)}"
        places = [copied(run, folder / hostile_name(choose)) for _ in range(TOGETHER)]
        good, bad = places[::2], places[1::2]
        for place in bad:
            seed = choose.randrange(10**6)
            if choose.random() < 0.7:
                damaged(place, seed)
            else:
                enlarged(place, seed)
        names += len(set(places))
        looks = [partial(all_listed, folder, set(map(str, good))), partial(predicted, folder), partial(drawn, folder)]
        looks += [partial(continued, spec, place) for place in bad]
        for place, look in zip([folder] * 3 + bad, looks, strict=True):
            try:
                with answers_within(600):
                    found = look()
            except TimeoutError as error:
                found = str(error)
            if found:
                wrong.append(f"{place!r}: {found}")
    last = first + NAMES // TOGETHER - 1
    say(f"{names} hostile names, half of the runs damaged (seeds {first} to {last}), {len(wrong)} wrong answers")
    assert not wrong, "\n".join(wrong)
    assert names == NAMES


def test_the_campaign_notices_a_row_that_is_forged(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = sorted((healthy / "runs").iterdir())
    runs[0].rename(healthy / "runs" / "a\nb")
    assert all_listed(healthy, set(map(str, runs[1:]))) == ""
    assert all_listed(healthy, set(map(str, runs))) == "list has lost 1 of 4 healthy runs"
    for module in ("errors", "listing"):
        monkeypatch.setattr(f"svag.lab.cli.{module}.visible", lambda text, **_: text)
    assert all_listed(healthy, set()) == "list has 5 rows for 4 runs"


def test_the_campaign_notices_what_is_wrong(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [look(healthy) for look in (listed, predicted, reported)] == ["", "", ""]
    with monkeypatch.context() as patch:
        for reader in ("listing.each_record", "run.load_records"):
            patch.setattr(f"svag.lab.cli.{reader}", lambda *_, **__: 1 / 0)
        assert "ZeroDivisionError" in listed(healthy)
        assert "ZeroDivisionError" in predicted(healthy)
    with monkeypatch.context() as patch:
        patch.setattr("tests.campaigns.test_damage.write_report", lambda *_, **__: dict[str, str]()["x"])
        assert reported(healthy).startswith("report: KeyError")
    for run in (healthy / "runs").iterdir():
        (run / "metrics.jsonl").write_bytes(b"x")
    assert listed(healthy) == "list finds 0 healthy runs of 3"
