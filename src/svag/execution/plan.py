"""A plan: runs, each in a folder that its identity names, so that the same run is found again and never made twice."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from svag.records.experiment import RUNS
from svag.records.identity import identity
from svag.records.record import METRICS, SPEC, RunRecord, read_record
from svag.records.refusal import SpecError
from svag.records.run_lock import in_use
from svag.records.spec import RunSpec


@dataclass(frozen=True)
class PlannedRun:
    """A run and its place.

    Attributes:
        spec: what is run.
        identity: its content hash.
        folder: its run directory.
    """

    spec: RunSpec
    identity: str
    folder: Path

    @property
    def name(self) -> str:
        """What it is called among the runs of a plan: process, batch size, seed."""
        settings = self.spec.process.model_dump(exclude={"kind"}, exclude_none=True)
        process = " ".join([self.spec.process.kind, *(f"{key}={value}" for key, value in settings.items())])
        return f"{process} B={self.spec.batch_size} seed={self.spec.seed}"

    def record(self) -> RunRecord:
        """What there is of it. A run that nobody has written anything of is an interrupted one at its start."""
        if (self.folder / SPEC).exists() or (self.folder / METRICS).exists():
            return read_record(self.folder)
        try:
            steps = self.spec.steps()
        except SpecError:  # epochs of an npz file that has not been opened
            steps = 0
        if in_use(self.folder):
            return RunRecord(self.folder, "running", self.spec, self.identity, steps, (), {})
        return RunRecord(self.folder, "interrupted", self.spec, self.identity, steps, (), {}, "not begun yet")


def plan_runs(specs: Iterable[RunSpec], out: Path) -> list[PlannedRun]:
    """Give every spec its folder; a spec that occurs twice is one run, at its first place.

    >>> spec = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> plan = plan_runs([spec, spec.edited({"seed": 1}), spec.edited({"lr": 1.0})], Path("out"))
    >>> [run.name for run in plan]
    ['sgd B=8 seed=0', 'sgd B=8 seed=1']
    >>> plan[0].folder == Path("out") / "runs" / plan[0].identity[:12]
    True
    """
    planned: dict[str, PlannedRun] = {}
    for spec in specs:
        name = identity(spec)
        planned.setdefault(name, PlannedRun(spec, name, out / RUNS / name[:12]))
    return list(planned.values())
