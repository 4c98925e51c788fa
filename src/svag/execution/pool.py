"""The workers of a plan on this machine: who does what, and what happens when one dies.

A worker is a process that is given orders and sends reports; its own side of that is `svag.execution.worker`. Torch is
imported here only where it is needed: workers can be started before this process imports it, and import it meanwhile.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from svag.execution.execution import DEATHS, GRACE, LOOK_AGAIN, Execution
from svag.execution.plan import PlannedRun

if TYPE_CHECKING:
    from svag.execution.dispatch import Dispatch

# A fresh interpreter that knows the same modules, whatever __main__ is: a script, a notebook, the command line.
_PROGRAM = "import sys; sys.path[:] = {path!r}; from svag.execution.worker import main; main()"


class WorkerProcess:
    """One worker; its reports go into the queue that all workers share, as (worker, report); None when it has ended.

    Args:
        number: which of the workers it is.
        threads: threads of torch that it will use.
        reports: where its reports go.
    """

    def __init__(
        self, number: int, threads: int, reports: "queue.SimpleQueue[tuple[WorkerProcess, dict[str, Any] | None]]"
    ) -> None:
        self.number = number
        self.ready = False
        self.run: PlannedRun | None = None
        with _interrupts_held():
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM.format(path=sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                env={**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONUTF8": "1"},
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._orders, self._lines = self._process.stdin, self._process.stdout
        threading.Thread(target=self._listen, args=(self._lines, reports), daemon=True).start()

    def give(self, run: PlannedRun, execution: Execution) -> None:
        """Send an order; if the worker is dead already, its end is reported through the queue."""
        from svag.execution.dispatch import order_for

        self.run = run
        order = {**order_for(run, execution), "worker": self.number}
        with suppress(OSError):
            self._orders.write(json.dumps(order) + "\n")
            self._orders.flush()

    def how_it_ended(self) -> str:
        """Wait for the end of the process, and say how it came."""
        code = self._process.wait()
        self._close()
        if code >= 0:
            return f"its process ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        memory = ", perhaps for want of memory" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{memory}"

    def terminate(self) -> None:
        """Ask it to end, after a checkpoint if it has a run."""
        self._process.terminate()

    def wait_until(self, when: float) -> None:
        """Wait for its end, but not beyond that moment of the monotonic clock."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(when - monotonic(), 0.0))

    def kill(self) -> None:
        """End it now; runs are made to be killed."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        with suppress(OSError):  # an order that the dead one never read
            self._orders.close()

    def _listen(
        self, lines: IO[str], reports: "queue.SimpleQueue[tuple[WorkerProcess, dict[str, Any] | None]]"
    ) -> None:
        with lines:
            for line in lines:
                try:
                    reports.put((self, json.loads(line)))
                except ValueError:  # a kill cut the last report
                    break
        reports.put((self, None))


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let a Ctrl-C wait while a process starts. The child inherits that for good: only its parent is interrupted."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class WorkerGroup:
    """Worker processes that have been started, perhaps before there is anything to do; a context that ends them.

    Args:
        threads: threads of torch that each will use.
        count: so many are started at once.
    """

    def __init__(self, threads: int, count: int = 0) -> None:
        self._threads = threads
        self.reports: queue.SimpleQueue[tuple[WorkerProcess, dict[str, Any] | None]] = queue.SimpleQueue()
        self.running: list[WorkerProcess] = []
        for number in range(count):
            self.start(number)

    def start(self, number: int) -> None:
        """Start the worker of this number."""
        self.running.append(WorkerProcess(number, self._threads, self.reports))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for worker in self.running:
                worker.terminate()
            until = monotonic() + GRACE
            for worker in self.running:
                worker.wait_until(until)
        finally:  # also when somebody is not patient enough
            for worker in self.running:
                worker.kill()


class Pool:
    """Hands the runs of a plan out to workers.

    Args:
        dispatch: the runs.
        execution: how they are carried out, with the device that was chosen.
        workers: those that have been started; more of them are started when there is more to do.
    """

    def __init__(self, dispatch: "Dispatch", execution: Execution, workers: WorkerGroup) -> None:
        self._dispatch, self._execution, self._workers = dispatch, execution, workers
        self._stillborn = 0

    def work(self) -> None:
        """Carry out all runs."""
        while self._something_left():
            self._start_workers()
            self._hand_out()
            if self._something_left():
                self._listen()
                self._dispatch.look_again()

    def _something_left(self) -> bool:
        return self._dispatch.something_left or any(worker.run is not None for worker in self._workers.running)

    def _start_workers(self) -> None:
        taken = {worker.number for worker in self._workers.running}
        free = [number for number in range(self._execution.workers_on(self._execution.device)) if number not in taken]
        wanted = self._dispatch.waiting - sum(worker.run is None for worker in self._workers.running)
        for number in free[: max(wanted, 0)]:
            self._workers.start(number)

    def _hand_out(self) -> None:
        """Give each free worker the next run."""
        from svag.execution.dispatch import first_step

        for worker in self._workers.running:
            if worker.ready and worker.run is None and (run := self._dispatch.take()) is not None:
                step = first_step(run.folder, run.identity, self._execution.device)
                worker.give(run, self._execution)
                self._dispatch.begin(run, step)

    def _listen(self) -> None:
        try:
            worker, report = self._workers.reports.get(timeout=LOOK_AGAIN)
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
        from svag.execution.dispatch import PlanFailed

        self._workers.running.remove(worker)
        how = worker.how_it_ended()
        if worker.run is not None:
            self._dispatch.died(worker.run, how)
            return
        self._stillborn += 1
        if self._stillborn >= DEATHS:
            raise PlanFailed(f"a worker cannot start, {how}: see what it wrote to standard error")
