"""The runs behind "up to which batch size does linear scaling hold?": batch sizes along the rule, with a probe."""

from svag.experiments.arms import over_seeds, panel, require_sgd, svag_arms
from svag.experiments.moments import scaled_steps
from svag.records.experiment import Ladder, LadderPanel
from svag.records.probe_spec import FrozenProbe
from svag.records.refusal import SpecError
from svag.records.spec import RunSpec
from svag.theory.rules import linear_scaling


def runs(experiment: Ladder) -> list[RunSpec]:
    """SGD at every batch size of every panel, and SVAG where it is asked for, with every seed.

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: {epochs: 9}}")
    >>> panel = LadderPanel(name="mine", base=base, batch_sizes=(4, 8, 16))
    >>> [(spec.batch_size, spec.lr) for spec in runs(Ladder(title="mine", panels=(panel,), seeds=(0,)))]
    [(4, 0.5), (8, 1.0), (16, 2.0)]
    """
    found: list[RunSpec] = []
    for one in experiment.panels:
        with panel(one.name, len(experiment.panels)):
            found += over_seeds(_arms(one), experiment.seeds_of(one))
    return found


def _arms(one: LadderPanel) -> list[RunSpec]:
    require_sgd(one.base)
    sizes = dict.fromkeys(one.batch_sizes)
    if len(sizes) < 2:
        raise SpecError("batch_sizes", "a ladder has at least two rungs: name more batch sizes")
    if one.probe_batches and len(one.probe_batches) != len(one.batch_sizes):
        raise SpecError("probe_batches", f"must be one for each of the {len(one.batch_sizes)} batch sizes, or none")
    batches = dict(zip(one.batch_sizes, one.probe_batches, strict=False))
    arms = []
    for size in sizes:
        sgd = rung(one.base, size)
        if size in batches and isinstance(sgd.probe, FrozenProbe):
            sgd = sgd.edited({"probe.batches": batches[size]})
        arms += [sgd, *svag_arms(sgd, one.ells, one.split, one.momentum_limit)]
    return arms


def rung(base: RunSpec, batch_size: int) -> RunSpec:
    """The base at another batch size, along the linear scaling rule (def:lsr): the same epochs, the same moments.

    At its own batch size the base is left as it is, so that a run of it that is there already is not repeated. Whatever
    is a number of effective steps is divided by κ.

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 900}")
    >>> rung(base, 32).budget, rung(base, 32).lr
    (225, 4.0)
    """
    if batch_size == base.batch_size:
        return base
    kappa = batch_size / base.batch_size
    try:
        scaled = linear_scaling(kappa, lr=base.lr, batch_size=base.batch_size, weight_decay=base.weight_decay)
    except ValueError as error:
        raise SpecError("batch_sizes", f"{batch_size} cannot be reached from {base.batch_size}: {error}") from None
    return base.edited(scaled_steps(base, kappa) | {"batch_size": scaled.batch_size, "lr": scaled.lr})
