"""The runs behind "does the SDE describe my SGD?": SGD, SVAG at several ell, the coupled ladder, NGD."""

from svag.experiments.arms import over_seeds, panel, require_sgd, svag_arms, unmeasured_where_it_must
from svag.records.experiment import Compare, ComparePanel
from svag.records.refusal import SpecError
from svag.records.spec import RunSpec


def runs(experiment: Compare) -> list[RunSpec]:
    """SGD and the other arms of every panel, with every seed; what the theory does not cover is refused.

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> panel = ComparePanel(name="mine", base=base, ells=(1, 4), glsr=(2,))
    >>> found = runs(Compare(title="mine", panels=(panel,), seeds=(0, 1)))
    >>> [(spec.process.kind, spec.seed) for spec in found]
    [('sgd', 0), ('sgd', 1), ('svag', 0), ('svag', 1), ('glsr', 0), ('glsr', 1)]
    """
    found: list[RunSpec] = []
    for one in experiment.panels:
        with panel(one.name, len(experiment.panels)):
            found += over_seeds(_arms(one), experiment.seeds_of(one))
    return found


def _arms(one: ComparePanel) -> list[RunSpec]:
    require_sgd(one.base)
    arms = [one.base, *svag_arms(one.base, one.ells, one.split, one.momentum_limit)]
    others = [{"kind": "glsr", "parts": parts} for parts in dict.fromkeys(one.glsr) if parts > 1]
    others += [{"kind": "ngd"}] if one.ngd else []
    arms += [unmeasured_where_it_must(one.base, process) for process in others]
    if not any(ell > 1 for ell in one.ells):
        raise SpecError("ell", "SGD alone has nothing to be compared with: name at least one ell above 1")
    return arms
