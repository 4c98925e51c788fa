"""`svag demo`: the main job on the embedded data, from one run to a page."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from svag.cli.setup import AsJson, Setup, Workers

Question = Annotated[
    Literal["scaling", "sde"],
    typer.Option(help="scaling: how far can I scale the batch? sde: does the SDE describe my SGD?"),
]


def demo(
    question: Question = "scaling",
    out: Annotated[Path | None, typer.Option(help="Where to work; demo-<question> when not given.")] = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Answer one of the two questions on embedded data, in about four minutes on two cores, and write the page.

    First a baseline is trained and measured, and B* is predicted from it; then a short ladder of batch sizes checks the
    prediction. With --question sde, SGD is compared with SVAG at a batch that is too large for linear scaling.

    Example: svag demo --question sde
    """
    from svag.cli.conduct import conduct
    from svag.cli.errors import reported
    from svag.experiments.demo import SCALING, SDE

    setup = Setup(workers=workers, as_json=as_json)
    folder = out or Path(f"demo-{question}")
    with reported():
        if question == "scaling":
            _predict_first(folder, setup)
        conduct(SCALING if question == "scaling" else SDE, folder, setup)


def _predict_first(folder: Path, setup: Setup) -> None:
    """Train the smallest batch size alone, and say what it predicts before anything else is known."""
    from svag.execution.local import execute
    from svag.execution.plan import plan_runs
    from svag.experiments.demo import baseline_runs
    from svag.findings.baseline import predict_from_runs

    plan = plan_runs(baseline_runs(), folder)
    size = plan[0].spec.batch_size
    typer.echo(f"1. A baseline: {len(plan)} seeds at batch size {size}, with the gradient noise measured.", err=True)
    records = execute(plan, workers=setup.workers, device=setup.device)
    typer.echo(f"\n{predict_from_runs(records)}\n", err=True)
    typer.echo("2. The check: the same training at larger batches along the linear scaling rule.", err=True)
