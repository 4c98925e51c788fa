"""A worker as the one who starts it sees it: a process that is given orders and sends reports."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

from svag.execution.plan import PlannedRun

if TYPE_CHECKING:
    import queue

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

    @property
    def process_id(self) -> int:
        """The number by which the system knows it."""
        return self._process.pid

    def give(self, run: PlannedRun, settings: dict[str, Any]) -> None:
        """Send an order; if the worker is dead already, its end is reported through the queue."""
        self.run = run
        order = {
            "spec": run.spec.to_dict(),
            "identity": run.identity,
            "folder": str(run.folder),
            "worker": self.number,
            **settings,
        }
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
