"""`svag report`: the page and the figures of a folder of runs, from its records alone."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from svag.lab.report.tracking import Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from svag.lab.report.content import Report
    from svag.lab.report.write import Written


class Format(StrEnum):
    """The formats of figures."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"
    HTML = "html"


def _build(folder: Path) -> "Report":
    from svag.lab.report.write import build_report

    return build_report(folder)


def report_command(build: "Callable[[Path], Report]" = _build) -> "Callable[..., None]":
    """Make the command; `build` reads a folder and makes its report."""

    def report(
        folder: Annotated[Path, typer.Argument(metavar="DIR", help="An experiment's folder, or any folder of runs.")],
        out: Annotated[Path | None, typer.Option(help="Output folder (default: DIR/report).")] = None,
        kind: Annotated[
            str | None,
            typer.Option(
                "--as",
                metavar="FAMILY",
                help="Treat a folder of runs as an experiment: ladder, compare or ngd.",
            ),
        ] = None,
        formats: Annotated[list[Format] | None, typer.Option("--format", help="Figure format (repeatable).")] = None,
        details: Annotated[bool, typer.Option("--details", help="Print everything that was found.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print the answer and the paths as JSON.")] = False,
        track: Annotated[Tracker | None, typer.Option(help="Also send the recorded curves to this tracker.")] = None,
        open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    ) -> None:
        """Draw the page again from the records: answer, charts, tables and a summary in Markdown.

        Nothing is trained, and the page opens offline. Use --as for runs that were not started as an experiment; it
        writes the missing experiment.json.

        Example: svag report ladder --open
        """
        from svag.lab.cli.errors import reported

        with reported():
            from svag.lab.report.write import write_files

            if kind is not None:
                from svag.lab.experiments import save_experiment
                from svag.lab.experiments.from_runs import experiment_of_runs

                save_experiment(experiment_of_runs(folder, kind), folder)
            made = build(folder)
            chosen = [one.value for one in formats] if formats else ["png", "svg"]
            written = write_files(made, out or folder / "report", chosen)
            if track is not None:
                from svag.lab.experiments.wording import count
                from svag.lab.report.tracking import replay

                typer.echo(f"{count(replay(folder, track), 'run')} sent to {track}", err=True)
        tell(made, written, as_json=as_json, details=details)
        if open_page:
            import webbrowser

            webbrowser.open(written.page.resolve().as_uri())

    return report


def tell(
    report: "Report",
    written: "Written",
    *,
    as_json: bool,
    details: bool = False,
    learned: "Sequence[str]" = (),
) -> None:
    """Print a report as JSON, or its answer in a few lines with the place of the page.

    Args:
        report: what to print.
        written: where its files are.
        as_json: for programs.
        details: print everything.
        learned: what a demo has shown, in plain words; without `details` only the last of them, which is what to do.
    """
    from svag.lab.cli.errors import echo

    if as_json:
        echo(json.dumps({**report.finding, **written.to_dict()}, ensure_ascii=False, indent=2))
        return
    from rich.console import Console

    from svag.lab.report.render import render_brief, render_terminal
    from svag.lab.specs.fields import visible

    console = Console()
    parts, left_out = (render_terminal(report), False) if details else render_brief(report, console.width)
    for part in parts:
        console.print(part)
    for line in learned if details else learned[-1:]:
        console.print(visible(line), markup=False, highlight=False)
    echo(f"Page: {visible(str(written.page))}")
    if details:
        echo(f"Summary: {visible(str(written.summary))}")
    elif left_out:
        echo("All numbers: add --details, or open the page.")
