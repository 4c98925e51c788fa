"""The runs of a plan on their way, whoever computes them: which wait, which others have, how each came to its end.

Here is also what those who start local workers and tasks on a cluster share: the errors that come back from them, and
what happens when the plan is interrupted. Torch is imported only to record that a run has failed.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from svag.lab.data.formats import DataError
from svag.lab.execution.execution import DEATHS, LOOK_AGAIN, Execution
from svag.lab.execution.plan import DataShape, PlannedRun, cost
from svag.lab.execution.view import Board, HeldBack, View, view_of
from svag.lab.records.files import DiskError
from svag.lab.records.record import RunFailed
from svag.lab.specs.fields import SpecError
from svag.lab.training.watching import stoppable


class PlanFailed(RunFailed):
    """A plan that could not be carried out; the message is one sentence."""


def order_for(run: PlannedRun, execution: Execution) -> dict[str, Any]:
    """What a worker is told to do, as JSON values."""
    return {
        "spec": run.spec.to_dict(),
        "identity": run.identity,
        "folder": str(run.folder),
        "execution": execution.to_dict(),
    }


def from_message(message: dict[str, Any]) -> Exception:
    """The error that a worker refused its run with."""
    sentence = str(message["sentence"])
    match message["kind"]:
        case "spec":
            return SpecError(str(message["path"]), sentence)
        case "data":
            return DataError(sentence)
        case "disk":
            return DiskError(sentence)
    return ValueError(sentence)


class Dispatch:
    """Keeps the books of a plan that is carried out.

    Args:
        runs: what is to be done, in this order.
        work: how much work each run is, by identity.
        shapes: the shape of each run's data, by identity.
        execution: how; without shards the plan is only done when what other processes have is done.
        board: where the state of the plan is kept.
        view: who is told.
    """

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        work: Mapping[str, float],
        shapes: Mapping[str, DataShape],
        execution: Execution,
        board: Board,
        view: View,
    ) -> None:
        self._waiting = deque(runs)
        self._elsewhere: list[PlannedRun] = []
        self._work, self._shapes, self._board, self._view = work, shapes, board, view
        self._device = execution.device
        self._wait_for_others = execution.shard is None
        self._deaths: Counter[str] = Counter()
        self._looked = monotonic()

    @property
    def waiting(self) -> int:
        """How many runs wait to be handed out."""
        return len(self._waiting)

    @property
    def something_left(self) -> bool:
        """Whether a run waits, or is waited for; those that have been handed out are not counted."""
        return bool(self._waiting) or (bool(self._elsewhere) and self._wait_for_others)

    def announce(self, announcement: str) -> None:
        """Say what is being done, before anything else that was to be said."""
        self._view.announce(announcement)

    def take(self) -> PlannedRun | None:
        """The next run that is neither done or broken by now nor in other hands; None if there is none."""
        while self._waiting:
            run = self._waiting.popleft()
            now = run.record(whole=False)
            if not now.to_do:
                self.end(run, now.state)
            elif now.state == "running":
                self.leave_to_others(run)
            else:
                return run
        return None

    def put_back(self, run: PlannedRun) -> None:
        """A run that was taken has not begun: it is the next again."""
        self._waiting.appendleft(run)

    def begin(self, run: PlannedRun, step: int) -> None:
        """A run, which was at `step` already, is being computed from now on."""
        steps = run.spec.steps(self._shapes[run.identity].examples)
        self._board.start(run, steps, step, self._work[run.identity])
        self._view.say(f"{run.name} begins at effective step {step} of {steps}")

    def heed(self, run: PlannedRun, report: Mapping[str, Any]) -> bool:
        """Take note of a report; whether it is the last of its run. Raise what is wrong for all runs."""
        match report["event"]:
            case "at":
                self._board.move(run, report["step"])
                return False
            case "evaluated":
                self._board.move(run, report["step"], report["test_accuracy"])
                return False
            case "ended":
                self.end(run, run.record(whole=False).state)
            case "elsewhere":
                self.leave_to_others(run)
            case "failed":
                self._fail(run, report["sentence"], recorded=report["recorded"])
            case "refused":
                raise from_message(dict(report))
        return True

    def end(self, run: PlannedRun, state: str) -> None:
        """A run has ended, here or elsewhere."""
        self._board.end(run, state, self._work[run.identity])
        accuracy = run.record(whole=False).final.get("test_accuracy")
        self._view.say(f"{run.name} {state}" + ("" if accuracy is None else f", test accuracy {accuracy:.4f}"))

    def died(self, run: PlannedRun, how: str) -> None:
        """Who computed a run has died: it is tried again from its checkpoint, unless that has happened too often."""
        self._deaths[run.identity] += 1
        if self._deaths[run.identity] >= DEATHS:
            self._board.leave(run)
            self._fail(run, f"{how}, as {DEATHS - 1} times before", recorded=False)
        else:
            self.try_again(run, how)

    def try_again(self, run: PlannedRun, why: str) -> None:
        """A run that had begun is the next again, from its checkpoint."""
        self._board.leave(run)
        self._waiting.appendleft(run)
        self._view.say(f"{run.name} is tried again from its last checkpoint: {why}")

    def leave_to_others(self, run: PlannedRun) -> None:
        """Another process has a run."""
        self._board.leave(run)
        self._board.elsewhere += 1
        self._elsewhere.append(run)
        self._view.say(f"{run.name} is running in another process")

    def look_again(self) -> None:
        """Now and then, take back what others have ended or left."""
        if not self._wait_for_others or monotonic() - self._looked < LOOK_AGAIN:
            return
        self._looked = monotonic()
        for run in list(self._elsewhere):
            now = run.record(whole=False)
            if now.state == "running":
                continue
            self._elsewhere.remove(run)
            self._board.elsewhere -= 1
            if not now.to_do or now.state == "failed":
                self.end(run, now.state)
            else:
                self._waiting.append(run)

    def _fail(self, run: PlannedRun, sentence: str, *, recorded: bool) -> None:
        if not recorded:
            import torch

            from svag.lab.training.folder import record_failure

            examples = self._shapes[run.identity].examples
            record_failure(run.spec, run.folder, run.identity, examples, sentence, torch.device(self._device))
        self._board.end(run, "failed", self._work[run.identity])
        self._view.say(f"{run.name} failed: {sentence}")


@contextmanager
def dispatching(
    own: Sequence[PlannedRun],
    waiting: Sequence[PlannedRun],
    shapes: Mapping[str, DataShape],
    execution: Execution,
    *,
    announced: bool = True,
) -> Iterator[Dispatch]:
    """Open the books of a plan, the longest runs first, and a view of them.

    Args:
        own: all runs that are to be carried out here.
        waiting: those of them that are left to do.
        shapes: the shape of the data of each of the latter, by identity.
        execution: how, with the device that was chosen.
        announced: whether the plan has been announced; if not, what happens is only said after that.
    """
    work = {run.identity: cost(run.spec, shapes[run.identity]) for run in waiting}
    longest_first = sorted(waiting, key=lambda run: -work[run.identity])
    states = [run.record(whole=False).state for run in own if run.identity not in work]
    done, diverged = states.count("finished"), states.count("diverged")
    board = Board(len(own), sum(work.values()), done, diverged, failed=len(states) - done - diverged)
    view = view_of(board, progress=execution.progress)
    with (
        view if announced else HeldBack(view) as view,
        _interrupted_in_words(board),
        stoppable(always=True),
    ):
        yield Dispatch(longest_first, work, shapes, execution, board, view)


@contextmanager
def _interrupted_in_words(board: Board) -> Iterator[None]:
    """Let an interruption say how far the plan is and how it goes on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        sentence = f"interrupted, {board.ended} of {board.total} runs have ended"
        interrupt.args = (f"{sentence}: the same command continues from the last checkpoints",)
        raise
