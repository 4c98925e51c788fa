"""The runs of a plan while they are carried out, with any executor: which wait, which run, and how each ended.

A `Dispatch` hands the runs out and follows them. The `Board` counts runs by state, and the `Screen` shows it. Torch is
imported only to record a failed run.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from svag.lab.data.formats import DataError
from svag.lab.execution.estimate import Announcement, TimeEstimate, Workload, roughly
from svag.lab.execution.execution import DEATHS, LOOK_AGAIN, Execution
from svag.lab.execution.plan import Looked, PlannedRun, cost
from svag.lab.records.record import RunFailed
from svag.lab.records.storage import DiskError
from svag.lab.specs.fields import SpecError, visible
from svag.lab.training.watching import say, somebody_watches, stoppable


class PlanFailed(RunFailed):
    """A plan could not be carried out; the message is one sentence."""


def order_for(run: PlannedRun, execution: Execution) -> dict[str, Any]:
    """What a worker needs to know to carry out a run, as JSON values."""
    return {
        "spec": run.spec.to_dict(),
        "identity": run.identity,
        "folder": str(run.folder),
        "execution": execution.to_dict(),
    }


def from_message(message: dict[str, Any]) -> Exception:
    """The error with which a worker refused its run."""
    sentence = str(message["sentence"])
    match message["kind"]:
        case "spec":
            return SpecError(str(message["path"]), sentence)
        case "data":
            return DataError(sentence)
        case "disk":
            return DiskError(sentence)
    return ValueError(sentence)


# The first steps are the slowest: until this share of the work is done, no remaining time is shown.
_TOO_LITTLE = 0.01


@dataclass
class RunningRun:
    """A run that is being computed here.

    Attributes:
        name: what it is called.
        steps: its budget in effective steps.
        work: work of the whole run.
        step: effective steps that are done.
        first: the effective step at which it began or continued here.
        accuracy: test accuracy at its last evaluation.
    """

    name: str
    steps: int
    work: float
    step: int = 0
    first: int = 0
    accuracy: float | None = None

    def work_until(self, step: int) -> float:
        """Work done here when the run is at `step`."""
        return self.work * (step - self.first) / self.steps if self.steps else 0.0


@dataclass
class Board:
    """How many runs of a plan are in which state, and how much work is left.

    Attributes:
        total: number of runs.
        work_left: work of the runs that have not ended, up to a common factor.
        done: number of runs that finished.
        diverged: number of runs that diverged, which is a result too.
        failed: number of runs that failed.
        elsewhere: number of runs that another process is computing.
        running: runs that are computed here, by identity.
        work_done: work of the runs that ended here, in the units of `work_left`.
        began: when the first run began, by the monotonic clock.
    """

    total: int
    work_left: float
    done: int = 0
    diverged: int = 0
    failed: int = 0
    elsewhere: int = 0
    running: dict[str, RunningRun] = field(default_factory=dict)
    work_done: float = 0.0
    began: float | None = None

    @property
    def ended(self) -> int:
        """Number of runs that finished, diverged or failed."""
        return self.done + self.diverged + self.failed

    @property
    def to_do(self) -> int:
        """Number of runs that wait for a worker."""
        return self.total - self.ended - self.elsewhere - len(self.running)

    def start(self, run: PlannedRun, steps: int, step: int, work: float) -> None:
        """A run begins, or continues at `step`."""
        if self.began is None:
            self.began = monotonic()
        self.running[run.identity] = RunningRun(run.name, steps, work, step, step)

    def move(self, run: PlannedRun, step: int, accuracy: float | None = None) -> None:
        """A run is at `step`."""
        line = self.running[run.identity]
        line.step = step
        line.accuracy = line.accuracy if accuracy is None else accuracy

    def leave(self, run: PlannedRun) -> None:
        """A run is not computed here any more, but has not ended."""
        self.running.pop(run.identity, None)

    def end(self, run: PlannedRun, state: str, work: float) -> None:
        """A run has ended, here or elsewhere."""
        line = self.running.pop(run.identity, None)
        if line is not None:
            self.work_done += line.work_until(line.steps)
        self.work_left -= work
        match state:
            case "finished":
                self.done += 1
            case "diverged":
                self.diverged += 1
            case _:
                self.failed += 1

    def seconds_left(self, now: float | None = None) -> float | None:
        """Remaining time at the average pace so far; None until a hundredth of the work has been done.

        elapsed · (work left) / (work done), where running runs count in part.
        """
        lines = self.running.values()
        done = self.work_done + sum(line.work_until(line.step) for line in lines)
        left = self.work_left - sum(line.work * line.step / line.steps for line in lines if line.steps)
        if self.began is None or done <= _TOO_LITTLE * (done + left):
            return None
        return ((monotonic() if now is None else now) - self.began) * max(left, 0.0) / done

    def __str__(self) -> str:
        parts = [f"{self.done} of {self.total} done", f"{len(self.running)} running", f"{self.to_do} to do"]
        parts += [f"{self.elsewhere} running elsewhere"] if self.elsewhere else []
        parts += [f"{self.diverged} diverged"] if self.diverged else []
        parts += [f"{self.failed} failed"] if self.failed else []
        left = self.seconds_left()
        parts += [f"about {roughly(left)} left"] if left else []
        return ", ".join(parts)


def picture(board: Board) -> RenderableType:
    """One bar for each running run, and the totals."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(4):
        table.add_column(no_wrap=True)
    for line in board.running.values():
        accuracy = "" if line.accuracy is None else f"test accuracy {line.accuracy:.4f}"
        bar = ProgressBar(total=max(line.steps, 1), completed=line.step, width=30)
        table.add_row(Text(visible(line.name)), bar, f"{line.step}/{line.steps}", accuracy)
    return Group(table, Text(str(board)))


