"""`svag verify`: the theorems of the paper against exact answers, as a table."""

import difflib
import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from svag.paper.verify.check import Check

# Lines of an answer in a terminal: the summary, where the rest is, and as many checks as fit between them.
LINES = 12
NETWORK_LABELS = {"lem:sc", "cor:sc", "lem:2nd_sde_hessian", "lem:D", "eq:noisy_gd"}


def verify(
    labels: Annotated[
        list[str] | None,
        typer.Argument(metavar="LABEL", help="LaTeX labels in the paper, or our own ours:… (default: all)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the simulated checks.")] = 0,
    details: Annotated[bool, typer.Option("--details", help="Print every check.")] = False,
) -> None:
    """Check the paper's theorems against exact answers, in half a minute.

    Prints how many pass, those that fail, and a few of the others; --details prints all. Rows marked "control" test
    something wrong on purpose, such as a misprinted formula: they pass if the check catches it. Exit code 1 if a check
    fails, 2 if there is no such label.

    Example: svag verify thm:sde_svag lem:sc
    """
    from svag.paper.verify import LABELS, run_topic, topics_for

    chosen = labels or list(LABELS)
    for label in chosen:
        if label not in LABELS:
            near = difflib.get_close_matches(label, LABELS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(LABELS)}."
            raise typer.BadParameter(f"there is no check {label!r}; {hint}", param_hint="LABEL")
    checks: list[Check] = []
    with _progress() as progress:
        topics = topics_for(chosen)
        task = progress.add_task("", total=len(topics) + bool(set(chosen) & NETWORK_LABELS))
        for number, topic in topics:
            progress.update(task, description=", ".join(topic.labels))
            checks += run_topic(number, topic, chosen, seed)
            progress.advance(task)
        if set(chosen) & NETWORK_LABELS:
            progress.update(task, description="on a network")
            checks += _on_a_network(chosen, seed)
    checks.sort(key=lambda check: LABELS.index(check.label))
    if as_json:
        typer.echo(json.dumps([check.to_dict() for check in checks], indent=2))
    else:
        _print(checks, details=details)
    if not all(check.passed for check in checks):
        raise typer.Exit(1)


def _on_a_network(labels: list[str], seed: int) -> "list[Check]":
    """The same identities on a network, and the shipped optimizers stepped on one: the only checks that need torch."""
    from svag.paper.verify.network import network_checks
    from svag.paper.verify.shipped_steps import dynamics_checks

    return [check for check in (*network_checks(seed), *dynamics_checks(seed)) if check.label in labels]


def _progress() -> Progress:
    """A bar on standard error, so that the table or the JSON can be piped."""
    columns = BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    return Progress(*columns, console=Console(stderr=True), transient=True)


def _print(checks: "list[Check]", *, details: bool) -> None:
    console = Console(highlight=False)
    passed, labels = sum(check.passed for check in checks), len({check.label for check in checks})
    controls = sum(check.control for check in checks)
    said = f"{passed} of {len(checks)} checks pass for {labels} label{'' if labels == 1 else 's'}; "
    console.print(f"{said}{controls} of them are negative controls.\n")
    if details:
        console.print(_table(checks))
        return
    shown = [check for check in checks if not check.passed]
    for check in _one_of_each_label_first([check for check in checks if check.passed]):
        more = sorted([*shown, check], key=lambda one: (one.passed, checks.index(one)))
        if len(console.render_lines(_table(more))) > LINES - 3:  # the summary, an empty line, and the last
            break
        shown = more
    console.print(_table(shown))
    if len(shown) < len(checks):
        console.print(f"{len(checks) - len(shown)} more: add --details.")


def _one_of_each_label_first(checks: "Sequence[Check]") -> "list[Check]":
    before: dict[str, int] = {}
    rank = {}
    for number, check in enumerate(checks):
        rank[number] = before[check.label] = before.get(check.label, -1) + 1
    return [checks[number] for number in sorted(rank, key=lambda number: (rank[number], number))]


def _table(checks: "Sequence[Check]") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True, min_width=4)
    table.add_column("label", overflow="fold")
    table.add_column("claim", overflow="fold", min_width=12)
    table.add_column("measured", justify="right", overflow="fold")
    table.add_column("must be", overflow="fold")
    previous = ""
    for check in checks:
        table.add_row(
            "[green]pass[/green]" if check.passed else "[bold red]FAIL[/bold red]",
            check.label if check.label != previous else "",
            f"[dim]control:[/dim] {check.claim}" if check.control else check.claim,
            f"{check.measured:.4g}",
            check.tolerance,
        )
        previous = check.label
    return table
