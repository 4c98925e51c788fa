"""The runs behind "is it the covariance of the noise that matters?": SGD, NGD with matching covariance, GD."""

from svag.experiments.arms import over_seeds, panel, require_sgd, unmeasured_where_it_must
from svag.records.experiment import Ngd
from svag.records.spec import RunSpec


def runs(experiment: Ngd) -> list[RunSpec]:
    """SGD, NGD (eq:noisy_gd) and GD of every panel, with every seed; of GD a seed only changes the first weights.

    >>> from svag.records.experiment import NgdPanel
    >>> base = RunSpec.from_yaml(
    ...     "{data: {name: svhn}, model: {arch: mlp, norm: layer}, batch_size: 8, lr: 1, budget: 9}")
    >>> [spec.process.kind for spec in runs(Ngd(title="", panels=(NgdPanel(name="", base=base),), seeds=(0,)))]
    ['sgd', 'ngd', 'gd']
    """
    found: list[RunSpec] = []
    for one in experiment.panels:
        with panel(one.name, len(experiment.panels)):
            require_sgd(one.base)
            arms = [one.base, *(unmeasured_where_it_must(one.base, {"kind": kind}) for kind in ("ngd", "gd"))]
            found += over_seeds(arms, experiment.seeds_of(one))
    return found
