"""Tasks that die before their run begins, mailboxes that die and clusters that go, all of them only imagined."""

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, NodeDiedError, OutOfMemoryError, RaySystemError, WorkerCrashedError
from tests.lab.training.small import small

from svag.lab.execution.dispatch import PlanFailed
from svag.lab.execution.execution import Execution
from svag.lab.execution.on_ray.crew import Crew
from svag.lab.execution.on_ray.mailbox import Letter, Mailbox
from svag.lab.execution.plan import PlannedRun, plan_runs
from svag.lab.records.storage import in_use

WELL, LOST, CRASHED = {"event": "ended"}, NodeDiedError("gone"), WorkerCrashedError()


class Imagined:
    """What a crew needs of Ray: the tasks of each run have these fates, one after the other.

    `losses` are what the next questions for letters end in.
    """

    def __init__(self, fates: dict[str, list[Any]], losses: Iterable[BaseException] = ()) -> None:
        self._fates = fates
        self._losses = list(losses)
        self.cancelled: list[int] = []
        self.mailboxes = 0
        self.questions = 0
        self.tasks: dict[int, Any] = {}
        self.unread = SimpleNamespace(remote=lambda read: ("letters", read))

    def remote(self, *given: Any) -> Any:
        """The mailbox, which is this one too, or the number of a task."""
        if not given:
            self.mailboxes += 1
            self._box = Mailbox()
        if not given or not isinstance(given[0], dict):
            return self
        identity, attempt = given[0]["identity"], given[0]["attempt"]
        fate = self.tasks[attempt] = self._fates[identity].pop(0)
        if fate is WELL:
            self.post(identity, attempt, {"event": "begins", "step": 0, "mailed": False})
        return attempt

    def post(self, identity: str, attempt: int, report: dict[str, Any]) -> None:
        self._box.put(Letter(identity, attempt, report))

    def options(self, **_: Any) -> "Imagined":
        return self

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "0" * 56, "Alive": True}]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_node_id=lambda: "0" * 56)

    def wait(self, tasks: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return tasks[:1], tasks[1:]

    def get(self, task: Any, **_: Any) -> Any:
        match task:
            case ("letters", read):
                self.questions += 1
                letters = self._box.unread(read)
                if self._losses:
                    raise self._losses.pop(0)
                return letters
        if isinstance(self.tasks[task], Exception):
            raise self.tasks[task]
        return self.tasks[task]

    def cancel(self, task: int, **_: Any) -> None:
        self.cancelled.append(task)

    def kill(self, *_: Any) -> None: ...


class Books:
    """The runs of a plan, without the files."""

    def __init__(self, runs: Iterable[PlannedRun]) -> None:
        self._waiting = deque(runs)
        self.ended: list[PlannedRun] = []
        self.tried_again: list[str] = []

    @property
    def something_left(self) -> bool:
        return bool(self._waiting)

    def take(self) -> PlannedRun | None:
        return self._waiting.popleft() if self._waiting else None

    def put_back(self, run: PlannedRun) -> None:
        self._waiting.appendleft(run)

    def heed(self, run: PlannedRun, report: dict[str, Any]) -> None:
        self.ended.append(run)

    def try_again(self, run: PlannedRun, why: str) -> None:
        self.tried_again.append(why)
        self.put_back(run)

    def begin(self, run: PlannedRun, step: int) -> None: ...

    def look_again(self) -> None: ...


def carry_out(
    npz: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fates: list[list[Any]],
    losses: Iterable[BaseException] = (),
) -> tuple[Imagined, Books]:
    plan = plan_runs([small(npz, {"seed": seed}) for seed in range(len(fates))], tmp_path)
    imagined = Imagined({run.identity: list(own) for run, own in zip(plan, fates, strict=True)}, losses)
    books = Books(plan)
    monkeypatch.setattr("svag.lab.execution.on_ray.crew.ray", imagined)
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


def test_a_mailbox_that_dies_is_replaced_and_what_was_out_is_tried_again(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imagined, books = carry_out(npz, tmp_path, monkeypatch, [[WELL, WELL, WELL]] * 2, [ActorDiedError()] * 2)
    assert (len(books.ended), imagined.mailboxes) == (2, 3)
    assert imagined.cancelled[:2] == [1, 2]
    assert books.tried_again == []  # nobody had heard of their beginning


def test_a_run_that_had_begun_goes_on_from_its_checkpoint_after_the_mailbox_died(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Imagined.wait

    def later(self: Imagined, tasks: list[Any], **given: Any) -> tuple[list[Any], list[Any]]:
        """The first task begins and does not end before its mailbox has died."""
        if self.mailboxes == 1 and not self.cancelled and len(self.tasks) == 1:
            if self.questions:
                self._losses.append(ActorDiedError())
            return [], tasks
        return waits(self, tasks, **given)

    monkeypatch.setattr(Imagined, "wait", later)
    imagined, books = carry_out(npz, tmp_path, monkeypatch, [[WELL, WELL]])
    assert (len(books.ended), imagined.mailboxes, imagined.cancelled) == (1, 2, [1])
    assert books.tried_again == ["the process that collects the results died"]


@pytest.mark.parametrize(
    ("losses", "sentence"),
    [
        ([ActorDiedError()] * 3, "the process that collects the results died 3 times: the same command continues from"),
        ([RaySystemError("no more\nof this")], r"the Ray cluster is lost \(.*no more of this\): the same command cont"),
        (
            [ConnectionError("gone")],
            r"the Ray cluster is lost \(gone\): the same command continues from the last check",
        ),
    ],
)
def test_a_cluster_that_goes_is_one_sentence(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: list[Exception], sentence: str
) -> None:
    with pytest.raises(PlanFailed, match=sentence) as lost:
        carry_out(npz, tmp_path, monkeypatch, [[WELL] * 9], losses)
    assert "\n" not in str(lost.value)


def test_without_a_node_on_this_machine_there_is_no_new_mailbox(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Imagined, "nodes", lambda _: [{"NodeID": "0" * 56, "Alive": False}])
    with pytest.raises(
        PlanFailed, match=r"the Ray cluster is lost \(the node of this machine is gone\): the same comm"
    ):
        carry_out(npz, tmp_path, monkeypatch, [[WELL] * 9], [ActorDiedError()])


@pytest.mark.parametrize("question", [0, 1], ids=["with the first letters", "with the files"])
def test_interrupted_while_letters_are_on_their_way_it_loses_none(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: int
) -> None:
    files = {"event": "files", "files": {"spec.json": b"{}"}}

    def wait(self: Imagined, tasks: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        """The task begins, sends its files and never ends; in between somebody presses Ctrl-C."""
        (identity,) = self._fates
        if self.questions == 0:
            self.post(identity, 1, {"event": "begins", "step": 0, "mailed": True})
        if self.questions == question:
            self.post(identity, 1, files)
            self._losses.append(KeyboardInterrupt())
        return [], tasks

    monkeypatch.setattr(Imagined, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        carry_out(npz, tmp_path, monkeypatch, [["at work"]])
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "spec.json").read_bytes() == b"{}"
    assert not in_use(folder)


def test_interrupted_between_acting_on_a_letter_and_counting_it_the_run_is_kept(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(self: Imagined, tasks: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        (identity,) = self._fates
        self.post(identity, 1, {"event": "begins", "step": 0, "mailed": True})
        self.post(identity, 1, {"event": "files", "files": {"spec.json": b"{}"}})
        return [], tasks

    def begin(self: Books, run: PlannedRun, step: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Imagined, "wait", wait)
    monkeypatch.setattr(Books, "begin", begin)
    with pytest.raises(KeyboardInterrupt):
        carry_out(npz, tmp_path, monkeypatch, [["at work"]])
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "spec.json").read_bytes() == b"{}"