class Screen:
    """Shows a board on standard error: bars at a terminal, lines in a file, nothing if `progress` is False.

    What happens before it is opened is shown when it is opened, after the announcement of the plan.
    """

    def __init__(self, board: Board, *, progress: bool) -> None:
        self._board, self._quiet = board, not progress
        self._held: list[str] | None = []
        self._live: Live | None = None
        if progress and somebody_watches():
            self._live = Live(
                console=Console(stderr=True), get_renderable=lambda: picture(self._board), refresh_per_second=5
            )

    def open(self, announcement: str = "") -> None:
        """Begin to show what happens, after the announcement."""
        if self._live is not None:
            self._live.start()
        if announcement:
            self._print(announcement)
        held, self._held = self._held or [], None
        for sentence in held:
            self.say(sentence)

    def say(self, sentence: str) -> None:
        """Show what happened: above the bars, or with the totals in its line."""
        if self._held is not None:
            self._held.append(sentence)
        elif self._live is not None:
            self._print(visible(sentence))
        else:
            self._print(f"{visible(sentence)} ({self._board})")

    def close(self) -> None:
        """Remove the bars."""
        if self._live is not None:
            with suppress(OSError):  # the terminal is gone
                self._live.stop()

    def _print(self, text: str) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.console.print(Text(text))
        elif not self._quiet:
            say(text)


