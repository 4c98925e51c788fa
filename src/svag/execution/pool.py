"""The workers of a plan: who does what, and what happens when one dies."""

import queue
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import torch

from svag.execution.board import Board
from svag.execution.cost import DataShape
from svag.execution.errors import PlanFailed, from_message
from svag.execution.plan import PlannedRun
from svag.execution.view import View
from svag.execution.worker_process import WorkerProcess
from svag.lab.failure import record_failure

DEATHS = 3
"""After so many deaths of its worker a run is recorded as failed."""

# Seconds after which a run that another process has is looked at again.
_LOOK_AGAIN = 1.0


@dataclass(frozen=True)
class Settings:
    """How a plan is carried out."""

    workers: int
    threads: int
    device: torch.device
    data_dir: Path | None
    save_seconds: float
    wait_for_others: bool

    def order(self) -> dict[str, Any]:
        """What every order says."""
        return {
            "device": self.device.type,
            "data_dir": None if self.data_dir is None else str(self.data_dir),
            "threads": self.threads,
            "save_seconds": self.save_seconds,
        }


class Pool:
    """Worker processes and the runs that wait for them.

    Args:
        runs: what is to be done, in this order.
        work: how much work each run is, by identity.
        shapes: the shape of each run's data, by identity.
        settings: how.
        board: where the state of the plan is kept.
        view: who is told.
    """

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        work: Mapping[str, float],
        shapes: Mapping[str, DataShape],
        settings: Settings,
        board: Board,
        view: View,
    ) -> None:
        self._waiting = deque(runs)
        self._elsewhere: list[PlannedRun] = []
        self._work, self._shapes, self._settings, self._board, self._view = work, shapes, settings, board, view
        self._reports: queue.SimpleQueue[tuple[WorkerProcess, dict[str, Any] | None]] = queue.SimpleQueue()
        self._workers: list[WorkerProcess] = []
        self._deaths: Counter[str] = Counter()
        self._stillborn = 0
        self._looked = monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.kill()

    def work(self) -> None:
        """Carry out all runs."""
        while self._something_left():
            self._start_workers()
            self._hand_out()
            if self._something_left():
                self._listen()
                self._look_again()

    def _something_left(self) -> bool:
        others = bool(self._elsewhere) and self._settings.wait_for_others
        return bool(self._waiting) or others or any(worker.run is not None for worker in self._workers)

    def _start_workers(self) -> None:
        taken = {worker.number for worker in self._workers}
        free = [number for number in range(self._settings.workers) if number not in taken]
        wanted = len(self._waiting) - sum(worker.run is None for worker in self._workers)
        for number in free[: max(wanted, 0)]:
            self._workers.append(WorkerProcess(number, self._settings.threads, self._reports))

    def _hand_out(self) -> None:
        """Give each free worker the next run that is neither done by now nor in other hands."""
        for worker in self._workers:
            while worker.ready and worker.run is None and self._waiting:
                run = self._waiting.popleft()
                now = run.record()
                if now.ended:
                    self._end(run, now.state)
                elif now.state == "running":
                    self._leave_to_others(run)
                else:
                    steps = run.spec.steps(self._shapes[run.identity].examples)
                    self._board.start(run, steps, now.step, self._work[run.identity])
                    self._view.say(f"{run.name} begins at effective step {now.step} of {steps}")
                    worker.give(run, self._settings.order())

    def _listen(self) -> None:
        try:
            worker, report = self._reports.get(timeout=_LOOK_AGAIN)
        except queue.Empty:
            return
        run = worker.run
        if report is None:
            self._bury(worker)
        elif report["event"] == "ready":
            worker.ready, self._stillborn = True, 0
        elif run is not None:
            self._heed(worker, run, report)

    def _heed(self, worker: WorkerProcess, run: PlannedRun, report: dict[str, Any]) -> None:
        match report["event"]:
            case "at":
                self._board.move(run, report["step"])
                return
            case "evaluated":
                self._board.move(run, report["step"], report["test_accuracy"])
                return
            case "ended":
                self._end(run, run.record().state)
            case "elsewhere":
                self._leave_to_others(run)
            case "failed":
                self._fail(run, report["sentence"], recorded=report["recorded"])
            case "refused":
                raise from_message(report)
        worker.run = None

    def _end(self, run: PlannedRun, state: str) -> None:
        self._board.end(run, state, self._work[run.identity])
        accuracy = run.record().final.get("test_accuracy")
        self._view.say(f"{run.name} {state}" + ("" if accuracy is None else f", test accuracy {accuracy:.4f}"))

    def _fail(self, run: PlannedRun, sentence: str, *, recorded: bool) -> None:
        if not recorded:
            examples = self._shapes[run.identity].examples
            record_failure(run.spec, run.folder, run.identity, examples, sentence, self._settings.device)
        self._board.end(run, "failed", self._work[run.identity])
        self._view.say(f"{run.name} failed: {sentence}")

    def _leave_to_others(self, run: PlannedRun) -> None:
        self._board.leave(run)
        self._board.elsewhere += 1
        self._elsewhere.append(run)
        self._view.say(f"{run.name} is running in another process")

    def _look_again(self) -> None:
        """Now and then, take back what others have ended or left."""
        if not self._settings.wait_for_others or monotonic() - self._looked < _LOOK_AGAIN:
            return
        self._looked = monotonic()
        for run in list(self._elsewhere):
            now = run.record()
            if now.state == "running":
                continue
            self._elsewhere.remove(run)
            self._board.elsewhere -= 1
            if now.ended or now.state == "failed":
                self._end(run, now.state)
            else:
                self._waiting.append(run)

    def _bury(self, worker: WorkerProcess) -> None:
        """A worker has died: its run is tried again from its checkpoint, unless that has happened too often."""
        self._workers.remove(worker)
        how, run = worker.how_it_ended(), worker.run
        if run is None:
            self._stillborn += 1
            if self._stillborn >= DEATHS:
                raise PlanFailed(f"a worker cannot start, {how}: see what it wrote to standard error")
            return
        self._board.leave(run)
        self._deaths[run.identity] += 1
        if self._deaths[run.identity] >= DEATHS:
            self._fail(run, f"{how}, as {DEATHS - 1} times before", recorded=False)
        else:
            self._waiting.appendleft(run)
            self._view.say(f"{run.name} is tried again from its last checkpoint: {how}")
