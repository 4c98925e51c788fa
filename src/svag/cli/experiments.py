"""`svag compare`, `ladder`, `ngd` and `demo`: the commands that carry out experiments.

`svag compare`: does the SDE describe my SGD?

`svag ladder`: up to which batch size does linear scaling hold?

`svag ngd`: does Gaussian noise of the same covariance do what SGD's noise does?

`svag demo`: the main job on the embedded data, from one run to a page.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from svag.cli.flags import AsJson, Base, Ell, Limit, Margin, Metric, Out, Seeds, Setup, Split, Workers, with_setup


@with_setup
def compare(
    context: typer.Context,
    base: Base,
    ell: Ell = None,
    seeds: Seeds = 5,
    out: Out = None,
    split: Split = 1,
    glsr: Annotated[
        list[str] | None, typer.Option(metavar="N...", help="Also the coupled ladder with so many parts: --glsr 2 4.")
    ] = None,
    ngd: Annotated[bool, typer.Option("--ngd", help="Also noisy gradient descent, for the decomposition.")] = False,
    limit: Limit = None,
    margin: Margin = 0.01,
    metric: Metric = "test_accuracy",
    *,
    setup: Setup,
) -> None:
    """Run SGD and SVAG at several ell, and say whether SGD ends where its SDE ends.

    Every field of the spec is also a flag: --lr 0.1 --model.norm group. The same command continues what was left.

    Example: svag compare base.yaml --ell 1 4 16 --seeds 5 --margin 0.01
    """
    from svag.cli.conduct import conduct
    from svag.cli.errors import reported
    from svag.cli.flags import default_out, load_base, whole_numbers
    from svag.experiments.compare import Compare

    with reported():
        experiment = Compare.of(
            load_base(base, context),
            whole_numbers("--ell", ell or ["1", "4", "16"]),
            seeds,
            split=split,
            glsr=whole_numbers("--glsr", glsr or []),
            ngd=ngd,
            momentum_limit=limit,
            margin=margin,
            metric=metric,
            name=base.stem,
            title=f"SGD and SVAG from {base.name}",
        )
        conduct(experiment, out or default_out(base, "compare"), setup)


@with_setup
def ladder(
    context: typer.Context,
    base: Base,
    batch_sizes: Annotated[
        list[str] | None, typer.Option(metavar="N...", help="The rungs: --batch-sizes 16 32 64 128.")
    ] = None,
    seeds: Seeds = 3,
    out: Out = None,
    ell: Ell = None,
    split: Split = 1,
    limit: Limit = None,
    tolerance: Annotated[
        float, typer.Option(help="Scaling fails where the test error exceeds the lowest by this fraction of it.")
    ] = 0.2,
    c2: Annotated[float, typer.Option(help="C² of the predictions: how close is close.")] = 2.0,
    *,
    setup: Setup,
) -> None:
    """Run SGD at several batch sizes along the linear scaling rule: where it fails, and what each run had predicted.

    The base gives the learning rate at its own batch size. With --ell, SVAG at every batch size too: the SDE limit.
    Every field of the spec is also a flag: --lr 0.1 --model.norm group. The same command continues what was left.

    Example: svag ladder base.yaml --batch-sizes 16 32 64 128 256 --seeds 3
    """
    from svag.cli.conduct import conduct
    from svag.cli.errors import reported
    from svag.cli.flags import default_out, load_base, whole_numbers
    from svag.experiments.ladder import Ladder
    from svag.records.fields import SpecError

    with reported():
        sizes = whole_numbers("--batch-sizes", batch_sizes or [])
        if not sizes:
            raise SpecError("--batch-sizes", "is missing: name the rungs, such as --batch-sizes 16 32 64 128")
        experiment = Ladder.of(
            load_base(base, context),
            sizes,
            seeds,
            ells=whole_numbers("--ell", ell or []),
            split=split,
            momentum_limit=limit,
            tolerance=tolerance,
            c2=c2,
            name=base.stem,
            title=f"Linear scaling from {base.name}",
        )
        conduct(experiment, out or default_out(base, "ladder"), setup)


@with_setup
def ngd(
    context: typer.Context,
    base: Base,
    seeds: Seeds = 3,
    out: Out = None,
    margin: Margin = 0.01,
    metric: Metric = "test_accuracy",
    *,
    setup: Setup,
) -> None:
    """Run SGD, noisy gradient descent with the same covariance, and gradient descent, from one base spec.

    It needs a network without BatchNorm and data without augmentation. Every field of the spec is also a flag.

    Example: svag ngd base.yaml --seeds 3 --data.augment false
    """
    from svag.cli.conduct import conduct
    from svag.cli.errors import reported
    from svag.cli.flags import default_out, load_base
    from svag.experiments.ngd import Ngd

    with reported():
        title = f"SGD, NGD and GD from {base.name}"
        experiment = Ngd.of(load_base(base, context), seeds, margin=margin, metric=metric, name=base.stem, title=title)
        conduct(experiment, out or default_out(base, "ngd"), setup)


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
    from svag.experiments.baseline import predict_from_runs
    from svag.experiments.demo import baseline_runs

    plan = plan_runs(baseline_runs(), folder)
    size = plan[0].spec.batch_size
    typer.echo(f"1. A baseline: {len(plan)} seeds at batch size {size}, with the gradient noise measured.", err=True)
    records = execute(plan, workers=setup.workers, device=setup.device)
    typer.echo(f"\n{predict_from_runs(records)}\n", err=True)
    typer.echo("2. The check: the same training at larger batches along the linear scaling rule.", err=True)
