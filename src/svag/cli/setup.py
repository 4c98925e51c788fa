"""What the commands that carry out experiments have in common: where, on what, how much at a time."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

Device = Literal["auto", "cpu", "cuda"]

Base = Annotated[Path, typer.Argument(metavar="BASE", help="A YAML file that describes the SGD run in question.")]
Out = Annotated[Path | None, typer.Option(help="The folder of the experiment; experiments/<name> when not given.")]
Seeds = Annotated[int, typer.Option(min=1, help="Seeds of every arm.")]
Ell = Annotated[
    list[str] | None, typer.Option(metavar="N...", help="Refinements of SVAG: --ell 1 4 16; ell = 1 is SGD.")
]
Split = Annotated[int, typer.Option(min=1, help="Into how many parts SVAG cuts the batch.")]
Limit = Annotated[
    Literal["underdamped", "overdamped"] | None,
    typer.Option("--momentum-limit", help="Which limit SVAG follows when the base has momentum."),
]
Margin = Annotated[float, typer.Option(help="The gap that would not matter, in units of the metric.")]
Metric = Annotated[
    Literal["test_accuracy", "test_loss", "train_loss"],
    typer.Option(help="What is compared; accuracies are fractions."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Runs at a time; as many as there are cores when not given.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads of torch for each run.")]
OnDevice = Annotated[Device, typer.Option("--device", help="Where to compute.")]
DataDir = Annotated[Path | None, typer.Option(help="Where data files are, or shall be.")]
Shard = Annotated[str | None, typer.Option(metavar="I/N", help="Only part I of N of the runs: 0/4, 1/4, 2/4, 3/4.")]
Executor = Annotated[
    Literal["local", "ray"], typer.Option(help="Workers on this machine, or tasks of a Ray cluster (svag[ray]).")
]
Address = Annotated[
    str | None,
    typer.Option(help="The Ray cluster, auto for the one on this machine; a Ray of its own when not given."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be run, and how long it may take; no more.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


@dataclass(frozen=True)
class Setup:
    """How an experiment is carried out."""

    workers: int | None
    threads: int
    device: Device
    data_dir: Path | None
    shard: str | None
    dry_run: bool
    as_json: bool
    executor: Literal["local", "ray"] = "local"
    address: str | None = None
