"""From a folder of runs to its report."""

from collections.abc import Sequence
from pathlib import Path

from svag.findings.experiments.compare_finding import CompareFinding
from svag.findings.experiments.find import find
from svag.findings.experiments.infer import experiment_of
from svag.findings.experiments.ladder_finding import LadderFinding
from svag.findings.experiments.ngd_finding import NgdFinding
from svag.records.experiment import Compare, Ladder, Ngd, load_experiment
from svag.records.record import RunRecord, load_records
from svag.records.refusal import SpecError
from svag.report.content import Report
from svag.report.measured import measured, runs_table
from svag.report.sections import compare, folder, ladder, ngd

_SHOWN = 6


def build_report(path: str | Path) -> Report:
    """Read a folder and say what it means: the answer of its experiment, given or inferred, or how its runs went.

    Args:
        path: a folder with `experiment.json`, or any folder that holds run directories, or one of these itself.
    """
    root = Path(path)
    if not root.is_dir():
        raise SpecError(str(root), "there is no such folder: give one that `svag ladder`, `svag run` and the like made")
    experiment, records = load_experiment(root), load_records(root)
    if experiment is None:
        experiment = _inferred(root, records)
    if experiment is None and not records:
        raise SpecError(str(root), "holds no runs: give a folder that `svag ladder`, `svag run` and the like made")
    if experiment is None:
        return _of_folder(root, records)
    return report_of(experiment, records)


def _inferred(root: Path, records: Sequence[RunRecord]) -> Compare | Ladder | Ngd | None:
    """What the runs of a mere folder compare; None when they compare nothing, or several things."""
    try:
        return experiment_of(records, title=_title(root))
    except SpecError:
        return None


def report_of(experiment: Compare | Ladder | Ngd, records: Sequence[RunRecord]) -> Report:
    """The report of an experiment whose records are at hand."""
    finding = find(experiment, records)
    match finding:
        case CompareFinding():
            question, answers, figures = compare.QUESTION, compare.answers(finding), compare.figures(finding)
        case LadderFinding():
            question, answers, figures = ladder.QUESTION, ladder.answers(finding), ladder.figures(finding)
        case NgdFinding():
            question, answers, figures = ngd.QUESTION, ngd.answers(finding), ngd.figures(finding)
    return Report(
        title=_headed(experiment),
        question=question,
        notes=_notes(experiment),
        warnings=_warnings(finding),
        answers=answers,
        figures=tuple(figures),
        measured=measured(experiment, records),
        runs=runs_table(records),
        finding=finding.to_dict(),
    )


def _headed(experiment: Compare | Ladder | Ngd) -> str:
    """What a page is called: a figure by its label, because its title is the paper's claim and not what came out."""
    if experiment.label is None:
        return experiment.title
    return ", size ".join(filter(None, (experiment.label, experiment.size)))


def _notes(experiment: Compare | Ladder | Ngd) -> tuple[str, ...]:
    claim = () if experiment.label is None else (f"The paper's claim: {experiment.title}.",)
    return (*claim, f"Differs from the paper: {experiment.note}.") if experiment.note else claim


def _warnings(finding: CompareFinding | LadderFinding | NgdFinding) -> tuple[str, ...]:
    said = []
    if missing := finding.missing:
        named = "; ".join(str(run) for run in missing[:_SHOWN])
        more = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        said.append(f"Incomplete: {len(missing)} of the runs asked for have no result: {named}{more}.")
    if strangers := finding.strangers:
        more = f" (and {len(strangers) - 1} more like this)" if len(strangers) > 1 else ""
        said.append(f"Not used: {strangers[0]}{more}.")
    return tuple(said)


def _title(root: Path) -> str:
    return f"Runs in {root.resolve().name}"


def _of_folder(root: Path, records: Sequence[RunRecord]) -> Report:
    return Report(
        title=_title(root),
        question=folder.QUESTION,
        notes=(),
        warnings=(),
        answers=folder.answers(records),
        figures=tuple(folder.figures(records)),
        measured=measured(None, records),
        runs=runs_table(records),
        finding=folder.finding(records),
    )
