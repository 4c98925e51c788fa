"""Two hundred damaged folders: `list`, `predict` and `report` go on with the healthy runs, and name the damaged one."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.campaigns.calls import LONGEST
from tests.lab.specs.damage import copied, damaged
from tests.lab.specs.fuzz import answers_within
from tests.lab.training.small import go, small
from typer.testing import CliRunner

from svag.lab.cli.errors import exit_code
from svag.lab.execution.plan import plan_runs
from svag.lab.experiments.base import save_experiment
from svag.lab.experiments.ladder import Ladder
from svag.lab.report.build import write_report
from svag.paper.cli.app import app

FOLDERS, SEED = 200, 18_201


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
def test_damaged_folders(healthy: Path, tmp_path: Path, say: Callable[[str], None]) -> None:
    runs = sorted(one.relative_to(healthy) for one in (healthy / "runs").iterdir() if one.is_dir())
    ways, wrong = Counter[str](), []
    for number in range(FOLDERS):
        folder = copied(healthy, tmp_path / str(number))
        how = damaged(folder / runs[number % len(runs)], SEED + number)
        ways[how.split()[0]] += 1
        for look in (listed, predicted, reported):
            try:
                with answers_within(60):
                    found = look(folder)
            except TimeoutError as error:
                found = f"{look.__name__}: {error}"
            if found:
                wrong.append(f"folder {number} ({how}): {found}")
    say(f"{FOLDERS} damaged folders (seeds {SEED} to {SEED + FOLDERS - 1}), {len(wrong)} wrong answers")
    assert not wrong, "\n".join(wrong)
    assert (ways.total(), len(runs)) == (FOLDERS, 4)


def test_the_campaign_notices_what_is_wrong(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [look(healthy) for look in (listed, predicted, reported)] == ["", "", ""]
    with monkeypatch.context() as patch:
        patch.setattr("svag.lab.records.record.load_records", lambda _: 1 / 0)
        assert "ZeroDivisionError" in listed(healthy)
        assert "ZeroDivisionError" in predicted(healthy)
    with monkeypatch.context() as patch:
        patch.setattr("tests.campaigns.test_damage.write_report", lambda *_, **__: dict[str, str]()["x"])
        assert reported(healthy).startswith("report: KeyError")
    for run in (healthy / "runs").iterdir():
        (run / "metrics.jsonl").write_bytes(b"x")
    assert listed(healthy) == "list finds 0 healthy runs of 3"
