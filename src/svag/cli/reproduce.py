"""`svag reproduce`: a figure or a theorem of the paper, by its label."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from svag.cli.errors import aloud
from svag.cli.experiments import announce, answer
from svag.cli.flags import Out, Setup, ask_about_code, field_edits, with_setup
from svag.records.fields import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from svag.experiments.base import Size
    from svag.report.content import Figure

TAILS = "sec:app_heayvtailed"


Label = Annotated[str, typer.Argument(metavar="LABEL", help="LaTeX label in the paper, as in `svag list figures`.")]


@with_setup
def reproduce(
    context: typer.Context,
    label: Label,
    size: Annotated[
        Literal["smoke", "small", "paper"],
        typer.Option(help="smoke: seconds; small: a laptop without a GPU; paper: the paper's own setting."),
    ] = "small",
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Seeds per arm (default: the figure's own).")
    ] = None,
    out: Out = None,
    *,
    setup: Setup,
) -> None:
    """Reproduce a figure of the paper, or check a theorem and draw it.

    Every field of the specs is also a flag: --sampling shuffle is what the paper used. The same command continues after
    an interruption; nothing is computed twice.

    Example: svag reproduce fig:lsr_acc_gnr --size small --out ladder
    """
    from svag.experiments.figures import family, figure

    edits = field_edits(context)
    folder = out or Path("experiments") / f"{label.replace(':', '-')}-{size}"
    if family(label) == "theory":
        _refuse_what_theory_has_not(label, edits, seeds, setup)
        _theory(label, size, edits, folder, setup)
    else:
        answer(figure(label, size).edited(edits, seeds), folder, setup)


def _refuse_what_theory_has_not(label: str, edits: "Mapping[str, Any]", seeds: int | None, setup: Setup) -> None:
    """Refuse flags that would change nothing."""
    if edits and label != TAILS:
        raise SpecError(f"--{next(iter(edits))}", "a label of the theory has no spec to change")
    if seeds is not None:
        raise SpecError("--seeds", "a label of the theory has no arms to run with several seeds")
    if setup.execution.shard is not None:
        raise SpecError("--shard", "a label of the theory has no runs to share")
    if setup.execution.executor == "ray":
        raise SpecError("--executor", "a label of the theory is checked on this machine")
    if setup.track is not None:
        raise SpecError("--track", "a label of the theory has no curves to log")


def _theory(label: str, size: "Size", edits: "Mapping[str, Any]", out: Path, setup: Setup) -> None:
    """Check a label and draw it, where there is something to draw; exit code 1 when a check fails."""
    from svag.cli.verify import verify
    from svag.execution.conduct import Announcement
    from svag.experiments.figures import THEORY
    from svag.findings.verify import LABELS

    if label == TAILS:
        _tails(size, edits, out, setup)
        return
    if setup.dry_run:
        takes = "no runs, nothing is trained; it takes seconds to a minute"
        announce(Announcement("theory", THEORY[label], label, None, "", out, 0, takes), setup)
        return
    from svag.report.sections import theory_figures

    figures = theory_figures(label)
    paths = _save(figures, out)
    if label in LABELS:
        _tell(figures, paths, as_json=False, quiet=setup.as_json)
        verify([label], as_json=setup.as_json)
    else:
        _tell(figures, paths, as_json=setup.as_json)


def _tails(size: "Size", edits: "Mapping[str, Any]", out: Path, setup: Setup) -> None:
    """Train one network, and ask its gradients about their tails; exit code 1 when it cannot be trained."""
    from svag.execution.conduct import Announcement, execute, look_ahead, trouble
    from svag.execution.plan import plan_runs
    from svag.experiments.figures import THEORY, trained

    spec = trained(size).edited(edits)
    plan = plan_runs([spec], out)
    note = "with " + ", ".join(f"{path} = {value}" for path, value in edits.items()) if edits else ""
    title = f"{THEORY[TAILS]} One is trained: {spec.model.arch} {spec.model.norm} on {spec.data.name}"
    alone = replace(setup.execution, workers=1)
    if not setup.dry_run:
        ask_about_code([spec], trusted=setup.trust_code)
    estimate, shapes = look_ahead(plan, alone, fetch=not setup.dry_run)
    announce(Announcement("theory", title, TAILS, size, note, out, 1, estimate), setup)
    if setup.dry_run:
        return
    [record] = execute(plan, alone, shapes)
    if record.state != "finished":
        aloud(f"Error: {trouble(plan[0], record)}")
        raise typer.Exit(1)
    from svag.findings.heavy_tails import heavy_tails
    from svag.lab.gradients import run_gradients
    from svag.report.sections import tail_figure

    batches = 80 if size == "smoke" else 512
    found = heavy_tails(run_gradients(plan[0].folder, batches, device=alone.device, data_dir=alone.data_dir))
    figure = tail_figure(found)
    paths = _save([figure], out)
    if setup.as_json:
        typer.echo(json.dumps({**found.to_dict(), "figures": paths}, indent=2, ensure_ascii=False))
    else:
        _tell([figure], paths, as_json=False)


def _save(figures: "Sequence[Figure]", out: Path) -> list[str]:
    from svag.report.save import save

    return [str(save(one.chart, out / f"{one.name}.{kind}")) for one in figures for kind in ("html", "png")]


def _tell(figures: "Sequence[Figure]", paths: list[str], *, as_json: bool, quiet: bool = False) -> None:
    if as_json:
        rows = {table.name: table.rows for one in figures for table in one.tables}
        typer.echo(json.dumps({"tables": rows, "figures": paths}, indent=2, ensure_ascii=False))
        return
    for sentence in dict.fromkeys(one.sentence for one in figures):
        typer.echo(sentence, err=quiet)
    for path in paths:
        typer.echo(f"Drawn: {path}", err=quiet)