class Dispatch:
    """Hands out the runs of a plan, the longest first, and records what happens to them.

    Args:
        workload: what is to be done. Without shards, the plan is done only when runs of other processes are, too.
        looked: the shapes of the data of the runs, and the device that is recorded with a failure.
        announcement: what is announced of the plan, but for the estimate; None if nothing is.
    """

    def __init__(self, workload: Workload, looked: Looked, announcement: Announcement | None) -> None:
        self._workload, self._looked, self._announcement = workload, looked, announcement
        self._work = {run.identity: cost(run.spec, looked.shapes[run.identity]) for run in workload.left}
        states = [record.state for identity, record in workload.before.items() if identity not in self._work]
        done, diverged = states.count("finished"), states.count("diverged")
        failed = len(states) - done - diverged
        self.board = Board(len(workload.own), sum(self._work.values()), done, diverged, failed)
        self.screen = Screen(self.board, progress=workload.execution.progress)
        self._waiting = deque(sorted(workload.left, key=lambda run: -self._work[run.identity]))
        self._elsewhere: list[PlannedRun] = []
        self._wait_for_others = workload.execution.shard is None
        self._deaths: Counter[str] = Counter()
        self._looked_at = monotonic()
        self.device = looked.device

    @property
    def waiting(self) -> int:
        """Number of runs that wait to be handed out."""
        return len(self._waiting)

    @property
    def something_left(self) -> bool:
        """Whether a run waits or is waited for, apart from those that have been handed out."""
        return bool(self._waiting) or (bool(self._elsewhere) and self._wait_for_others)

    @property
    def to_time(self) -> list[PlannedRun]:
        """Runs whose networks have to be timed before the plan is announced; none if it is not to be announced."""
        return [] if self._announcement is None else self._workload.to_time

    def announce(self, measured: Mapping[str, float] | str) -> None:
        """Show the announcement of the plan, if there is one, then what has happened meanwhile.

        Args:
            measured: seconds of the timed runs by identity, or why they are not known.
        """
        said = ""
        if self._announcement is not None:
            if isinstance(measured, str):
                estimate: TimeEstimate | str = self._workload.without_time(f"not known: {measured}")
            else:
                estimate = self._workload.estimate(self._looked, measured)
            said = visible(str(replace(self._announcement, estimate=estimate)), lines=True)
        self.screen.open(said)

    def take(self) -> PlannedRun | None:
        """The next run that has not ended, is not broken and is not claimed by another process; None if there is none.

        The runs passed over are counted by their state.
        """
        while self._waiting:
            run = self._waiting.popleft()
            now = run.record()
            if not now.to_do:
                self.end(run, now.state)
            elif now.state == "running":
                self.leave_to_others(run)
            else:
                return run
        return None

    def put_back(self, run: PlannedRun) -> None:
        """Put a run that was taken but has not begun back to the front."""
        self._waiting.appendleft(run)

    def begin(self, run: PlannedRun, step: int) -> None:
        """A run begins, or continues at `step`."""
        steps = run.spec.steps(self._looked.shapes[run.identity].examples)
        self.board.start(run, steps, step, self._work[run.identity])
        name = run.spec.step_name
        how = f"continues at {name} {step} of {steps}" if step else f"begins, {steps} {name}s"
        self.screen.say(f"{run.name} {how}")

    def heed(self, run: PlannedRun, report: Mapping[str, Any]) -> bool:
        """Act on a report, and return whether it is the last of its run. Raise what is wrong for all runs."""
        match report["event"]:
            case "at":
                self.board.move(run, report["step"])
                return False
            case "evaluated":
                self.board.move(run, report["step"], report["test_accuracy"])
                return False
            case "ended":
                self.end(run, run.record().state)
            case "elsewhere":
                self.leave_to_others(run)
            case "failed":
                self._fail(run, report["sentence"], recorded=report["recorded"])
            case "refused":
                raise from_message(dict(report))
        return True

    def end(self, run: PlannedRun, state: str) -> None:
        """A run has ended, here or elsewhere."""
        self.board.end(run, state, self._work[run.identity])
        accuracy = run.record().final.get("test_accuracy")
        self.screen.say(f"{run.name} {state}" + ("" if accuracy is None else f", test accuracy {accuracy:.4f}"))

    def died(self, run: PlannedRun, how: str) -> None:
        """The process of a run has died: try again from its checkpoint, unless that has happened too often."""
        self._deaths[run.identity] += 1
        if self._deaths[run.identity] >= DEATHS:
            self.board.leave(run)
            self._fail(run, f"{how}, as {DEATHS - 1} times before", recorded=False)
        else:
            self.try_again(run, how)

    def try_again(self, run: PlannedRun, why: str) -> None:
        """Put a run that had begun back to the front; it continues from its checkpoint."""
        self.board.leave(run)
        self._waiting.appendleft(run)
        self.screen.say(f"{run.name} is tried again from its last checkpoint: {why}")

    def leave_to_others(self, run: PlannedRun) -> None:
        """Another process is computing a run."""
        self.board.leave(run)
        self.board.elsewhere += 1
        self._elsewhere.append(run)
        self.screen.say(f"{run.name} is running in another process")

    def look_again(self) -> None:
        """From time to time, check the runs of other processes: they may have ended, or may have been given up."""
        if not self._wait_for_others or monotonic() - self._looked_at < LOOK_AGAIN:
            return
        self._looked_at = monotonic()
        for run in list(self._elsewhere):
            now = run.record()
            if now.state == "running":
                continue
            self._elsewhere.remove(run)
            self.board.elsewhere -= 1
            if not now.to_do or now.state == "failed":
                self.end(run, now.state)
            else:
                self._waiting.append(run)

    def _fail(self, run: PlannedRun, sentence: str, *, recorded: bool) -> None:
        if not recorded:
            import torch

            from svag.lab.training.run_folder import record_failure

            examples = self._looked.shapes[run.identity].examples
            record_failure(run.spec, run.folder, run.identity, examples, sentence, torch.device(self.device))
        self.board.end(run, "failed", self._work[run.identity])
        self.screen.say(f"{run.name} failed: {sentence}")


@contextmanager
def dispatching(workload: Workload, looked: Looked, announcement: Announcement | None) -> Iterator[Dispatch]:
    """A dispatch of what is left of a plan, and a screen that shows it; closed, whatever happens.

    After an interruption a message says how far the plan is and how to continue.
    """
    dispatch = Dispatch(workload, looked, announcement)
    try:
        with stoppable(always=True):
            yield dispatch
    except KeyboardInterrupt as interrupt:
        sentence = f"interrupted, {dispatch.board.ended} of {dispatch.board.total} runs have ended"
        interrupt.args = (f"{sentence}: the same command continues from the last checkpoints",)
        raise
    finally:
        dispatch.screen.close()
