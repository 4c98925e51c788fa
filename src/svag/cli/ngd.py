"""`svag ngd`: does Gaussian noise of the same covariance do what SGD's noise does?"""

import typer

from svag.cli.setup import Base, Margin, Metric, Out, Seeds, Setup, with_setup


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
    from svag.cli.base_spec import default_out, load_base
    from svag.cli.conduct import conduct
    from svag.cli.errors import reported
    from svag.records.experiment import experiment_from

    with reported():
        experiment = experiment_from(
            {
                "kind": "ngd",
                "title": f"SGD, NGD and GD from {base.name}",
                "seeds": range(seeds),
                "panels": [{"name": base.stem, "base": load_base(base, context)}],
                "margin": margin,
                "metric": metric,
            }
        )
        conduct(experiment, out or default_out(base, "ngd"), setup)
