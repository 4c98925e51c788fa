"""What a command is about to do: how many runs, how many are done, how long the others may take."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svag.cli.flags import shard_of
from svag.cli.setup import Setup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from svag.execution.estimate import Estimate
    from svag.execution.plan import PlannedRun


@dataclass(frozen=True)
class OnCluster:
    """An estimate for a cluster, of which nothing is known here: it is that of cores of this machine."""

    here: "Estimate"

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**self.here.to_dict(), "of": "cores of this machine"}

    def __str__(self) -> str:
        from svag.execution.duration import roughly

        if not self.here.to_do:
            return str(self.here)
        cores = "one core" if self.here.workers == 1 else f"{self.here.workers} cores"
        todo = f"{self.here.runs} runs, {self.here.done} already done, {self.here.to_do} to do"
        return f"{todo}: about {roughly(self.here.seconds)} on {cores} of this machine; the cluster may be faster"


@dataclass(frozen=True)
class Announcement:
    """What a command is about to do.

    Attributes:
        kind: of the experiment, or "theory".
        title: one line.
        label: in the paper.
        size: of the figure.
        note: how it differs from the paper.
        out: where the runs go.
        runs: how many there are in all.
        estimate: how long they take, or a sentence that says why that is not known.
    """

    kind: str
    title: str
    label: str | None
    size: str | None
    note: str
    out: Path
    runs: int
    estimate: "Estimate | OnCluster | str"

    def __str__(self) -> str:
        head = " at size ".join(filter(None, (self.label, self.size)))
        lines = [f"{head}: {self.title}" if head else self.title]
        if self.note:
            lines.append(f"Differs from the paper: {self.note}.")
        return "\n".join([*lines, f"{self.out}: {self.estimate}"])

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        about = {name: getattr(self, name) for name in ("kind", "title", "label", "size", "note")}
        estimate = {"unknown": self.estimate} if isinstance(self.estimate, str) else self.estimate.to_dict()
        return {**about, "out": str(self.out), "runs": self.runs, "estimate": estimate}


def estimated(plan: "Sequence[PlannedRun]", setup: Setup) -> "Estimate | OnCluster | str":
    """How long what is left of a shard takes; a dry run does not fetch data to find out, and says so."""
    from svag.execution.estimate import estimate_seconds
    from svag.execution.shard import own_runs

    shard = shard_of(setup.shard)
    if setup.dry_run and (absent := _absent(plan, setup.data_dir)):
        own = own_runs(plan, shard)
        runs = "1 run" if len(own) == 1 else f"{len(own)} runs"
        fetch = " and ".join(f"svag data get {name}" for name in absent)
        return (
            f"{runs}, {sum(run.record().ended for run in own)} already done; how long they take is known after {fetch}"
        )
    if setup.executor == "ray":
        workers = setup.workers or 1
        return OnCluster(estimate_seconds(plan, workers=workers, device="cpu", data_dir=setup.data_dir, shard=shard))
    return estimate_seconds(
        plan,
        workers=setup.workers,
        threads=setup.threads,
        device=setup.device,
        data_dir=setup.data_dir,
        shard=shard,
    )


def _absent(plan: "Sequence[PlannedRun]", data_dir: Path | None) -> list[str]:
    """Data sets that would have to be downloaded."""
    from svag.lab.data import members
    from svag.lab.data.places import data_folder
    from svag.lab.data.sources import SOURCES

    names = sorted({run.spec.data.name for run in plan} & set(SOURCES))
    return [name for name in names if members.find(SOURCES[name], data_folder(data_dir)) is None]
