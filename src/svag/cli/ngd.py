"""`svag ngd`: does Gaussian noise of the same covariance do what SGD's noise does?"""

import typer

from svag.cli.setup import (
    Address,
    AsJson,
    Base,
    DataDir,
    DryRun,
    Executor,
    Margin,
    Metric,
    OnDevice,
    Out,
    Seeds,
    Setup,
    Shard,
    Threads,
    Workers,
)


def ngd(
    context: typer.Context,
    base: Base,
    seeds: Seeds = 3,
    out: Out = None,
    margin: Margin = 0.01,
    metric: Metric = "test_accuracy",
    workers: Workers = None,
    threads: Threads = 1,
    device: OnDevice = "auto",
    data_dir: DataDir = None,
    shard: Shard = None,
    executor: Executor = "local",
    address: Address = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Run SGD, noisy gradient descent with the same covariance, and gradient descent, from one base spec.

    It needs a network without BatchNorm and data without augmentation. Every field of the spec is also a flag.
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
        setup = Setup(workers, threads, device, data_dir, shard, dry_run, as_json, executor, address)
        conduct(experiment, out or default_out(base, "ngd"), setup)
