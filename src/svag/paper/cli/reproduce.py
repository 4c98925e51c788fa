"""`svag reproduce`: a figure or a theorem of the paper by its label, or all figures."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from svag.lab.cli.errors import aloud, echo
from svag.lab.cli.experiments import announce, answer
from svag.lab.cli.flags import Out, Setup, ask_about_code, field_edits, with_setup
from svag.lab.cli.report import tell
from svag.lab.execution.estimate import Announcement, TimeEstimate, Workload, roughly
from svag.lab.execution.plan import copy_runs, ended_elsewhere, plan_runs
from svag.lab.experiments.experiment import Experiment, Size
from svag.lab.experiments.wording import count
from svag.lab.records.record import RunRecord, holds_run
from svag.lab.report.tracking import following
from svag.lab.specs.fields import SpecError
from svag.paper.cli.verify import verify

if TYPE_CHECKING:
    from svag.lab.report.content import Figure, Report, Row
    from svag.lab.report.write import Written

TAILS, ALL = "sec:app_heayvtailed", "all"

Label = Annotated[
    str,
    typer.Argument(metavar="LABEL", help="LaTeX label in the paper (see `svag list figures`), or all for all figures."),
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Compute the runs even if this checkout has their records in results/.")
]
Spec = Annotated[
    bool, typer.Option("--spec", help="Print every setting beside what the paper says, then stop; runs nothing.")
]


@with_setup
def reproduce(
    context: typer.Context,
    label: Label,
    size: Annotated[
        Literal["smoke", "small", "medium", "paper"],
        typer.Option(
            help="smoke: seconds; small: a laptop without a GPU; medium: real CIFAR-10 on a workstation, for three "
            "figures; paper: the paper's setting, for GPUs."
        ),
    ] = "small",
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Seeds per arm (default: as the figure says).")
    ] = None,
    out: Out = None,
    fresh: Fresh = False,
    spec: Spec = False,
    *,
    setup: Setup,
) -> None:
    """Reproduce a figure of the paper, or check and draw a theorem.

    In a checkout of the project, a figure whose runs are recorded in results/ is answered from the records; --fresh
    computes them again. `all` answers every figure in turn and runs what is missing.

    Every field of the specs is also a flag; --sampling shuffle is what the paper used. If interrupted, run the same
    command again: it continues where it stopped.

    Example: svag reproduce fig:lsr_acc_gnr --size small --out ladder

    Example: svag reproduce all --dry-run

    Example: svag reproduce fig:lsr_acc_gnr --spec
    """
    from svag.paper.figures import family, figure, folder_name

    edits = field_edits(context)
    results = None if fresh else find_results(Path.cwd())
    if spec:
        _print_settings(label, size, edits, seeds, as_json=setup.as_json)
        return
    if label == ALL:
        if edits:
            raise SpecError(f"--{next(iter(edits))}", "changes one figure: give its label in place of all")
        _all(size, seeds, out or Path("experiments"), results, setup)
        return
    folder = out or Path("experiments") / f"{folder_name(label)}-{size}"
    if family(label) == "theory":
        _refuse_what_theory_has_not(label, edits, seeds, setup, fresh=fresh)
        _theory(label, size, edits, folder, setup)
    else:
        _figure(figure(label, size).edited(edits, seeds), folder, results, setup)


def _print_settings(label: str, size: Size, edits: Mapping[str, Any], seeds: int | None, *, as_json: bool) -> None:
    """Every setting of every panel of a figure, or of all, with the reason of each deviation from the paper."""
    from svag.paper.figures import LABELS, family
    from svag.paper.figures.settings import LEGEND, PASSES, settings

    if label != ALL and family(label) == "theory":
        raise SpecError("--spec", "a label of the theory has no panels with settings")
    labels = [name for name, kind in LABELS.items() if kind != "theory"] if label == ALL else [label]
    settings_of = {name: settings(name, size, edits, seeds) for name in labels}
    if as_json:
        rows = [{"label": name, **setting.to_dict()} for name in labels for setting in settings_of[name]]
        echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for name in labels:
        for panel in dict.fromkeys(setting.panel for setting in settings_of[name]):
            echo(f"{name}, size {size}: {panel}")
            _print(
                ("setting", "the paper", "here", "because"),
                [s.row() for s in settings_of[name] if s.panel == panel],
            )
            echo("")
    echo(LEGEND)
    if "compare" in map(family, labels):
        echo(PASSES)


def find_results(start: Path) -> Path | None:
    """The folder `results` of the checkout that `start` is in, as a path from there; None outside of one."""
    for above in (start, *start.parents):
        if (above / "results").is_dir() and (above / "src" / "svag" / "cli.py").is_file():
            return Path(os.path.relpath(above / "results", start))
    return None


def _kept(experiment: Experiment, folder: Path, results: Path | None) -> list[RunRecord]:
    """The records in the checkout that answer an experiment; none if runs have begun in its own folder."""
    from svag.paper.figures import kept_records

    if results is None or any(holds_run(run.folder) for run in plan_runs(experiment.runs(), folder)):
        return []
    return kept_records(experiment, results)


def _places(records: Sequence[RunRecord]) -> str:
    """The folders that records are in."""
    folders = list(dict.fromkeys(str(record.path.parent.parent) for record in records))
    return folders[0] if len(folders) == 1 else f"{', '.join(folders[:-1])} and {folders[-1]}"


def _figure(experiment: Experiment, folder: Path, results: Path | None, setup: Setup) -> None:
    """Answer from the records of the checkout if it has them all, and run what is left otherwise."""
    from svag.lab.execution.conduct import preview

    records = _kept(experiment, folder, results)
    if records:
        _refuse_what_records_have_not(records, setup)
        if setup.dry_run:
            announce(_recorded(experiment, records), setup)
            return

        echo(f"{_said(records)}\n--fresh computes them again, in {folder}.", err=True)
        tell(*_report(experiment, records, folder), as_json=setup.as_json, details=setup.details)
        return
    plan = plan_runs(experiment.runs(), folder)
    known = {} if results is None else ended_elsewhere(plan, [results])
    if setup.dry_run:
        announce(preview(experiment, folder, setup.execution, elsewhere=known), setup)
        return
    if known:
        echo(f"{len(known)} of {len(plan)} runs are copied from {results}.", err=True)
        copy_runs(plan, known)
    from svag.paper.figures import judged

    answer(experiment, folder, setup, judge=judged)


def _said(records: Sequence[RunRecord]) -> str:

    seconds = sum(float(record.outcome.get("seconds", 0.0)) for record in records)
    runs = f"{count(len(records), 'run')}, {roughly(seconds)} of computing"
    return f"From the records in {_places(records)} ({runs}); nothing is run."


def _recorded(experiment: Experiment, records: Sequence[RunRecord]) -> Announcement:
    """What is announced of an experiment that the records answer."""
    about = (experiment.kind, experiment.title, experiment.label, experiment.size, experiment.note)
    runs = len(records)
    return Announcement(*about, Path(_places(records)), runs, TimeEstimate(runs, runs, 0, 0.0, 1))


def _refuse_what_records_have_not(records: Sequence[RunRecord], setup: Setup) -> None:
    """Refuse flags about computing where nothing is computed."""
    given = {"--shard": setup.execution.shard, "--executor": setup.execution.executor == "ray", "--track": setup.track}
    for flag, value in given.items():
        if value:
            where = _places(records)
            raise SpecError(flag, f"nothing is run, since {where} has the records: add --fresh to compute them again")


def _report(experiment: Experiment, records: Sequence[RunRecord], folder: Path) -> "tuple[Report, Written]":
    from svag.lab.report.write import report_of, write_files
    from svag.paper.figures import judged

    report = report_of(experiment, records, judged)
    return report, write_files(report, folder / "report", formats=())


def _all(size: Size, seeds: int | None, out: Path, results: Path | None, setup: Setup) -> None:
    """Answer every figure, one after another; a dry run says what each of them costs.

    Runs that two figures share are computed once. Exit code 1 when a run failed.
    """
    from svag.paper.figures import LABELS, MEDIUM, figure, folder_name

    places = [] if results is None else [results]
    rows: list[Row] = []
    planned: set[str] = set()
    for label, kind in LABELS.items():
        folder = out / f"{folder_name(label)}-{size}"
        if (kind == "theory" and not label.startswith("fig:")) or (size == "medium" and label not in MEDIUM):
            continue
        if kind == "theory":
            rows.append(_drawn(label, folder, setup))
            continue
        experiment = figure(label, size).edited({}, seeds)
        records = _kept(experiment, folder, results)
        if setup.dry_run:
            rows.append(_cost(experiment, folder, records, places, planned, setup))
        elif records:
            echo(f"{label}: {_said(records)}", err=True)
            rows.append(_outcome(experiment, records, folder, _places(records)))
        else:
            rows.append(_carried_out(experiment, folder, places, setup))
            places.append(folder)
    if setup.as_json:
        echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        (_print_costs if setup.dry_run else _print_outcomes)(rows, out)
    failures = [failure for row in rows for failure in row.get("failures", [])]
    for failure in failures:
        aloud(f"Error: {failure}")
    if failures:
        raise typer.Exit(1)


def _drawn(label: str, folder: Path, setup: Setup) -> "Row":
    """A figure that is computed exactly, within seconds."""
    from svag.paper.charts.sections import theory_figures

    row = {"label": label, "runs": 0, "to_do": 0, "seconds": 0.0}
    return row if setup.dry_run else {**row, "figures": _save(theory_figures(label), folder)}


def _cost(
    experiment: Experiment,
    folder: Path,
    records: Sequence[RunRecord],
    places: Sequence[Path],
    planned: set[str],
    setup: Setup,
) -> "Row":
    """What a figure costs; runs of the figures before it, which are in `planned`, count as done."""
    from svag.lab.execution.conduct import preview

    if records:
        announced = _recorded(experiment, records)
    else:
        plan = plan_runs(experiment.runs(), folder)
        known = {*planned, *ended_elsewhere(plan, places)}
        announced = preview(experiment, folder, setup.execution, elsewhere=known)
        planned |= {run.identity for run in plan}
    row = {"label": experiment.label, "runs": announced.runs, **announced.to_dict()["estimate"]}
    return {**row, "out": str(announced.out), "recorded": bool(records)}


def _carried_out(experiment: Experiment, folder: Path, places: Sequence[Path], setup: Setup) -> "Row":
    """Run what is left of a figure, and answer."""
    from svag.lab.execution.conduct import conduct

    plan = plan_runs(experiment.runs(), folder)
    copy_runs(plan, ended_elsewhere(plan, places))
    with following(folder, setup.track):
        done = conduct(experiment, folder, setup.execution)
    if done.left:
        return {"label": experiment.label, "runs": len(plan), "left": done.left, "out": str(folder)}
    return {**_outcome(experiment, done.records, folder, str(folder)), "failures": done.failures}


def _outcome(experiment: Experiment, records: Sequence[RunRecord], folder: Path, where: str) -> "Row":
    """What the records of a figure say about the paper's claims, and its page."""
    report, written = _report(experiment, records, folder)
    paper = report.finding.get("paper", {"verdict": None, "claims": []})
    return {"label": experiment.label, "runs": len(records), "out": where, **paper, "page": str(written.page)}


