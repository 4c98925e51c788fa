"""How numbers were obtained, read off the records: seeds, versions, hardware, seconds, specs."""

from collections.abc import Callable, Sequence

from svag.records.experiment import Compare, Ladder, Ngd
from svag.records.process_spec import substeps
from svag.records.record import RunRecord
from svag.report.content import Measured, Row, Table
from svag.report.wording import count


def measured(experiment: Compare | Ladder | Ngd | None, records: Sequence[RunRecord]) -> Measured:
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
    return Measured(tuple((name, value) for name, value in facts if value), tuple(specs))


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
