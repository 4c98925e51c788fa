"""From a folder of runs to its report: the answers, the figures, and how the numbers were obtained."""

from collections.abc import Callable, Sequence
from pathlib import Path

from svag.experiments import load_experiment
from svag.experiments.base import Experiment
from svag.experiments.wording import count
from svag.records.fields import SpecError
from svag.records.parts import substeps
from svag.records.record import RunRecord, load_records, notes_on
from svag.report import folder
from svag.report.content import Provenance, Report, Row, Table
from svag.report.sections import FIGURES


def build_report(path: str | Path) -> Report:
    """Read a folder and say what it means: the answer of its experiment, or how its runs went if nothing was asked.

    Args:
        path: a folder with `experiment.json`, or any folder that holds run directories, or one of these itself.
    """
    root = Path(path)
    if not root.is_dir():
        raise SpecError(str(root), "there is no such folder: give one that `svag ladder`, `svag run` and the like made")
    experiment, records = load_experiment(root), load_records(root)
    if experiment is not None:
        return report_of(experiment, records)
    if not records:
        raise SpecError(str(root), "holds no runs: give a folder that `svag ladder`, `svag run` and the like made")
    predicted = folder.predictions(records)
    return Report(
        title=f"Runs in {root.resolve().name}",
        question=folder.QUESTION,
        notes=(folder.NOTE,) if len(records) > 1 else (),
        warnings=(),
        answers=folder.answers(records, predicted),
        figures=tuple(folder.figures(records)),
        provenance=provenance(None, records),
        runs=runs_table(records),
        finding=folder.finding(records, predicted),
    )


def report_of(experiment: Experiment, records: Sequence[RunRecord]) -> Report:
    """The report of an experiment whose records are at hand."""
    finding = experiment.find(records)
    return Report(
        title=_headed(experiment),
        question=experiment.question,
        notes=_notes(experiment),
        warnings=finding.warnings,
        answers=finding.answers(),
        figures=tuple(FIGURES[experiment.kind](finding)),
        provenance=provenance(experiment, records),
        runs=runs_table(records),
        finding=finding.to_dict(),
    )


def _headed(experiment: Experiment) -> str:
    """What a page is called: a figure by its label, because its title is the paper's claim and not what came out."""
    if experiment.label is None:
        return experiment.title
    return ", size ".join(filter(None, (experiment.label, experiment.size)))


def _notes(experiment: Experiment) -> tuple[str, ...]:
    claim = () if experiment.label is None else (f"The paper's claim: {experiment.title}.",)
    return (*claim, f"Differs from the paper: {experiment.note}.") if experiment.note else claim


def provenance(experiment: Experiment | None, records: Sequence[RunRecord]) -> Provenance:
    """Facts that all runs share, or the different values that they have."""
    seeds = sorted({record.spec.seed for record in records if record.spec is not None})
    versions = sorted({record.numerics for record in records if record.spec is not None})
    seconds = [float(record.outcome["seconds"]) for record in records if "seconds" in record.outcome]
    facts = [
        ("runs", f"{len(records)}, of which {sum(record.ended for record in records)} have a result"),
        ("seeds", ", ".join(map(str, seeds)) or "none"),
        ("computed", f"{_duration(sum(seconds))} in all, {_duration(max(seconds))} the longest run" if seconds else ""),
        ("versions", _different(records, "versions", lambda one: ", ".join(f"{k} {v}" for k, v in one.items()))),
        ("numerics", ", ".join(f"version {one}" for one in versions)),
        ("hardware", _different(records, "hardware", _machine)),
        ("note", "; ".join(notes_on(records))),
    ]
    if experiment is None:
        specs = [(record.path.name, record.spec.to_yaml()) for record in records[:1] if record.spec is not None]
    else:
        specs = [(panel.name, panel.base.to_yaml()) for panel in experiment.panels]
        facts.insert(0, ("asked", experiment.asked()))
    return Provenance(tuple((name, value) for name, value in facts if value), tuple(specs))


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
        row |= {"process": spec.process.name, "batch_size": spec.batch_size, "lr": spec.lr, "seed": spec.seed}
    return row | {
        "step": record.step,
        "steps": record.steps,
        "test_accuracy": final.get("test_accuracy"),
        "test_loss": final.get("test_loss"),
        "train_loss": final.get("train_loss"),
        "readings": len(record.readings) if record.state != "broken" else None,
        "seconds": record.outcome.get("seconds"),
    }
