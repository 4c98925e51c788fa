"""The whole command line: the laboratory's commands and those that know the paper."""

from pathlib import Path
from typing import TYPE_CHECKING

from svag.lab.cli.app import CHECK, add_experiment, add_results, make_app, start, with_help
from svag.lab.cli.report import report_command
from svag.paper.cli.listing import list_runs_or_figures
from svag.paper.cli.reproduce import reproduce
from svag.paper.cli.verify import verify

if TYPE_CHECKING:
    from svag.lab.report.content import Report


def _build(folder: Path) -> "Report":
    from svag.paper.report import build_report

    return build_report(folder)


app = make_app()
add_experiment(app, reproduce, CHECK)
add_results(app, list_runs_or_figures, report_command(_build))
app.command(rich_help_panel=CHECK)(verify)
with_help(app)


def main() -> None:
    """Run the command line."""
    start(app)
