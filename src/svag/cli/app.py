"""The commands, and how an error reaches the user: one sentence and an exit code, never a traceback."""

import inspect
import io
import sys
from typing import Annotated

import typer

import svag
from svag.cli.experiments import compare, demo, ladder, ngd
from svag.cli.flags import ExperimentCommand
from svag.cli.listing import data, list_runs
from svag.cli.report import report
from svag.cli.reproduce import reproduce
from svag.cli.run import predict, run
from svag.cli.verify import verify

app = typer.Typer(
    name="svag",
    help="What does a larger batch cost, and does the SDE describe my training?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
TRAIN, ASK, LOOK, CHECK = "One run", "Experiments: several runs and an answer", "Results and data", "The paper"
app.command(rich_help_panel=TRAIN)(demo)
app.command(rich_help_panel=TRAIN, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(run)
app.command(rich_help_panel=TRAIN)(predict)
for experiment, panel in ((ladder, ASK), (compare, ASK), (ngd, ASK), (reproduce, CHECK)):
    app.command(cls=ExperimentCommand, rich_help_panel=panel, context_settings={"allow_extra_args": True})(experiment)
app.command("list", rich_help_panel=LOOK)(list_runs)
app.command(rich_help_panel=LOOK)(report)
app.add_typer(data, name="data", rich_help_panel=LOOK)
app.command(rich_help_panel=CHECK)(verify)


def one_line_a_paragraph(text: str) -> str:
    r"""Text for a terminal, which breaks lines itself: the breaks of a docstring would stay, and look ragged.

    >>> one_line_a_paragraph("Do it.\n\nVery\nwell.")
    'Do it.\n\nVery well.'
    """
    return "\n\n".join(" ".join(one.split()) for one in text.split("\n\n"))


for registered in (*app.registered_commands, *data.registered_commands):
    registered.help = one_line_a_paragraph(inspect.getdoc(registered.callback) or "")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"svag {svag.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Read the options that stand before a command."""


def main() -> None:
    """Run the command line; a terminal that has no η gets a question mark, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()
