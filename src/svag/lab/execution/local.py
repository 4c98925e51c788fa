"""Worker processes on this machine: starting them, handing runs to them, and what happens when one dies.

A worker is a process that receives orders and sends reports; its own side is `svag.lab.execution.worker`. This process
does not import torch, which would take longer than all its work: whatever needs torch is left to a worker.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import IO, Any, Self, TypeVar

from svag.lab.execution.dispatch import Dispatch, PlanFailed, from_message, order_for
from svag.lab.execution.execution import DEATHS, GRACE, LOOK_AGAIN, Execution
from svag.lab.execution.plan import DataShape, Looked, PlannedRun

# A fresh interpreter with the same module path, whatever __main__ is: a script, a notebook, the command line.
_PROGRAM = "import sys; sys.path[:] = {path!r}; from svag.lab.execution.worker import main; main()"

_Known = TypeVar("_Known")
_Reports = queue.SimpleQueue[tuple["WorkerProcess", dict[str, Any] | None]]


class WorkerProcess:
    """One worker. Its reports go into the queue that all workers share, as (worker, report); None when it has ended.

    Args:
        number: number of the worker.
        threads: threads of torch that it uses.
        reports: the queue for its reports.
    """

    def __init__(self, number: int, threads: int, reports: _Reports) -> None:
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
        """Let it carry out a run."""
        self.run = run
        self._send({"task": "run", **order_for(run, execution), "worker": self.number})

    def ask(self, task: str, specs: Mapping[str, Any], execution: Execution) -> None:
        """Let it `look` at the data of some specs, by identity, or `time` their networks."""
        self._send({"task": task, "specs": specs, "execution": execution.to_dict()})

    def _send(self, order: Mapping[str, Any]) -> None:
        """Send an order. If the worker is dead already, the queue reports that."""
        with suppress(OSError):
            self._orders.write(json.dumps(order) + "\n")
            self._orders.flush()

    def how_it_ended(self) -> str:
        """Wait for the end of the process, and say how it ended."""
        code = self._process.wait()
        self._close()
        if code >= 0:
            return f"its process ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        memory = ", possibly out of memory" if name == "SIGKILL" else ""
        return f"its process was ended by {name}{memory}"

    def terminate(self) -> None:
        """Ask it to end, after a checkpoint if it has a run."""
        self._process.terminate()

    def wait_until(self, when: float) -> None:
        """Wait for its end, but not beyond this time of the monotonic clock."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(when - monotonic(), 0.0))

    def kill(self) -> None:
        """Kill it at once. Its run continues from the last checkpoint."""
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        with suppress(OSError):  # an order that the dead process never read
            self._orders.close()

    def _listen(self, lines: IO[str], reports: _Reports) -> None:
        with lines:
            for line in lines:
                try:
                    reports.put((self, json.loads(line)))
                except ValueError:  # a kill cut the last report short
                    break
        reports.put((self, None))


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block Ctrl-C while a process starts. The child inherits the block, so that only its parent is interrupted."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _up_to_seed(runs: Iterable[PlannedRun]) -> list[list[PlannedRun]]:
    """Groups of runs that differ only in their seed: one of each group is enough to look at, and to time."""
    groups: dict[str, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(repr(run.spec.model_copy(update={"seed": 0})), []).append(run)
    return list(groups.values())


def _first_specs(groups: Iterable[list[PlannedRun]]) -> dict[str, Any]:
    """The spec of the first run of each group, by identity."""
    return {group[0].identity: group[0].spec.to_dict() for group in groups}


def _for_all(known: Mapping[str, _Known], groups: Iterable[list[PlannedRun]]) -> dict[str, _Known]:
    """What is known of the first run of each group, for all its runs; by identity."""
    return {run.identity: known[group[0].identity] for group in groups for run in group}


class LocalWorkers:
    """Carries out runs in worker processes on this machine; a context that ends them.

    Args:
        execution: how the runs are carried out.
        count: number of workers to start at once, so that they import torch while the plan is looked at.
    """

    def __init__(self, execution: Execution, count: int = 0) -> None:
        self._execution = execution
        self._reports: _Reports = queue.SimpleQueue()
        self._workers: list[WorkerProcess] = []
        self._failed_starts = 0
        self._to_time: list[list[PlannedRun]] = []  # groups that no worker has been asked to time yet
        self._timing: tuple[WorkerProcess, list[list[PlannedRun]]] | None = None
        for number in range(count):
            self._start(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End all workers; those with a run have some seconds to make a checkpoint."""
        try:
            for worker in self._workers:
                worker.terminate()
            until = monotonic() + GRACE
            for worker in self._workers:
                worker.wait_until(until)
        finally:  # also after a second Ctrl-C
            for worker in self._workers:
                worker.kill()
            self._workers.clear()

    def look(self, runs: Iterable[PlannedRun]) -> Looked:
        """Let the first worker that is ready load the data of the runs and check every spec against its data.

        What is wrong for all runs is thus reported once, before any of them starts.
        """
        groups = _up_to_seed(runs)
        asked: WorkerProcess | None = None
        deaths = 0
        while True:
            if not self._workers:
                self._start(0)
            if asked is None and (ready := [worker for worker in self._workers if worker.ready]):
                asked = ready[0]
                asked.ask("look", _first_specs(groups), self._execution)
            worker, report = self._next_report() or (None, None)
            if worker is None:
                continue
            if report is None:
                how, deaths = self._remove(worker), deaths + 1
                if deaths >= DEATHS:
                    doing = "look at the data" if worker is asked else "start"
                    raise PlanFailed(f"a worker cannot {doing}, {how}: see what it wrote to standard error")
                asked = None if worker is asked else asked
            elif report["event"] == "ready":
                worker.ready = True
            elif report["event"] == "looked":
                shapes = {name: DataShape(*shape) for name, shape in report["shapes"].items()}
                return Looked(_for_all(shapes, groups), "cuda" if report["device"] == "cuda" else "cpu")
            elif report["event"] == "refused":
                raise from_message(report)
            else:
                raise PlanFailed(f"a worker cannot look at the data: {report['sentence']}")

    def work(self, dispatch: Dispatch) -> None:
        """Carry out all runs, and end the workers."""
        self._execution = replace(self._execution, device=dispatch.device)
        self._to_time = _up_to_seed(dispatch.to_time)
        try:
            if not self._to_time:
                self._announce(dispatch, {})
            while self._something_left(dispatch):
                self._start_workers(dispatch)
                self._hand_out(dispatch)
                if self._something_left(dispatch):
                    self._listen(dispatch)
                    dispatch.look_again()
        finally:
            self.end()

    def _start(self, number: int) -> None:
        self._workers.append(WorkerProcess(number, self._execution.threads, self._reports))

    def _remove(self, worker: WorkerProcess) -> str:
        """Forget a worker that has died, and say how it ended."""
        self._workers.remove(worker)
        return worker.how_it_ended()

    def _next_report(self) -> tuple[WorkerProcess, dict[str, Any] | None] | None:
        """The next report of a worker; None if none arrives for a while."""
        try:
            return self._reports.get(timeout=LOOK_AGAIN)
        except queue.Empty:
            return None

    def _announce(self, dispatch: Dispatch, seconds: Mapping[str, float] | str) -> None:
        """Announce the plan, with the times that a worker measured, or the reason why there are none."""
        groups = [] if self._timing is None else self._timing[1]
        self._timing = None
        dispatch.announce(seconds if isinstance(seconds, str) else _for_all(seconds, groups))

    def _something_left(self, dispatch: Dispatch) -> bool:
        timing = bool(self._to_time) or self._timing is not None
        return dispatch.something_left or timing or any(worker.run is not None for worker in self._workers)

    def _start_workers(self, dispatch: Dispatch) -> None:
        taken = {worker.number for worker in self._workers}
        free = [number for number in range(self._execution.workers_on(dispatch.device)) if number not in taken]
        to_do = max(dispatch.waiting, bool(self._to_time))
        wanted = to_do - sum(worker.run is None for worker in self._workers)
        for number in free[: max(wanted, 0)]:
            self._start(number)

    def _hand_out(self, dispatch: Dispatch) -> None:
        """Give each free worker the next run, or the networks to time.

        The networks are timed by the first worker that is free while another one has a run, so that the first run does
        not wait for the timing. A single worker times them first, so that the announcement comes before its run.
        """
        for worker in self._workers:
            if not worker.ready or worker.run is not None or self._is_timing(worker):
                continue
            others = [other for other in self._workers if other is not worker]
            time_first = bool(self._to_time) and (not others or any(other.run is not None for other in others))
            if not time_first and (run := dispatch.take()) is not None:
                worker.give(run, self._execution)
            elif self._to_time:
                worker.ask("time", _first_specs(self._to_time), self._execution)
                self._timing, self._to_time = (worker, self._to_time), []

    def _is_timing(self, worker: WorkerProcess) -> bool:
        return self._timing is not None and self._timing[0] is worker

    def _listen(self, dispatch: Dispatch) -> None:
        """Wait for the next report, and act on it."""
        worker, report = self._next_report() or (None, None)
        if worker is None:
            return
        if report is None:
            self._handle_death(worker, dispatch)
        elif report["event"] == "ready":
            worker.ready, self._failed_starts = True, 0
        elif self._is_timing(worker):
            if report["event"] == "refused":
                raise from_message(report)
            self._announce(dispatch, report["seconds"] if report["event"] == "timed" else report["sentence"])
        elif report["event"] == "begins" and worker.run is not None:
            dispatch.begin(worker.run, report["step"])
        elif worker.run is not None and dispatch.heed(worker.run, report):
            worker.run = None

    def _handle_death(self, worker: WorkerProcess, dispatch: Dispatch) -> None:
        """Let the run of a worker that died be tried again; give up if workers die before they have a run."""
        how = self._remove(worker)
        if self._is_timing(worker):
            self._announce(dispatch, how)
        if worker.run is not None:
            dispatch.died(worker.run, how)
            return
        self._failed_starts += 1
        if self._failed_starts >= DEATHS:
            raise PlanFailed(f"a worker cannot start, {how}: see what it wrote to standard error")
