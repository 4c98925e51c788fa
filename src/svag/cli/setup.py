"""What the commands that carry out experiments have in common: where, on what, how much at a time."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

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
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]


@dataclass(frozen=True)
class Setup:
    """How an experiment is carried out; every field is a flag of the commands that do so."""

    workers: Workers = None
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch for each run.")] = 1
    device: Annotated[Literal["auto", "cpu", "cuda"], typer.Option(help="Where to compute.")] = "auto"
    data_dir: Annotated[Path | None, typer.Option(help="Where data files are, or shall be.")] = None
    shard: Annotated[
        str | None, typer.Option(metavar="I/N", help="Only part I of N of the runs: 0/4, 1/4, 2/4, 3/4.")
    ] = None
    executor: Annotated[
        Literal["local", "ray"],
        typer.Option(help="Workers on this machine, or tasks of a Ray cluster (the extra ray)."),
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(help="The Ray cluster, auto for the one on this machine; a Ray of its own when not given."),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be run, and how long it may take; no more.")
    ] = False
    as_json: AsJson = False


def with_setup(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of a `Setup` in place of its last parameter, `setup`."""
    *own, last = inspect.signature(command).parameters.values()
    assert last.name == "setup"
    flags = [inspect.Parameter(f.name, last.kind, default=f.default, annotation=f.type) for f in fields(Setup)]

    @wraps(command)
    def with_flags(**given: Any) -> None:
        setup = Setup(**{flag.name: given.pop(flag.name) for flag in flags})
        command(**given, setup=setup)

    with_flags.__signature__ = inspect.Signature([*own, *flags])  # type: ignore[attr-defined]
    with_flags.__annotations__ = {one.name: one.annotation for one in (*own, *flags)}
    return with_flags
