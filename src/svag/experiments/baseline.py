"""How far can I scale the batch? The prediction from baseline runs on disk, standing alone."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from svag.experiments.base import setting
from svag.experiments.runs import by_seed, one_version
from svag.findings.critical_batch import CriticalBatch, predict_critical_batch
from svag.records.fields import SpecError, step_of
from svag.records.parts import SgdSpec
from svag.records.record import RunRecord


@dataclass(frozen=True)
class BaselinePrediction:
    """What the seeds of one setting predict together.

    Attributes:
        critical: the prediction.
        runs: paths of the run directories.
    """

    critical: CriticalBatch
    runs: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the fields of the prediction for a JSON document, and the runs."""
        return {**self.critical.to_dict(), "runs": list(self.runs)}

    def __str__(self) -> str:
        return str(self.critical)


@dataclass(frozen=True)
class BaselinePredictions:
    """One prediction per setting, by increasing batch size, and a sentence for every run that says nothing."""

    predictions: tuple[BaselinePrediction, ...]
    skipped: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return everything for a JSON document; the fields of a single prediction stand at the top as well."""
        rows = [one.to_dict() for one in self.predictions]
        return {**(rows[0] if len(rows) == 1 else {}), "predictions": rows, "skipped": list(self.skipped)}

    def __str__(self) -> str:
        return "\n\n".join(str(one) for one in self.predictions)


def predict_from_runs(
    records: Iterable[RunRecord],
    c2: float = 2.0,
    confidence: float = 0.95,
    window: tuple[float, float] | None = None,
) -> BaselinePredictions:
    """Predict B* from runs of SGD that finished with readings, the seeds of one setting together.

    A run that has nothing to say is skipped with a sentence; if none has, that is an error.

    Args:
        records: of one run, of seeds, or of a ladder.
        c2: C² of the bound.
        confidence: of the interval.
        window: two effective steps, or two fractions of the budget; see `svag.predict_critical_batch`.
    """
    there = list(records)
    one_version(there)
    seeds = defaultdict(list)
    skipped = []
    for record in there:
        problem = _problem(record)
        if problem is None and record.spec is not None:
            seeds[setting(record.spec)].append(record)
        elif problem is not None:
            skipped.append(problem)
    if not seeds:
        raise SpecError("", skipped[0] if skipped else "there is no run here: give a folder that svag run has written")
    groups = [[run for _, run in by_seed(group)] for group in seeds.values()]
    groups.sort(key=lambda group: (group[0].readings[0].batch_size, str(group[0].path)))
    try:
        predictions = tuple(_predict(group, c2, confidence, window) for group in groups)
    except ValueError as error:
        raise SpecError("", str(error)) from None
    return BaselinePredictions(predictions, tuple(skipped))


def _predict(
    group: Sequence[RunRecord], c2: float, confidence: float, window: tuple[float, float] | None
) -> BaselinePrediction:
    readings = [replace(one, run=str(record.path)) for record in group for one in record.readings]
    steps = group[0].steps
    chosen = None if window is None else (step_of(window[0], steps), step_of(window[1], steps))
    return BaselinePrediction(
        predict_critical_batch(readings, c2, confidence, chosen), tuple(str(record.path) for record in group)
    )


def _problem(record: RunRecord) -> str | None:
    """Why a run predicts nothing, and what to do; None if it does."""
    where, spec = record.path, record.spec
    if spec is None:
        return f"{where} cannot be read: {record.problem}; run its spec again"
    if not isinstance(setting(spec).process, SgdSpec):
        return f"{where} is a run of {spec.process.kind}, and the prediction is about SGD: give it a run of sgd"
    if record.state == "diverged":
        return f"{where} diverged and has no equilibrium to measure at: lower the learning rate and run it again"
    if record.state == "running":
        return f"{where} is still running, at effective step {record.step} of {record.steps}: wait until it ends"
    if record.state == "failed":
        return f"{where} failed ({record.problem}): repair that and run its spec again into the same folder"
    if record.state != "finished":
        return (
            f"{where} was interrupted at effective step {record.step} of {record.steps}: run its spec again into the "
            "same folder, and it continues"
        )
    if not record.readings:
        return f"{where} has no readings of the noise: run it with a probe, as in --probe.kind in_run"
    return None