def _print_costs(rows: "Sequence[Row]", out: Path) -> None:

    table = []
    for row in rows:
        cost = [str(row["to_do"]), roughly(row["seconds"]) if row["to_do"] else ""] if "to_do" in row else ["?", "?"]
        there = row["out"] if row.get("recorded") else ""
        table.append(
            [row["label"], str(row["runs"]), *cost, there] if row["runs"] else [row["label"], "", "", "seconds", ""]
        )
    _print(("figure", "runs", "to do", "time", "recorded in"), table)
    left = [row for row in rows if row.get("to_do")]
    if left:
        workers, seconds = max(row["workers"] for row in left), sum(row["seconds"] for row in left)
        runs = count(sum(row["to_do"] for row in left), "run")
        echo(f"\n{runs} to do, about {roughly(seconds)} with {count(workers, 'worker')}, in {out}")
    elif not any("unknown" in row for row in rows):
        echo("\nNothing to run: every figure has its records.")
    for row in rows:
        if "unknown" in row:
            echo(f"{row['label']}: {row['unknown']}")


def _print_outcomes(rows: "Sequence[Row]", out: Path) -> None:
    table = []
    for row in rows:
        said = f"{row['left']} runs left to other shards" if "left" in row else row.get("verdict") or ""
        runs = str(row["runs"]) if row["runs"] else ""
        table.append([row["label"], said if runs else "drawn", runs, row.get("out", "")])
    _print(("figure", "against the paper", "runs", "records"), table)
    echo(f"\nPages: {out}/FIGURE/report/index.html")


