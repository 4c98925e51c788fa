"""From an experiment to its runs."""

from svag.experiments import compare, ladder, ngd
from svag.records.experiment import Compare, Ladder, Ngd
from svag.records.spec import RunSpec


def runs_of(experiment: Compare | Ladder | Ngd) -> list[RunSpec]:
    """All runs of an experiment, each once, though panels may share some.

    >>> from svag.records.experiment import NgdPanel
    >>> base = RunSpec.from_yaml(
    ...     "{data: {name: svhn}, model: {arch: mlp, norm: layer}, batch_size: 8, lr: 1, budget: 9}")
    >>> len(runs_of(Ngd(title="", panels=(NgdPanel(name="", base=base), NgdPanel(name="", base=base)), seeds=(0, 1))))
    6
    """
    match experiment:
        case Compare():
            found = compare.runs(experiment)
        case Ladder():
            found = ladder.runs(experiment)
        case Ngd():
            found = ngd.runs(experiment)
    return list(dict.fromkeys(found))
