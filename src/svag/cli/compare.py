"""`svag compare`: does the SDE describe my SGD?"""

from typing import Annotated

import typer

from svag.cli.setup import Base, Ell, Limit, Margin, Metric, Out, Seeds, Setup, Split, with_setup


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
    from svag.cli.base_spec import default_out, load_base
    from svag.cli.conduct import conduct
    from svag.cli.errors import reported
    from svag.cli.flags import whole_numbers
    from svag.records.experiment import experiment_from

    with reported():
        panel = {
            "name": base.stem,
            "base": load_base(base, context),
            "ells": whole_numbers("--ell", ell or ["1", "4", "16"]),
            "split": split,
            "glsr": whole_numbers("--glsr", glsr or []),
            "ngd": ngd,
            "momentum_limit": limit,
        }
        experiment = experiment_from(
            {
                "kind": "compare",
                "title": f"SGD and SVAG from {base.name}",
                "seeds": range(seeds),
                "panels": [panel],
                "margin": margin,
                "metric": metric,
            }
        )
        conduct(experiment, out or default_out(base, "compare"), setup)
