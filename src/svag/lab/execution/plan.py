"""A plan: runs in folders named by their identities, the runs of a shard, and the amount of work of each run.

A run's folder is named by its identity, so a run is found again and never computed twice. Work is only known relative
to other runs, which is enough to start with the longest.
"""

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from svag.lab.execution.execution import Device
from svag.lab.records.identity import identity
from svag.lab.records.problems import Problem
from svag.lab.records.record import RUNS, RunRecord, holds_run, load_headers, read_record
from svag.lab.records.storage import COMPRESSED_METRICS, METRICS, OUTCOME, SPEC, in_use, make_folder
from svag.lab.specs.fields import SpecError
from svag.lab.specs.parts import CHANNELS, FULL_PASS, ModelSpec, family_and_depth
from svag.lab.specs.spec import RunSpec, examples_per_step, updates_per_step
from svag.lab.specs.text import TransformerSpec


@dataclass(frozen=True)
class PlannedRun:
    """A run and its folder.

    Attributes:
        spec: what is run.
        identity: content hash of the spec.
        folder: the run directory.
    """

    spec: RunSpec
    identity: str
    folder: Path
    _ended: list[RunRecord] = field(default_factory=list, compare=False, repr=False)

    @property
    def name(self) -> str:
        """What the run is called among the runs of a plan: process, batch size, seed."""
        return self.spec.name

    def record(self) -> RunRecord:
        """Read its record. One that has ended does not change any more and is read once.

        A run without any files yet counts as interrupted at its start.
        """
        if not self._ended:
            now = self._read()
            if not now.ended:
                return now
            self._ended.append(now)
        return self._ended[0]

    def _read(self) -> RunRecord:
        if holds_run(self.folder):
            return read_record(self.folder)
        try:
            steps = self.spec.steps()
        except SpecError:  # a budget in epochs of an npz file that has not been opened yet
            steps = 0
        if in_use(self.folder):
            return RunRecord(self.folder, "running", self.spec, self.identity, steps, (), {})
        return RunRecord(self.folder, "interrupted", self.spec, self.identity, steps, (), {}, Problem.NOT_BEGUN)


def plan_runs(specs: Iterable[RunSpec], out: Path) -> list[PlannedRun]:
    """Give every spec its folder. A spec that occurs twice is one run, at its first position.

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


def own_runs(plan: Iterable[PlannedRun], shard: tuple[int, int] | None) -> list[PlannedRun]:
    """The runs of shard i of n: those whose identity, as a number, is i modulo n."""
    if shard is None:
        return list(plan)
    index, count = shard
    return [run for run in plan if int(run.identity, 16) % count == index]


def ended_elsewhere(plan: Iterable[PlannedRun], places: Iterable[Path]) -> dict[str, Path]:
    """Find the runs missing from the plan's own folder that have ended in other folders; by identity.

    The same identity means the same bits: it covers the version of the numerics, the probe and the evaluations.
    """
    missing = {run.identity for run in plan if not holds_run(run.folder)}
    found: dict[str, Path] = {}
    for place in places if missing else ():
        for header in load_headers(place):
            if (
                header.identity in missing
                and header.identity not in found
                and read_record(header.path, whole=False).ended
            ):
                found[header.identity] = header.path
    return found


def copy_runs(plan: Iterable[PlannedRun], ended: Mapping[str, Path]) -> None:
    """Copy what `ended_elsewhere` has found into the folders of a plan, without the checkpoints."""
    for run in plan:
        if run.identity in ended and not holds_run(run.folder):
            begun = run.folder.parent.with_name(f".{run.folder.name}")  # an incomplete copy is not a run
            shutil.rmtree(begun, ignore_errors=True)
            for folder in (run.folder.parent, begun):
                make_folder(folder)
            for name in (SPEC, METRICS, COMPRESSED_METRICS, OUTCOME):
                if (ended[run.identity] / name).exists():
                    shutil.copyfile(ended[run.identity] / name, begun / name)
            begun.replace(run.folder)


# An update costs at least as much as this many examples: the time of a step does not fall below a few milliseconds.
OVERHEAD = 16


@dataclass(frozen=True)
class DataShape:
    """What the work of a run depends on: number of training and test examples, channels and side of an image."""

    examples: int
    test_examples: int
    channels: int
    side: int


@dataclass(frozen=True)
class Looked:
    """What is known after the data of the runs has been loaded and every spec checked against it.

    Attributes:
        shapes: the shape of the data of each run, by identity.
        device: the device that the runs use.
    """

    shapes: Mapping[str, DataShape]
    device: Device


def multiply_adds(model: ModelSpec | TransformerSpec, data: DataShape) -> float:
    """Approximate multiply-adds of one example in the forward pass; a user's own network counts as a small one.

    In the convolutional networks the channels double where the area is divided by four, so all layers cost the same:
    9 · channels² · area each.
    """
    if isinstance(model, TransformerSpec):
        return model.depth * 12 * model.width**2 * data.channels  # the channels of a window are its characters
    family, depth = ("resnet", 8) if model.is_callable else family_and_depth(model.arch)
    channels = CHANNELS[family] * model.width
    if family == "mlp":
        return data.channels * data.side**2 * channels + channels**2
    return depth * 9 * channels**2 * data.side**2


def cost(spec: RunSpec, data: DataShape) -> float:
    """Work of a whole run in multiply-adds, up to a common factor; sub-steps included.

    Evaluations are left out: each is one forward pass of the test set, and the runs of a plan have about as many.
    """
    per_step = examples_per_step(spec, data.examples)
    if not isinstance(spec.process, FULL_PASS):
        per_step += OVERHEAD * updates_per_step(spec, data.examples)
    return float(spec.steps(data.examples) * per_step * multiply_adds(spec.model, data))
