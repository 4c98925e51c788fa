"""`svag ladder`: up to which batch size does linear scaling hold?"""

from typing import Annotated

import typer

from svag.cli.setup import Base, Ell, Limit, Out, Seeds, Setup, Split, with_setup


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
    from svag.cli.base_spec import default_out, load_base
    from svag.cli.conduct import conduct
    from svag.cli.errors import reported
    from svag.cli.flags import whole_numbers
    from svag.experiments.probes import with_probe
    from svag.records.experiment import experiment_from
    from svag.records.refusal import SpecError

    with reported():
        sizes = whole_numbers("--batch-sizes", batch_sizes or [])
        if not sizes:
            raise SpecError("--batch-sizes", "is missing: name the rungs, such as --batch-sizes 16 32 64 128")
        panel = {
            "name": base.stem,
            "base": with_probe(load_base(base, context), sizes),
            "batch_sizes": sizes,
            "ells": whole_numbers("--ell", ell or []),
            "split": split,
            "momentum_limit": limit,
        }
        experiment = experiment_from(
            {
                "kind": "ladder",
                "title": f"Linear scaling from {base.name}",
                "seeds": range(seeds),
                "panels": [panel],
                "tolerance": tolerance,
                "c2": c2,
            }
        )
        conduct(experiment, out or default_out(base, "ladder"), setup)
