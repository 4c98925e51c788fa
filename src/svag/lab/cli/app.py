"""The command line of the laboratory: its commands, their order in the help, and how it starts."""

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from svag import __version__
from svag.lab.cli.experiments import compare, demo, ladder, ngd
from svag.lab.cli.flags import ExperimentCommand
from svag.lab.cli.listing import data
from svag.lab.cli.run import predict, run
from svag.lab.training.watching import make_streams_lossy

TRAIN, ASK, LOOK, CHECK = "One run", "Experiments: several runs and an answer", "Results and data", "The paper"


def make_app() -> typer.Typer:
    """The commands of the laboratory, in the order in which `svag --help` lists them."""
    app = typer.Typer(
        name="svag",
        help="What does a larger batch cost, and does the SDE describe my training?",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    app.command(rich_help_panel=TRAIN)(demo)
    app.command(rich_help_panel=TRAIN, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(run)
    app.command(rich_help_panel=TRAIN)(predict)
    for experiment in (ladder, compare, ngd):
        add_experiment(app, experiment, ASK)
    app.add_typer(data, name="data", rich_help_panel=LOOK)
    return app


def add_experiment(app: typer.Typer, command: Callable[..., None], panel: str) -> None:
    """Add a command that carries out experiments; every field of the spec is a flag."""
    app.command(cls=ExperimentCommand, rich_help_panel=panel, context_settings={"allow_extra_args": True})(command)


def one_line_a_paragraph(text: str) -> str:
    r"""Join the lines of each paragraph: the terminal breaks them itself, and would keep those of a docstring.

    >>> one_line_a_paragraph("Do it.\n\nVery\nwell.")
    'Do it.\n\nVery well.'
    """
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"svag {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Read the options before a command."""


def with_help(app: typer.Typer) -> typer.Typer:
    """Use the docstring of every command as its help."""
    for registered in (*app.registered_commands, *data.registered_commands):
        registered.help = one_line_a_paragraph(inspect.getdoc(registered.callback) or "")
    return app


def start(app: typer.Typer) -> None:
    """Run the command line. A reader that closes the pipe does not change its exit code."""
    make_streams_lossy()
    app()
