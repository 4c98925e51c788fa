"""`svag report`: the page and the figures of a folder of runs, from its records alone."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from svag.lab.report.tracking import Tracker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from svag.lab.report.build import Written
    from svag.lab.report.content import Report


class Format(StrEnum):
    """What a figure can be saved as."""

    PNG = "png"
    SVG = "svg"
    PDF = "pdf"
    HTML = "html"


def _build(folder: Path) -> "Report":
    from svag.lab.report.build import build_report

    return build_report(folder)


def report_command(build: "Callable[[Path], Report]" = _build) -> "Callable[..., None]":
    """The command, with what it knows of a folder: `build` reads it and says what it means."""

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
            from svag.lab.report.build import write_files

            if kind is not None:
                from svag.lab.experiments import save_experiment
                from svag.lab.experiments.from_runs import experiment_of_runs

                save_experiment(experiment_of_runs(folder, kind), folder)
            found = build(folder)
            chosen = [one.value for one in formats] if formats else ["png", "svg"]
            written = write_files(found, out or folder / "report", chosen)
            if track is not None:
                from svag.lab.experiments.wording import count
                from svag.lab.report.tracking import replay

                typer.echo(f"{count(replay(folder, track), 'run')} sent to {track}", err=True)
        tell(found, written, as_json=as_json)
        if open_page:
            import webbrowser

            webbrowser.open(written.page.resolve().as_uri())

    return report


def tell(found: "Report", written: "Written", *, as_json: bool, learned: "Iterable[str] | None" = None) -> None:
    """Print a report as JSON, or as a table with the places of the page and the summary.

    Args:
        found: the report.
        written: where its files are.
        as_json: for programs.
        learned: what it comes to, in plain words: the table is then short.
    """
    from svag.lab.cli.errors import echo

    if as_json:
        echo(json.dumps({**found.finding, **written.to_dict()}, ensure_ascii=False, indent=2))
        return
    from rich.console import Console

    from svag.lab.report.render import render_terminal
    from svag.lab.specs.fields import visible

    console = Console()
    for part in render_terminal(found, brief=learned is not None):
        console.print(part)
    if learned is not None:
        console.print("\nWhat this shows", style="bold", highlight=False)
        for line in learned:
            console.print(visible(line), markup=False, highlight=False)
    echo(f"\nPage: {visible(str(written.page))}\nSummary: {visible(str(written.summary))}")
