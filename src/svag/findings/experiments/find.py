"""From an experiment and its records to what they mean."""

from collections.abc import Sequence

from svag.findings.experiments.compare import find_compare
from svag.findings.experiments.compare_finding import CompareFinding
from svag.findings.experiments.ladder import find_ladder
from svag.findings.experiments.ladder_finding import LadderFinding
from svag.findings.experiments.ngd import find_ngd
from svag.findings.experiments.ngd_finding import NgdFinding
from svag.records.experiment import Compare, Ladder, Ngd
from svag.records.record import RunRecord


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
