"""What a command reads and draws does not multiply with what it is asked for: counted, not timed."""

import json
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from tests.lab.report.folders import BASE, CASES, compare_folder, write_run
from typer.testing import CliRunner

from svag.lab.cli.experiments import answer
from svag.lab.cli.flags import Setup
from svag.lab.execution.conduct import conduct
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import plan_runs
from svag.lab.experiments.compare import Compare, ComparePanel
from svag.lab.records import record as records
from svag.paper.cli.app import app

invoke = CliRunner().invoke
HERE = Execution(workers=1, device="cpu")


def counted(monkeypatch: pytest.MonkeyPatch, where: object, name: str) -> Callable[[], int]:
    """How often a function is called from now on."""
    calls: Counter[str] = Counter()
    original: Callable[..., Any] = getattr(where, name)

    def counting(*given: Any, **named: Any) -> Any:
        calls[name] += 1
        return original(*given, **named)

    monkeypatch.setattr(where, name, counting)
    return lambda: calls[name]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many readings have been made from the rows of records."""
    return counted(monkeypatch, records, "reading_of")


def comparison(folder: Path) -> Compare:
    """A comparison whose runs are all there, in the folders of its plan: SGD twice with 300 readings each, SVAG."""
    panel = ComparePanel(name="B = 64", base=BASE, ells=(1, 4))
    experiment = Compare(title="finished", seeds=(0, 1), panels=(panel,), margin=0.01)
    for run in plan_runs(experiment.runs(), folder):
        write_run(run.folder, run.spec, 0.85, noise_to_signal=6.0 if run.spec.process.kind == "sgd" else None)
    return experiment


def test_list_looks_at_no_reading_and_the_table_is_that_of_the_whole_records(
    tmp_path: Path, made: Callable[[], int]
) -> None:
    for seed in range(3):
        write_run(tmp_path / str(seed), BASE.edited({"seed": seed}), 0.8 + seed / 100, noise_to_signal=6.0)
    listed = invoke(app, ["list", str(tmp_path)])
    assert made() == 0
    rows = [line.split() for line in listed.stdout.splitlines()[1:]]
    whole = records.load_records(tmp_path)
    assert made() == 3 * 300
    assert [(row[0], row[1], row[-2], row[-1]) for row in rows] == [
        (one.path.name, "finished", f"{one.step}/{one.steps}", f"{one.final['test_accuracy']:.4f}") for one in whole
    ]


def test_list_as_json_counts_every_reading_and_keeps_the_rows_of_one_run_at_a_time(
    tmp_path: Path, made: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, before = records.read_record, list[weakref.ref[records.RunRecord]]()
    alive = []

    def watching(folder: Path, *, whole: bool = True) -> records.RunRecord:
        found = read(folder, whole=whole)
        alive.append(sum(one() is not None for one in before[:-1]))  # the last one may not have been let go yet
        before.append(weakref.ref(found))
        return found

    monkeypatch.setattr(records, "read_record", watching)
    for seed in range(4):
        write_run(tmp_path / str(seed), BASE.edited({"seed": seed}), 0.8, noise_to_signal=6.0)
    found = invoke(app, ["list", str(tmp_path), "--json"])
    assert [row["readings"] for row in json.loads(found.stdout)] == [300] * 4
    assert made() == 4 * 300
    assert alive == [0] * 4


@pytest.mark.parametrize("progress", [True, False])
def test_a_plan_that_is_done_reads_every_reading_once(tmp_path: Path, made: Callable[[], int], progress: bool) -> None:
    experiment = comparison(tmp_path)
    done = conduct(experiment, tmp_path, Execution(workers=1, device="cpu", progress=progress))
    assert [record.state for record in done.records] == ["finished"] * 4
    assert sum(len(record.readings) for record in done.records) == made() == 2 * 300


def test_a_command_finds_its_answer_once_and_asks_for_its_slots_once_a_purpose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = comparison(tmp_path)
    found, slots = counted(monkeypatch, Compare, "find"), counted(monkeypatch, Compare, "slots")
    said: list[object] = []

    def learned(finding: object) -> list[str]:
        said.append(finding)
        return ["so it is"]

    answer(experiment, tmp_path, Setup(HERE), learned)
    assert (found(), len(said)) == (1, 1)
    assert slots() == 3  # whose code is asked about, the plan, and the finding


def test_a_report_asks_for_its_slots_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = compare_folder(tmp_path, {1: [0.8, 0.81], 4: [0.8, 0.82]})
    slots = counted(monkeypatch, Compare, "slots")
    assert invoke(app, ["report", str(folder), "--format", "html"]).exit_code == 0
    assert slots() == 1


def test_a_report_lays_out_a_chart_once_for_all_its_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CASES["compare_one_seed"](tmp_path)
    layouts = counted(monkeypatch, vl_convert, "vegalite_to_svg")
    others = [counted(monkeypatch, vl_convert, f"vegalite_to_{kind}") for kind in ("png", "pdf")]
    formats = [word for kind in ("png", "svg", "pdf") for word in ("--format", kind)]
    assert invoke(app, ["report", str(folder), *formats]).exit_code == 0
    images = list((folder / "report" / "figures").iterdir())
    assert len(images) == 3 * layouts() == 9
    assert [other() for other in others] == [0, 0]
