"""From a folder of runs to its report, and how the numbers in it were obtained.

How numbers were obtained, read off the records: seeds, versions, hardware, seconds, specs.

From a folder of runs to its report.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from svag.experiments.base import Compare, Ladder, Ngd, load_experiment
from svag.experiments.compare import CompareFinding
from svag.experiments.families import find
from svag.experiments.infer import experiment_of
from svag.experiments.ladder_finding import LadderFinding
from svag.experiments.ngd import NgdFinding
from svag.records.fields import SpecError
from svag.records.parts import substeps
from svag.records.record import RunRecord, load_records
from svag.report.content import Provenance, Report, Row, Table
from svag.report.sections import compare, folder, ladder, ngd
from svag.report.wording import count


def provenance(experiment: Compare | Ladder | Ngd | None, records: Sequence[RunRecord]) -> Provenance:
    """Facts that all runs share, or the different values that they have."""
    seeds = sorted({record.spec.seed for record in records if record.spec is not None})
    seconds = [float(record.outcome["seconds"]) for record in records if "seconds" in record.outcome]
    facts = [
        ("runs", f"{len(records)}, of which {sum(record.ended for record in records)} have a result"),
        ("seeds", ", ".join(map(str, seeds)) or "none"),
        ("computed", f"{_duration(sum(seconds))} in all, {_duration(max(seconds))} the longest run" if seconds else ""),
        ("versions", _different(records, "versions", lambda one: ", ".join(f"{k} {v}" for k, v in one.items()))),
        ("hardware", _different(records, "hardware", _machine)),
    ]
    if experiment is None:
        specs = [(record.path.name, record.spec.to_yaml()) for record in records[:1] if record.spec is not None]
    else:
        specs = [(panel.name, panel.base.to_yaml()) for panel in experiment.panels]
        facts.insert(0, ("asked", _asked(experiment)))
    return Provenance(tuple((name, value) for name, value in facts if value), tuple(specs))


def _asked(experiment: Compare | Ladder | Ngd) -> str:
    match experiment:
        case Compare():
            ells = "; ".join(f"{panel.name}: ell = {', '.join(map(str, panel.ells))}" for panel in experiment.panels)
            return f"{ells}; margin {experiment.margin:g} in {experiment.metric}"
        case Ladder():
            sizes = "; ".join(
                f"{panel.name}: batch sizes {', '.join(map(str, panel.batch_sizes))}" for panel in experiment.panels
            )
            return f"{sizes}; tolerance {experiment.tolerance:.0%}, C² = {experiment.c2:g}"
        case Ngd():
            return f"SGD, NGD and GD; margin {experiment.margin:g} in {experiment.metric}"


def _different(records: Sequence[RunRecord], field: str, say: Callable[[dict[str, object]], str]) -> str:
    said = [say(record.outcome[field]) for record in records if isinstance(record.outcome.get(field), dict)]
    return "; ".join(dict.fromkeys(said))


def _machine(one: dict[str, object]) -> str:
    parts = [str(one.get("device")), *(_count(one.get(f"{noun}s"), noun) for noun in ("core", "thread"))]
    return f"{one.get('name')} ({', '.join(parts)})"


def _count(number: object, noun: str) -> str:
    return count(number, noun) if isinstance(number, int) else f"{noun}s unknown"


def _duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> _duration(12.5), _duration(90), _duration(4000), _duration(7199)
    ('12 s', '1 min 30 s', '1 h 7 min', '2 h 0 min')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes} min"


def runs_table(records: Sequence[RunRecord]) -> Table:
    """Every run with its outcome, whatever state it is in, alike ones together; those that cannot be read come last."""
    return Table("runs", "every run", [_row(record) for record in sorted(records, key=_place)])


def _place(record: RunRecord) -> tuple[bool, str, int, int, int]:
    spec = record.spec
    if spec is None:
        return True, "", 0, 0, 0
    return False, spec.process.kind, substeps(spec.process), spec.batch_size, spec.seed


def _row(record: RunRecord) -> Row:
    spec, final = record.spec, record.final
    row: Row = {"run": record.path.name, "state": record.state, "problem": record.problem}
    if spec is not None:
        settings = spec.process.model_dump(exclude={"kind"}, exclude_none=True)
        process = " ".join([spec.process.kind, *(f"{name}={value}" for name, value in settings.items())])
        row |= {"process": process, "batch_size": spec.batch_size, "lr": spec.lr, "seed": spec.seed}
    return row | {
        "step": record.step,
        "steps": record.steps,
        "test_accuracy": final.get("test_accuracy"),
        "test_loss": final.get("test_loss"),
        "train_loss": final.get("train_loss"),
        "readings": len(record.readings) if record.state != "broken" else None,
        "seconds": record.outcome.get("seconds"),
    }


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
        provenance=provenance(experiment, records),
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
        provenance=provenance(None, records),
        runs=runs_table(records),
        finding=folder.finding(records),
    )
