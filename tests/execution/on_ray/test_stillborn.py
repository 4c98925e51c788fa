"""Tasks that die before their run begins, on a cluster that is only imagined."""

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import NodeDiedError, OutOfMemoryError, WorkerCrashedError
from tests.lab.small import small

from svag.execution.dispatch import PlanFailed
from svag.execution.execution import Execution
from svag.execution.on_ray.crew import Crew
from svag.execution.on_ray.mailbox import Letter
from svag.execution.plan import PlannedRun, plan_runs

WELL, LOST, CRASHED = {"event": "ended"}, NodeDiedError("gone"), WorkerCrashedError()


class Imagined:
    """What a crew needs of Ray: the tasks of each run have these fates, one after the other."""

    def __init__(self, fates: dict[str, list[Any]]) -> None:
        self._fates = fates
        self._letters: list[Letter] = []
        self.tasks: dict[int, Any] = {}
        self.collect = SimpleNamespace(remote=lambda: "letters")

    def remote(self, *given: Any) -> Any:
        """The mailbox, which is this one too, or the number of a task."""
        if not given or not isinstance(given[0], dict):
            return self
        identity, attempt = given[0]["identity"], given[0]["attempt"]
        fate = self.tasks[attempt] = self._fates[identity].pop(0)
        if fate is WELL:
            self._letters.append(Letter(identity, attempt, {"event": "begins", "step": 0, "mailed": False}))
        return attempt

    def options(self, **_: Any) -> "Imagined":
        return self

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "0" * 56)

    def wait(self, tasks: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return tasks[:1], tasks[1:]

    def get(self, task: Any) -> Any:
        if task == "letters":
            letters, self._letters = self._letters, []
            return letters
        if isinstance(self.tasks[task], Exception):
            raise self.tasks[task]
        return self.tasks[task]

    def cancel(self, *_: Any, **__: Any) -> None: ...

    def kill(self, *_: Any) -> None: ...


class Books:
    """The runs of a plan, without the files."""

    def __init__(self, runs: Iterable[PlannedRun]) -> None:
        self._waiting = deque(runs)
        self.ended: list[PlannedRun] = []

    @property
    def something_left(self) -> bool:
        return bool(self._waiting)

    def take(self) -> PlannedRun | None:
        return self._waiting.popleft() if self._waiting else None

    def put_back(self, run: PlannedRun) -> None:
        self._waiting.appendleft(run)

    def heed(self, run: PlannedRun, report: dict[str, Any]) -> None:
        self.ended.append(run)

    def begin(self, run: PlannedRun, step: int) -> None: ...

    def look_again(self) -> None: ...


def carry_out(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fates: list[list[Any]]
) -> tuple[Imagined, Books]:
    plan = plan_runs([small(npz, {"seed": seed}) for seed in range(len(fates))], tmp_path)
    imagined = Imagined({run.identity: list(own) for run, own in zip(plan, fates, strict=True)})
    books = Books(plan)
    monkeypatch.setattr("svag.execution.on_ray.crew.ray", imagined)
    execution = Execution(executor="ray", device="cpu", mail=True)
    with Crew(books, execution, in_a_session=False) as crew:  # type: ignore[arg-type]
        crew.work()
    return imagined, books


@pytest.mark.parametrize("death", [LOST, OutOfMemoryError("no more"), CRASHED])
def test_a_node_that_takes_many_unbegun_tasks_along_does_not_end_the_plan(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, death: Any
) -> None:
    imagined, books = carry_out(npz, tmp_path, monkeypatch, [[death, WELL]] * 5)
    assert len(imagined.tasks) == 10
    assert len(books.ended) == 5


def test_the_death_of_a_node_is_never_held_against_a_run(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, books = carry_out(npz, tmp_path, monkeypatch, [[LOST] * 7 + [WELL]])
    assert len(books.ended) == 1


def test_a_run_whose_tasks_cannot_start_ends_the_plan_though_others_do(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PlanFailed, match=r"a task cannot start on the cluster, its process died .*: see the logs"):
        carry_out(npz, tmp_path, monkeypatch, [[CRASHED] * 4, [WELL], [CRASHED, WELL]])
