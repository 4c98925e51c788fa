"""A label of the theory: its check, and its picture."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from svag.cli.setup import Setup
    from svag.report.content import Figure

TAILS = "sec:app_heayvtailed"


def reproduce_theory(label: str, size: Literal["smoke", "small", "paper"], out: Path, setup: "Setup") -> None:
    """Check a label and draw it, where there is something to draw; exit code 1 when a check fails."""
    from svag.cli.verify import verify
    from svag.findings.verify import LABELS

    if setup.dry_run:
        what = "one small network is trained" if label == TAILS else "no runs"
        typer.echo(f"{label}: seconds to a few minutes; {what}")
        return
    if label == TAILS:
        _tails(size, out, setup)
        return
    from svag.report.theory import theory_figures

    figures = theory_figures(label)
    paths = _save(figures, out)
    if label in LABELS:
        _tell(figures, paths, as_json=False, quiet=setup.as_json)
        verify([label], as_json=setup.as_json)
    else:
        _tell(figures, paths, as_json=setup.as_json)


def _tails(size: Literal["smoke", "small", "paper"], out: Path, setup: "Setup") -> None:
    """Train one network, and ask its gradients about their tails."""
    from svag.execution.local import execute
    from svag.execution.plan import plan_runs
    from svag.experiments.figures.theory import trained
    from svag.findings.heavy_tails import heavy_tails
    from svag.lab.run_gradients import run_gradients
    from svag.report.theory import tail_figure

    [planned] = plan_runs([trained(size)], out)
    execute([planned], workers=1, threads=setup.threads, device=setup.device, data_dir=setup.data_dir)
    batches = 80 if size == "smoke" else 512
    found = heavy_tails(run_gradients(planned.folder, batches, device=setup.device, data_dir=setup.data_dir))
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
