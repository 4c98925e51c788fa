"""What is known of a plan while it is carried out: numbers, which a view shows."""

from dataclasses import dataclass, field
from time import monotonic

from svag.execution.plan import PlannedRun


@dataclass
class Line:
    """A run that is running: its name, where it is, how good it is, and its work."""

    name: str
    steps: int
    work: float
    step: int = 0
    first: int = 0
    accuracy: float | None = None


@dataclass
class Board:
    """The state of a plan.

    Attributes:
        total: runs in all.
        done: runs that finished.
        diverged: runs that diverged, which is a result too.
        failed: runs that failed.
        elsewhere: runs that another process has.
        running: runs that run here, by identity.
        work_left: work of the runs that have not ended, up to a common factor.
        work_done: work done since the start, in the same units, of runs that ended here.
        began: when the first run began, by the clock.
    """

    total: int
    work_left: float
    done: int = 0
    diverged: int = 0
    failed: int = 0
    elsewhere: int = 0
    running: dict[str, Line] = field(default_factory=dict)
    work_done: float = 0.0
    began: float | None = None

    @property
    def ended(self) -> int:
        """Runs that have come to an end of any kind."""
        return self.done + self.diverged + self.failed

    @property
    def to_do(self) -> int:
        """Runs that wait for a worker."""
        return self.total - self.ended - self.elsewhere - len(self.running)

    def start(self, run: PlannedRun, steps: int, step: int, work: float) -> None:
        """A worker takes a run, which was at `step` already."""
        if self.began is None:
            self.began = monotonic()
        self.running[run.identity] = Line(run.name, steps, work, step, step)

    def move(self, run: PlannedRun, step: int, accuracy: float | None = None) -> None:
        """A run is at `step`."""
        line = self.running[run.identity]
        line.step = step
        line.accuracy = line.accuracy if accuracy is None else accuracy

    def leave(self, run: PlannedRun) -> None:
        """A run is taken from its worker, but has not ended."""
        self.running.pop(run.identity, None)

    def end(self, run: PlannedRun, state: str, work: float) -> None:
        """A run has ended, here or elsewhere."""
        line = self.running.pop(run.identity, None)
        if line is not None:
            self.work_done += _share(line, line.steps)
        self.work_left -= work
        match state:
            case "finished":
                self.done += 1
            case "diverged":
                self.diverged += 1
            case _:
                self.failed += 1

    def seconds_left(self, now: float | None = None) -> float | None:
        """What is left, at the pace of what has been done since the start; None as long as nothing has been done.

        elapsed · (work left) / (work done), with the parts of the running runs on their sides.
        """
        lines = self.running.values()
        done = self.work_done + sum(_share(line, line.step) for line in lines)
        left = self.work_left - sum(line.work * line.step / line.steps for line in lines if line.steps)
        if self.began is None or done <= 0:
            return None
        return ((monotonic() if now is None else now) - self.began) * max(left, 0.0) / done

    def totals(self) -> str:
        """The state in words."""
        parts = [f"{self.done} of {self.total} done", f"{len(self.running)} running", f"{self.to_do} to do"]
        parts += [f"{self.elsewhere} running elsewhere"] if self.elsewhere else []
        parts += [f"{self.diverged} diverged"] if self.diverged else []
        parts += [f"{self.failed} failed"] if self.failed else []
        return ", ".join(parts)


def _share(line: Line, step: int) -> float:
    """Work done here on a run that is at `step`."""
    return line.work * (step - line.first) / line.steps if line.steps else 0.0
