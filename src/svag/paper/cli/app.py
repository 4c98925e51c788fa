"""The whole command line: the laboratory's commands and those that know the paper."""

from svag.lab.cli.app import CHECK, LOOK, add_experiment, make_app, start, with_help
from svag.paper.cli.listing import list_runs_or_figures
from svag.paper.cli.report import report
from svag.paper.cli.reproduce import reproduce
from svag.paper.cli.verify import verify

app = make_app()
add_experiment(app, reproduce, CHECK)
app.command("list", rich_help_panel=LOOK)(list_runs_or_figures)
app.command(rich_help_panel=LOOK)(report)
app.command(rich_help_panel=CHECK)(verify)
with_help(app)


def main() -> None:
    """Run the command line."""
    start(app)
