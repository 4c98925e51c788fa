"""A mere folder of runs, of which nothing was asked: how they went, and the B* that each setting predicts."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from svag.lab.experiments import EXPERIMENT, FAMILIES, wording
from svag.lab.experiments.baseline import BaselinePrediction, BaselinePredictions, predict_from_runs
from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.runs import CurveRow, RunRow
from svag.lab.experiments.wording import Answer
from svag.lab.records.record import RunFailed, RunRecord
from svag.lab.report.charts import curves
from svag.lab.report.content import Figure
from svag.lab.report.sections import curve_figure
from svag.lab.specs.fields import SpecError
from svag.lab.specs.parts import substeps
from svag.lab.specs.text import TextSpec

QUESTION = "How did these runs go?"
NOTE = (
    f"There is no {EXPERIMENT} here, so the runs are shown one by one; if they belong to one experiment, add "
    f"--as {' | '.join(FAMILIES)} to the command, which writes it and answers its question."
)
_MOST = 8

# A chart tells no more lines apart, and drawing a thousand of them takes minutes.
DRAWN = 20


def predictions(records: Sequence[RunRecord]) -> BaselinePredictions:
    """What `svag predict` says of these runs; where it refuses, the reason stands among what was skipped."""
    try:
        return predict_from_runs(records)
    except (SpecError, RunFailed) as error:
        return BaselinePredictions((), (str(error),))


def answers(records: Sequence[RunRecord], found: BaselinePredictions) -> tuple[Answer, ...]:
    """How many runs ended how, the best of them, and the predictions."""
    states = dict.fromkeys(record.state for record in records)
    counts = ", ".join(f"{sum(r.state == state for r in records)} {state}" for state in states)
    metric = _metric(records)
    finals = [(r.final[metric], r) for r in records if r.final.get(metric) is not None and r.ended]
    numbers = []
    spark: tuple[float, ...] = ()
    spark_of = ""
    if finals:
        best, run = (max if wording.is_share(metric) else min)(finals, key=lambda one: one[0])
        numbers.append((f"best {wording.UNITS[metric]}", f"{wording.value(best, metric)} ({_name(run)})"))
        spark = tuple(float(value) for _, value in run.curve(metric))
        spark_of = f"{wording.UNITS[metric]} of {_name(run)}"
    predicted = _by_name(records, found)
    for name, prediction in list(predicted.items())[:_MOST]:
        one = prediction.price_list.linear
        limits = wording.batch_interval(one.limit.low, one.limit.high)
        doubt = "" if one.proved else f" ({'an estimate' if one.resolved else 'not resolved'}: {one.reasons[0]})"
        numbers.append((name, f"B* = {wording.batch(one.limit.value)} {limits}{doubt}"))
    if len(predicted) > _MOST:
        numbers.append(
            ("more predictions", f"{len(predicted) - _MOST} more settings have readings: svag predict RUN_DIR")
        )
    if not predicted and any(record.state == "finished" and record.readings for record in records):
        numbers.append(("B*", f"not predicted: {found.skipped[0]}"))
    headline = f"{wording.count(len(records), 'run')}: {counts}." if records else "There are no runs here."
    return (Answer("runs", headline, "open", tuple(numbers), _next(records), spark, spark_of),)


def _next(records: Sequence[RunRecord]) -> str:
    if any(record.state in {"interrupted", "failed"} for record in records):
        return "run the interrupted and failed ones again: they continue."
    if broken := [record for record in records if record.state == "broken"]:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return f"restore {broken[0].path}{more} from a copy, or remove it and run its spec again."
    if running := sum(record.state == "running" for record in records):
        return f"wait: {wording.count(running, 'run')} still running."
    return "nothing: all ended."


def figures(records: Sequence[RunRecord]) -> Iterator[Figure]:
    """Test accuracy, or bits per character of texts, and training loss of runs that were evaluated, by their names."""
    metrics: tuple[Metric, ...] = (_metric(records), "train_loss")
    for metric in metrics:
        there = [record for record in in_order(records) if record.curve(metric)]
        rows = [row for record in there[:DRAWN] for row in _curve_rows(record)]
        found = curves.table(rows, [_run_row(record) for record in there[:DRAWN]], metric)
        if found.rows:
            cut = f"The first {DRAWN} of {len(there)} runs, in the order of the table of every run."
            whose, said = ("Some runs", f"{cut} ") if len(there) > DRAWN else ("All runs", "")
            figure = curve_figure(metric.replace("_", "-"), whose, found)
            yield replace(figure, sentence=said + figure.sentence)


def in_order(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Alike runs together; those that cannot be read come last."""
    return sorted(records, key=_place)


def _place(record: RunRecord) -> tuple[bool, str, int, int, int]:
    spec = record.spec
    if spec is None:
        return True, "", 0, 0, 0
    return False, spec.process.kind, substeps(spec.process), spec.batch_size, spec.seed


def _metric(records: Sequence[RunRecord]) -> Metric:
    """What the runs are judged by: bits per character where all of them learn texts."""
    data = [record.spec.data for record in records if record.spec is not None]
    texts = bool(data) and all(isinstance(one, TextSpec) for one in data)
    return "test_bits_per_character" if texts else "test_accuracy"


def _curve_rows(record: RunRecord) -> Iterator[CurveRow]:
    for row in record.evaluations:
        metrics = (row.get("test_accuracy"), row.get("test_loss"), row.get("train_loss"))
        yield CurveRow(_name(record), _batch_size(record), 0, int(row["step"]), *metrics)


def _run_row(record: RunRecord) -> RunRow:
    nothing = (math.nan, math.nan, math.nan)
    lr = math.nan if record.spec is None else record.spec.lr
    path = str(record.path)
    return RunRow(_name(record), _batch_size(record), lr, 0, record.state, record.step, *nothing, 0, path)


def _name(record: RunRecord) -> str:
    """What it is, and enough of its folder's name to find it."""
    spec = record.spec
    if spec is None:
        return record.path.name
    what = " ".join(word for word in spec.method.split() if "=" not in word)  # adamw svag, without its settings
    return f"{what} B={spec.batch_size} seed={spec.seed} ({record.path.name[:8]})"


def _batch_size(record: RunRecord) -> int:
    return 0 if record.spec is None else record.spec.batch_size


def _by_name(records: Sequence[RunRecord], found: BaselinePredictions) -> dict[str, BaselinePrediction]:
    """The predictions by the names of their runs, seeds of one setting by that of the first."""
    names = {str(record.path): _name(record) for record in records}
    return {_together([names[run] for run in one.runs]): one for one in found.predictions}


def _together(names: Sequence[str]) -> str:
    """What the runs of one setting are called.

    >>> _together(["sgd B=8 seed=0 (ab)"]), _together(["sgd B=8 seed=0 (ab)", "sgd B=8 seed=1 (cd)"])
    ('sgd B=8 seed=0 (ab)', 'sgd B=8 seed=0 (ab) and 1 more seed')
    """
    return names[0] if len(names) == 1 else f"{names[0]} and {wording.count(len(names) - 1, 'more seed')}"


def finding(records: Sequence[RunRecord], found: BaselinePredictions) -> dict[str, object]:
    """Everything, for programs."""
    predicted = {name: one.to_dict() for name, one in _by_name(records, found).items()}
    return {"kind": "folder", "runs": [record.to_dict() for record in records], "predictions": predicted}
