"""An experiment from Python is the one of the command line; data is loaded and networks are built once before it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.lab.training.small import small
from typer.testing import CliRunner

import svag
import svag.lab
from svag.lab.execution import worker
from svag.lab.execution.conduct import _workers_to_start, conduct, preview
from svag.lab.execution.dispatch import PlanFailed
from svag.lab.execution.estimate import Workload
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import plan_runs
from svag.lab.execution.worker import look_ahead_for
from svag.lab.experiments import load_experiment
from svag.lab.experiments.ngd import Ngd
from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.records.storage import make_folder
from svag.lab.specs.fields import SpecError
from svag.lab.training.run_folder import run_header, write_header
from svag.paper.cli.app import app

HERE = Execution(workers=1, device="cpu")


class OneWhoLooks:
    """A worker that looks at data and times networks in this process, and runs nothing."""

    def __init__(self, number: int, threads: int, reports: Any) -> None:
        self.number, self.ready, self.run = number, False, None
        self._reports = reports
        reports.put((self, {"event": "ready"}))

    def ask(self, task: str, specs: dict[str, Any], execution: Execution) -> None:
        order = {"task": task, "specs": specs, "execution": execution.to_dict()}
        look_ahead_for(order, lambda report: self._reports.put((self, report)))

    def terminate(self) -> None: ...
    def wait_until(self, when: float) -> None: ...
    def kill(self) -> None: ...


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody carries out a run."""
    monkeypatch.setattr("svag.lab.execution.local.WorkerProcess", OneWhoLooks)
    monkeypatch.setattr("svag.lab.execution.dispatch.Dispatch.take", lambda _: None)
    monkeypatch.setattr("svag.lab.execution.dispatch.Dispatch.something_left", False)
    monkeypatch.setattr(worker, "_PATIENCE", 0.0)


