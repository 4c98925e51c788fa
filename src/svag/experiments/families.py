"""From an experiment to its runs, and from its records to what they mean.

From an experiment to its runs.

From an experiment and its records to what they mean.
"""

from collections.abc import Sequence

from svag.experiments import compare, ladder, ngd
from svag.experiments.base import Compare, Ladder, Ngd
from svag.experiments.compare import CompareFinding, find_compare
from svag.experiments.ladder import find_ladder
from svag.experiments.ladder_finding import LadderFinding
from svag.experiments.ngd import NgdFinding, find_ngd
from svag.records.record import RunRecord
from svag.records.spec import RunSpec


def runs_of(experiment: Compare | Ladder | Ngd) -> list[RunSpec]:
    """All runs of an experiment, each once, though panels may share some.

    >>> from svag.experiments.base import NgdPanel
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


def find(
    experiment: Compare | Ladder | Ngd, records: Sequence[RunRecord]
) -> CompareFinding | LadderFinding | NgdFinding:
    """Answer the question of an experiment from whatever runs there are; runs without a result are listed as missing.

    Args:
        experiment: from `load_experiment` or `experiment_of`.
        records: from `load_records`, in any order; what no panel asked for is listed, not used.
    """
    match experiment:
        case Compare():
            return find_compare(experiment, records)
        case Ladder():
            return find_ladder(experiment, records)
        case Ngd():
            return find_ngd(experiment, records)