def _print(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        number = name in {"runs", "to do", "time"}
        table.add_column(
            name, justify="right" if number else "left", no_wrap=name in {"figure", "setting"}, overflow="fold"
        )
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def _refuse_what_theory_has_not(
    label: str, edits: Mapping[str, Any], seeds: int | None, setup: Setup, *, fresh: bool
) -> None:
    """Refuse flags that would change nothing."""
    given = {
        "fresh": (fresh, "has no records: it is computed every time"),
        next(iter(edits), ""): (edits and label != TAILS, "has no spec to change"),
        "seeds": (seeds, "has no arms to run with several seeds"),
        "shard": (setup.execution.shard, "has no runs to share"),
        "executor": (setup.execution.executor == "ray", "is checked on this machine"),
        "track": (setup.track, "has no curves to log"),
    }
    for flag, (value, why) in given.items():
        if value:
            raise SpecError(f"--{flag}", f"a label of the theory {why}")


def _theory(label: str, size: Size, edits: Mapping[str, Any], out: Path, setup: Setup) -> None:
    """Check a label and draw it, where there is something to draw; exit code 1 when a check fails."""
    from svag.paper.figures import THEORY
    from svag.paper.verify import LABELS

    if label == TAILS:
        _tails(size, edits, out, setup)
        return
    if setup.dry_run:
        takes = "nothing is trained; takes seconds to a minute"
        announce(Announcement("theory", THEORY[label], label, None, "", out, 0, takes), setup)
        return
    from svag.paper.charts.sections import theory_figures

    figures = theory_figures(label)
    paths = _save(figures, out)
    if label in LABELS:
        _tell(figures, paths, as_json=False, quiet=setup.as_json)
        verify([label], as_json=setup.as_json, details=setup.details)
    else:
        _tell(figures, paths, as_json=setup.as_json)


def _tails(size: Size, edits: Mapping[str, Any], out: Path, setup: Setup) -> None:
    """Train a network, and ask its gradients about their tails at several moments; exit code 1 if it cannot be."""
    from svag.lab.execution.conduct import execute, look_ahead, trouble
    from svag.paper.figures import THEORY, trained, until

    spec = trained(size).edited(edits)
    plan = plan_runs(until(spec), out)
    note = "with " + ", ".join(f"{path} = {value}" for path, value in edits.items()) if edits else ""
    title = f"{THEORY[TAILS]} One is trained: {spec.model.arch} {spec.model.norm} on {spec.data.name}"
    alone = replace(setup.execution, workers=1)
    if not setup.dry_run:
        ask_about_code([spec], trusted=setup.trust_code)
    estimate = look_ahead(Workload(plan, alone), fetch=not setup.dry_run)
    announce(Announcement("theory", title, TAILS, size, note, out, len(plan), estimate), setup)
    if setup.dry_run:
        return
    for run, record in zip(plan, execute(plan, alone), strict=True):
        if record.state != "finished":
            aloud(f"Error: {trouble(run, record)}")
            raise typer.Exit(1)
    from svag.lab.training.gradients import run_gradients
    from svag.paper.charts.sections import tail_figure
    from svag.paper.illustrations.heavy_tails import TailMoments, heavy_tails

    batches, coordinates = {"smoke": (80, 400), "small": (512, 100_000), "paper": (512, 400)}[size]  # small: all
    findings = {}
    for run in plan:
        gradients = run_gradients(
            run.folder, batches, coordinates=coordinates, device=alone.device, data_dir=alone.data_dir
        )
        findings[run.spec.steps()] = heavy_tails(gradients)
    figure = tail_figure(tails := TailMoments(findings))
    paths = _save([figure], out)
    if setup.as_json:
        typer.echo(json.dumps({**tails.to_dict(), "figures": paths}, indent=2, ensure_ascii=False))
    else:
        _tell([figure], paths, as_json=False)


def _save(figures: "Sequence[Figure]", out: Path) -> list[str]:
    from svag.lab.report.save import save

    return [str(save(figure.chart, out / f"{figure.name}.{kind}")) for figure in figures for kind in ("html", "png")]


def _tell(figures: "Sequence[Figure]", paths: list[str], *, as_json: bool, quiet: bool = False) -> None:
    if as_json:
        rows = {table.name: table.rows for figure in figures for table in figure.tables}
        typer.echo(json.dumps({"tables": rows, "figures": paths}, indent=2, ensure_ascii=False))
        return
    for sentence in dict.fromkeys(figure.sentence for figure in figures):
        typer.echo(sentence, err=quiet)
    for path in paths:
        typer.echo(f"Drawn: {path}", err=quiet)