@pytest.fixture
def base(npz: Path, tmp_path: Path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(small(npz).to_yaml())
    return path


def question(base: Path) -> Ngd:
    asked = Ngd.of(svag.lab.RunSpec.load(base), 2, margin=0.01, metric="test_loss", name="mine")
    return asked.model_copy(update={"title": "my question"})


@pytest.mark.usefixtures("nobody")
def test_data_is_loaded_and_a_network_is_built_once(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[str] = []

    def counted(name: str) -> None:
        original = getattr(worker, name)

        def call(*given: Any) -> Any:
            called.append(name)
            return original(*given)

        monkeypatch.setattr(worker, name, call)

    counted("load_inputs")
    counted("prepare")
    done = conduct(question(base), tmp_path / "out", HERE)
    assert sorted(called) == ["load_inputs", "load_inputs", "prepare"], "once to check the specs, once to time them"
    assert "my question\n" in (said := capsys.readouterr().err)
    assert "6 runs, 0 already done, 6 to do" in said
    assert (len(done.plan), done.left, done.failures) == (6, 6, [])
    called.clear()
    quiet = Execution(workers=1, device="cpu", progress=False)
    conduct(question(base), tmp_path / "out", quiet)
    assert called == ["load_inputs"]  # to check the specs; nobody asks how long it takes
    assert capsys.readouterr().err == ""


def test_a_preview_says_the_same_and_leaves_nothing(base: Path, tmp_path: Path) -> None:
    seen = preview(question(base), tmp_path / "out", HERE)
    assert (seen.kind, seen.title, seen.runs) == ("ngd", "my question", 6)
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("nobody")
def test_runs_of_another_version_are_not_continued(base: Path, tmp_path: Path) -> None:
    asked, out = question(base), tmp_path / "out"
    conduct(asked, out, HERE)
    spec, folder = asked.runs()[0], out / "runs" / "made-before"
    make_folder(folder)
    write_header(folder, run_header(spec, "0" * 64, 64) | {"numerics": 1})
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    other = asked.model_copy(update={"margin": 0.5})
    for start in (conduct, preview):
        with pytest.raises(
            SpecError,
            match=rf"made-before was computed by version 1 of the numerics, a new run by version {NUMERICS_VERSION}: "
            "results of different versions are not comparable, so put each version in a folder of its own",
        ):
            start(other, out, HERE)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before, "nothing is written"
    write_header(folder, run_header(spec, "0" * 64, 64))
    conduct(other, out, HERE)  # the negative control
    assert load_experiment(out) == other


@pytest.mark.usefixtures("nobody")
def test_python_asks_what_the_command_line_asks(base: Path, tmp_path: Path) -> None:
    quiet = Execution(workers=1, device="cpu", progress=False)
    mapping = yaml.safe_load(base.read_text())
    found: dict[str, Any] = {
        "ladder": svag.lab.ladder(base, [4, 8], seeds=2, c2=3.0, out=tmp_path / "ladder", execution=quiet),
        "compare": svag.lab.compare(base, [1, 4], glsr=[2], margin=0.1, out=tmp_path / "compare", execution=quiet),
        "ngd": svag.lab.ngd(str(base), metric="test_loss", out=tmp_path / "ngd", execution=quiet),
    }
    flags = {
        "ladder": "--batch-sizes 4 8 --seeds 2 --c2 3",
        "compare": "--ell 1 4 --glsr 2 --margin 0.1",
        "ngd": "--metric test_loss",
    }
    for kind, finding in found.items():
        there = tmp_path / f"{kind}-there"
        command = [kind, str(base), *flags[kind].split(), "--out", str(there)]
        assert CliRunner().invoke(app, command).exit_code == 0
        asked = load_experiment(tmp_path / kind)
        assert asked is not None
        assert asked == load_experiment(there)
        assert finding.to_dict()["kind"] == kind
        assert finding.missing  # nobody has computed anything
    svag.lab.ngd(mapping, out=tmp_path / "mapping", execution=quiet)
    svag.lab.ngd(svag.lab.RunSpec.from_dict(mapping), seeds=[0, 1, 2], out=tmp_path / "spec", execution=quiet)
    assert load_experiment(tmp_path / "mapping") == load_experiment(tmp_path / "spec")


def test_as_many_workers_start_early_as_are_known_to_be_needed(base: Path, tmp_path: Path) -> None:
    plan = plan_runs(question(base).runs(), tmp_path / "out")
    assert _workers_to_start(Workload(plan, Execution(workers=2))) == 2
    assert _workers_to_start(Workload(plan, Execution(workers=1000))) == len(plan), "not more than there are runs"
    assert _workers_to_start(Workload(plan, Execution())) == 1, (
        "their number depends on the devices, as torch sees them"
    )
    assert _workers_to_start(Workload([], Execution(workers=2))) == 0


def test_workers_are_ended_when_the_plan_is_refused_and_nothing_is_written(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Noted(OneWhoLooks):
        """Says when it starts and ends."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            seen.append("started")

        def kill(self) -> None:
            seen.append("ended")

    def refuse(*_: object) -> None:
        seen.append("refused")
        raise SpecError("data.path", "cannot be read")

    monkeypatch.setattr("svag.lab.execution.local.WorkerProcess", Noted)
    monkeypatch.setattr(worker, "load_data_of", refuse)
    with pytest.raises(SpecError, match=r"^data\.path:"):
        conduct(question(base), tmp_path / "out", HERE)
    assert seen == ["started", "refused", "ended"]
    assert not (tmp_path / "out").exists()


def test_the_first_run_does_not_wait_for_the_timing_and_is_announced_before_it_is_named(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders: list[str] = []

    class Instant(OneWhoLooks):
        """Ends each run at once, without a trace."""

        def ask(self, task: str, *given: Any) -> None:
            orders.append(f"{task} by {self.number}")
            super().ask(task, *given)

        def give(self, run: Any, execution: Execution) -> None:
            self.run = run
            orders.append(f"run by {self.number}")
            self._reports.put((self, {"event": "begins", "step": 0}))
            self._reports.put((self, {"event": "failed", "recorded": True, "sentence": "nobody computes here"}))

    monkeypatch.setattr("svag.lab.execution.local.WorkerProcess", Instant)
    monkeypatch.setattr(worker, "_PATIENCE", 0.0)
    conduct(question(base), tmp_path / "two", Execution(workers=2, device="cpu"))
    assert orders[:3] == ["look by 0", "run by 0", "time by 1"]
    assert orders.count("time by 1") == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "my question"
    assert "6 runs, 0 already done, 6 to do" in lines[1]
    assert sum("begins" in line for line in lines) == 6
    orders.clear()
    conduct(question(base), tmp_path / "one", Execution(workers=1, device="cpu"))
    assert orders[:3] == ["look by 0", "time by 0", "run by 0"], "who is alone says first how long it takes"


def test_a_network_that_cannot_be_timed_leaves_the_time_unknown(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr("svag.lab.execution.local.WorkerProcess", OneWhoLooks)
    monkeypatch.setattr("svag.lab.execution.dispatch.Dispatch.take", lambda _: None)
    monkeypatch.setattr("svag.lab.execution.dispatch.Dispatch.something_left", False)
    monkeypatch.setattr(worker, "prepare", fail)
    conduct(question(base), tmp_path / "out", HERE)
    assert "6 runs, 0 already done; time not known: MemoryError: too large" in capsys.readouterr().err


def test_a_worker_that_dies_over_the_data_is_named(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dies(OneWhoLooks):
        """Ends when it is asked to look."""

        def ask(self, task: str, *given: Any) -> None:
            self._reports.put((self, None))

        def how_it_ended(self) -> str:
            return "its process was ended by SIGKILL"

    monkeypatch.setattr("svag.lab.execution.local.WorkerProcess", Dies)
    with pytest.raises(PlanFailed, match=r"\bSIGKILL\b"):
        conduct(question(base), tmp_path / "out", HERE)
