"""`svag run` and `svag predict`: one run from a YAML spec, and its price list for larger batches."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from svag.lab.cli.errors import all_printed, aloud, echo, processes, reported
from svag.lab.cli.flags import AsJson, DataDir, DeviceFlag, Threads, Track, TrustCode, ask_about_code, edits_from
from svag.lab.experiments.wording import count
from svag.lab.records.identity import identity
from svag.lab.records.record import load_records, read_record
from svag.lab.report.tracking import following
from svag.lab.specs.fields import SpecError, time_point
from svag.lab.specs.spec import RunSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from svag.lab.experiments.baseline import BaselinePredictions
    from svag.prices.price import Throughput


def run(
    context: typer.Context,
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="YAML spec of the run.")],
    out: Annotated[Path | None, typer.Option(help="Run directory (default: runs/<identity>).")] = None,
    device: DeviceFlag = "auto",
    data_dir: DataDir = None,
    threads: Threads = 1,
    trust_code: TrustCode = False,
    track: Track = None,
    as_json: AsJson = False,
) -> None:
    """Train one run from a YAML spec, or continue it where it stopped.

    Every field of the spec is also a flag: --lr 0.1 --model.norm batch. A finished run is read, not repeated. Exit code
    0 when done (a diverged run is a result), 1 if the run fails or its files are damaged.

    On several GPUs: torchrun --nproc-per-node 2 -m svag run SPEC.

    Example: svag run base.yaml --lr 0.1 --process.kind svag --process.ell 4
    """
    from svag.lab.experiments.baseline import shortfall

    with processes(device) as ranks:
        quiet = ranks is not None and ranks.rank > 0
        chosen = RunSpec.load(spec, edits_from(context.args))
        folder = out or Path("runs") / identity(chosen)[:12]
        if not read_record(folder, whole=False).ended:
            ask_about_code([chosen], trusted=trust_code, quiet=quiet)
        if chosen.process.kind == "svag" and chosen.sampling == "shuffle" and not quiet:
            typer.echo(
                "Note: shuffled batches are not independent, which affects a comparison over ell.",
                err=True,
            )
        if not quiet and (caution := shortfall([chosen])):
            typer.echo(f"Note: {caution}", err=True)
        from svag.lab.training.run import keep_freed_memory
        from svag.lab.training.run import run as run_spec

        keep_freed_memory()
        group = None if ranks is None else ranks.group.process_group
        with following(folder, None if quiet else track):
            record = run_spec(chosen, folder, device=device, data_dir=data_dir, threads=threads, process_group=group)
    if not quiet:
        echo(json.dumps(record.to_dict(), ensure_ascii=False, indent=2) if as_json else str(record))
    if not record.ended:  # its files were damaged or removed meanwhile
        raise typer.Exit(1)


def predict(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="Run directories, folders of runs, or files written by svag.append_readings.",
        ),
    ],
    c2: Annotated[float, typer.Option("--c2", help="C²: the price, and the drift, that count as too much.")] = 2.0,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    window: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="FROM TO", help="Part of training to average: steps (4000 8000) or fractions (0.5 0.8)."),
    ] = None,
    throughput: Annotated[
        bool,
        typer.Option("--throughput", help="Time the network's training steps and add wall-clock time to the list."),
    ] = False,
    details: Annotated[
        bool,
        typer.Option("--details", help="Print everything that is known: intervals, history, linear rule, reasons."),
    ] = False,
    device: DeviceFlag = "auto",
    data_dir: DataDir = None,
    threads: Threads = 1,
    trust_code: TrustCode = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the prediction as JSON.")] = False,
) -> None:
    """What does a larger batch cost? Print the price list of larger batches from a run with a probe.

    Several seeds of one setting are averaged; several settings get a line each, and with --details a list each. No
    batch size is promised to be safe. --device, --data-dir, --threads and --trust-code apply to --throughput only.

    Example: svag predict runs/baseline --window 0.5 0.8
    """

    def speeds(spec: RunSpec) -> "Throughput":
        ask_about_code([spec], trusted=trust_code)
        from svag.lab.training.measuring import throughput_of
        from svag.lab.training.run import keep_freed_memory

        keep_freed_memory()  # as in the run itself
        return throughput_of(spec, device=device, data_dir=data_dir, threads=threads)

    with reported():
        found = _predictions(paths, c2, confidence, _steps_or_fractions(window), speeds if throughput else None)
    said = found.skipped if details else found.skipped[:1]
    for sentence in said:
        aloud(f"Note: {sentence}")
    if more := len(found.skipped) - len(said):
        aloud(f"Note: {count(more, 'more run')} not used; --details says why")
    text = found.details() if details else str(found)
    echo(json.dumps(found.to_dict(), ensure_ascii=False, indent=2) if as_json else text)
    all_printed()


def _predictions(
    paths: list[Path],
    c2: float,
    confidence: float,
    window: tuple[float, float] | None,
    speeds: "Callable[[RunSpec], Throughput] | None",
) -> "BaselinePredictions":
    from svag.lab.experiments.baseline import BaselinePredictions, predict_from_files, predict_from_runs

    files = [path for path in paths if path.is_file()]
    for path in paths:
        if not path.exists():
            raise SpecError("", f"there is no folder or file {path}: give a finished run, or a file of readings")
    if files and speeds is not None:
        raise SpecError(
            "--throughput",
            f"the network behind {files[0]} is not known: measure it with svag.measure_throughput, and give that to "
            "found.prices(throughput=…)",
        )
    parts = [predict_from_files(files, c2, confidence, window)] if files else []
    if len(files) < len(paths):
        folders = [path for path in paths if path not in files]
        records = {record.path.resolve(): record for folder in folders for record in load_records(folder)}
        if not records:
            raise SpecError("", f"there is no run in {folders[0]}: give a folder that svag run has written")
        parts.append(predict_from_runs(records.values(), c2, confidence, window, speeds))
    return BaselinePredictions(
        tuple(prediction for part in parts for prediction in part.predictions),
        tuple(sentence for part in parts for sentence in part.skipped),
    )


def _steps_or_fractions(window: tuple[str, str] | None) -> tuple[float, float] | None:

    if window is None:
        return None
    try:
        return time_point(window[0]), time_point(window[1])
    except ValueError as error:
        raise SpecError("--window", str(error)) from None
