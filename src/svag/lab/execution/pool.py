"""The workers of a plan on this machine: who does what, and what happens when one dies.

A worker is a process that is given orders and sends reports; its own side of that is `svag.lab.execution.worker`. This
process does not import torch, which takes longer than all that it has to do: what needs it is asked of a worker.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from svag.lab.execution.dispatch import Dispatch, PlanFailed, from_message, order_for
from svag.lab.execution.execution import DEATHS, GRACE, LOOK_AGAIN, Device, Execution
from svag.lab.execution.plan import DataShape, PlannedRun

# A fresh interpreter that knows the same modules, whatever __main__ is: a script, a notebook, the command line.
_PROGRAM = "import sys; sys.path[:] = {path!r}; from svag.lab.execution.worker import main; main()"


@dataclass(frozen=True)
class Looked:
    """What a worker saw: the shape of the data of each run, by identity, and the device that they run on."""

    shapes: Mapping[str, DataShape]
    device: Device


@dataclass(frozen=True)
class Announcing:
    """How a plan is announced while its first runs are under way already.

    Attributes:
        to_time: runs whose networks are timed for it.
        text: the announcement, from the seconds of those runs by identity, or from why they are not known.
    """

    to_time: Iterable[PlannedRun]
    text: Callable[[Mapping[str, float] | str], str]


_Known = TypeVar("_Known")


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
        """Let it carry out a run."""
        self.run = run
        self._send({"task": "run", **order_for(run, execution), "worker": self.number})

    def ask(self, task: str, specs: Mapping[str, Any], execution: Execution) -> None:
        """Let it `look` at the data of some specs, by identity, or `time` their networks."""
        self._send({"task": task, "specs": specs, "execution": execution.to_dict()})

    def _send(self, order: Mapping[str, Any]) -> None:
        """Send an order; if the worker is dead already, its end is reported through the queue."""
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


def _alike(runs: Iterable[PlannedRun]) -> list[list[PlannedRun]]:
    """Runs that differ in their seed alone: one of them is enough to look at, and to time."""
    found: dict[str, list[PlannedRun]] = {}
    for run in runs:
        found.setdefault(repr(run.spec.model_copy(update={"seed": 0})), []).append(run)
    return list(found.values())


def _for_all(known: Mapping[str, _Known], alike: Iterable[list[PlannedRun]]) -> dict[str, _Known]:
    """What is known of the first of runs that are alike, for all of them; by identity."""
    return {run.identity: known[same[0].identity] for same in alike for run in same}


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

    def next_report(self) -> "tuple[WorkerProcess, dict[str, Any] | None] | None":
        """The next report of a worker; None if there is none for a while."""
        try:
            return self.reports.get(timeout=LOOK_AGAIN)
        except queue.Empty:
            return None

    def look(self, runs: Iterable[PlannedRun], execution: Execution) -> Looked:
        """Let the first worker that is ready look at the data of the runs, each of which must fit its data.

        What is wrong for all runs is thus said once, before any of them starts.
        """
        alike = _alike(runs)
        asked: WorkerProcess | None = None
        deaths = 0
        while True:
            if not self.running:
                self.start(0)
            if asked is None and (ready := [worker for worker in self.running if worker.ready]):
                asked = ready[0]
                asked.ask("look", {same[0].identity: same[0].spec.to_dict() for same in alike}, execution)
            worker, report = self.next_report() or (None, {"event": "nothing"})
            if worker is not None and report is None:
                self.running.remove(worker)
                how, deaths = worker.how_it_ended(), deaths + 1
                if deaths >= DEATHS:
                    doing = "look at the data" if worker is asked else "start"
                    raise PlanFailed(f"a worker cannot {doing}, {how}: see what it wrote to standard error")
                asked = None if worker is asked else asked
            elif worker is not None and report is not None:
                match report["event"]:
                    case "ready":
                        worker.ready = True
                    case "looked":
                        shapes = {name: DataShape(*shape) for name, shape in report["shapes"].items()}
                        return Looked(_for_all(shapes, alike), "cuda" if report["device"] == "cuda" else "cpu")
                    case "refused":
                        raise from_message(report)
                    case _:
                        raise PlanFailed(f"a worker cannot look at the data: {report['sentence']}")

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
        announcing: how the plan is announced; None if nothing is to be said.
    """

    def __init__(
        self, dispatch: Dispatch, execution: Execution, workers: WorkerGroup, announcing: Announcing | None = None
    ) -> None:
        self._dispatch, self._execution, self._workers = dispatch, execution, workers
        self._stillborn = 0
        self._announcing = announcing
        self._to_time = _alike(announcing.to_time) if announcing else []
        self._timing: WorkerProcess | None = None
        self._timed = self._to_time

    def work(self) -> None:
        """Carry out all runs."""
        if not self._to_time:
            self._announce({})
        while self._something_left():
            self._start_workers()
            self._hand_out()
            if self._something_left():
                self._listen()
                self._dispatch.look_again()

    def _announce(self, seconds: Mapping[str, float] | str) -> None:
        """Announce the plan, with the times of what a worker has timed."""
        self._timing = None
        if self._announcing is not None:
            known = seconds if isinstance(seconds, str) else _for_all(seconds, self._timed)
            self._dispatch.announce(self._announcing.text(known))

    def _something_left(self) -> bool:
        timing = bool(self._to_time) or self._timing is not None
        at_work = timing or any(worker.run is not None for worker in self._workers.running)
        return self._dispatch.something_left or at_work

    def _start_workers(self) -> None:
        taken = {worker.number for worker in self._workers.running}
        free = [number for number in range(self._execution.workers_on(self._execution.device)) if number not in taken]
        to_do = max(self._dispatch.waiting, bool(self._to_time))
        wanted = to_do - sum(worker.run is None for worker in self._workers.running)
        for number in free[: max(wanted, 0)]:
            self._workers.start(number)

    def _hand_out(self) -> None:
        """Give each free worker the next run; one of them times the networks first, when another is at work or none is.

        So the first run does not wait for that, and with a single worker it is known how long it will take.
        """
        for worker in self._workers.running:
            if not worker.ready or worker.run is not None or worker is self._timing:
                continue
            others = [other for other in self._workers.running if other is not worker]
            time_first = bool(self._to_time) and (not others or any(other.run is not None for other in others))
            if not time_first and (run := self._dispatch.take()) is not None:
                worker.give(run, self._execution)
            elif self._to_time:
                specs = {same[0].identity: same[0].spec.to_dict() for same in self._to_time}
                self._timing, self._to_time = worker, []
                worker.ask("time", specs, self._execution)

    def _listen(self) -> None:
        worker, report = self._workers.next_report() or (None, None)
        if worker is None:
            return
        if report is None:
            self._bury(worker)
        elif report["event"] == "ready":
            worker.ready, self._stillborn = True, 0
        elif worker is self._timing:
            if report["event"] == "refused":
                raise from_message(report)
            self._announce(report["seconds"] if report["event"] == "timed" else report["sentence"])
        elif report["event"] == "begins" and worker.run is not None:
            self._dispatch.begin(worker.run, report["step"])
        elif worker.run is not None and self._dispatch.heed(worker.run, report):
            worker.run = None

    def _bury(self, worker: WorkerProcess) -> None:
        """A worker has died: its run is tried again, unless that has happened too often."""
        self._workers.running.remove(worker)
        how = worker.how_it_ended()
        if worker is self._timing:
            self._announce(how)
        if worker.run is not None:
            self._dispatch.died(worker.run, how)
            return
        self._stillborn += 1
        if self._stillborn >= DEATHS:
            raise PlanFailed(f"a worker cannot start, {how}: see what it wrote to standard error")
