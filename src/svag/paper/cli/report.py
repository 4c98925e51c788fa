"""`svag report`: the page and the figures of a folder of runs, from its records alone."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from svag.lab.cli.errors import reported
from svag.lab.cli.flags import Details
from svag.lab.cli.report import at_work, tell
from svag.lab.experiments.wording import count
from svag.lab.report.tracking import Tracker, replay


class Format(StrEnum):
    """What a figure can be saved as."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"
    HTML = "html"


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="An experiment's folder, or any folder of runs.")],
    out: Annotated[Path | None, typer.Option(help="Output folder (default: DIR/report).")] = None,
    kind: Annotated[
        str | None,
        typer.Option("--as", metavar="FAMILY", help="Treat a folder of runs as an experiment: ladder, compare or ngd."),
    ] = None,
    formats: Annotated[list[Format] | None, typer.Option("--format", help="Figure format (repeatable).")] = None,
    details: Details = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer and the paths as JSON.")] = False,
    track: Annotated[Tracker | None, typer.Option(help="Also send the recorded curves to this tracker.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Draw the page again from the records: answer, charts, tables and a summary in Markdown.

    Nothing is trained, and the page opens offline. Use --as for runs that were not started as an experiment; it writes
    the missing experiment.json.

    Example: svag report ladder --open
    """
    with reported():
        from svag.lab.report.write import write_files
        from svag.paper.report import build_report

        if kind is not None:
            from svag.lab.experiments import save_experiment
            from svag.lab.experiments.from_runs import experiment_of_runs

            save_experiment(experiment_of_runs(folder, kind), folder)
        chosen = [figure_format.value for figure_format in formats] if formats else ["png", "svg"]
        with at_work("Reading the runs"):
            made = build_report(folder)
        with at_work(f"Drawing {count(len(made.figures), 'figure')}"):
            written = write_files(made, out or folder / "report", chosen)
        if track is not None:
            typer.echo(f"{count(replay(folder, track), 'run')} sent to {track}", err=True)
    tell(made, written, as_json=as_json, details=details)
    if open_page:
        import webbrowser

        webbrowser.open(written.page.resolve().as_uri())
