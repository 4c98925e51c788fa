"""The workers of a plan: who does what, and what happens when one dies."""

import queue
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from svag.execution.dispatch import DEATHS, LOOK_AGAIN, Dispatch
from svag.execution.errors import PlanFailed
from svag.execution.worker_process import WorkerProcess


@dataclass(frozen=True)
class Settings:
    """How a plan is carried out."""

    workers: int
    threads: int
    device: torch.device
    data_dir: Path | None
    save_seconds: float

    def order(self) -> dict[str, Any]:
        """What every order says."""
        return {
            "device": self.device.type,
            "data_dir": None if self.data_dir is None else str(self.data_dir),
            "threads": self.threads,
            "save_seconds": self.save_seconds,
        }


class Pool:
    """Worker processes, to which the runs of a plan are handed out.

    Args:
        dispatch: the runs.
        settings: how they are carried out.
    """

    def __init__(self, dispatch: Dispatch, settings: Settings) -> None:
        self._dispatch, self._settings = dispatch, settings
        self._reports: queue.SimpleQueue[tuple[WorkerProcess, dict[str, Any] | None]] = queue.SimpleQueue()
        self._workers: list[WorkerProcess] = []
        self._stillborn = 0

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
                self._dispatch.look_again()

    def _something_left(self) -> bool:
        return self._dispatch.something_left or any(worker.run is not None for worker in self._workers)

    def _start_workers(self) -> None:
        taken = {worker.number for worker in self._workers}
        free = [number for number in range(self._settings.workers) if number not in taken]
        wanted = self._dispatch.waiting - sum(worker.run is None for worker in self._workers)
        for number in free[: max(wanted, 0)]:
            self._workers.append(WorkerProcess(number, self._settings.threads, self._reports))

    def _hand_out(self) -> None:
        """Give each free worker the next run."""
        for worker in self._workers:
            if worker.ready and worker.run is None and (run := self._dispatch.take()) is not None:
                step = run.record().step
                worker.give(run, self._settings.order())
                self._dispatch.begin(run, step)

    def _listen(self) -> None:
        try:
            worker, report = self._reports.get(timeout=LOOK_AGAIN)
        except queue.Empty:
            return
        if report is None:
            self._bury(worker)
        elif report["event"] == "ready":
            worker.ready, self._stillborn = True, 0
        elif worker.run is not None and self._dispatch.heed(worker.run, report):
            worker.run = None

    def _bury(self, worker: WorkerProcess) -> None:
        """A worker has died: its run is tried again, unless that has happened too often."""
        self._workers.remove(worker)
        how = worker.how_it_ended()
        if worker.run is not None:
            self._dispatch.died(worker.run, how)
            return
        self._stillborn += 1
        if self._stillborn >= DEATHS:
            raise PlanFailed(f"a worker cannot start, {how}: see what it wrote to standard error")
