"""The page of a single run, or of runs without an experiment: the price list of each setting, and how the runs went."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from svag.lab.experiments import EXPERIMENT, FAMILIES, wording
from svag.lab.experiments.baseline import BaselinePrediction, BaselinePredictions, predict_from_runs
from svag.lab.experiments.experiment import Metric
from svag.lab.experiments.runs import curve_rows, run_row
from svag.lab.experiments.wording import Answer
from svag.lab.records.record import RunFailed, RunRecord
from svag.lab.report.charts import costs as charts
from svag.lab.report.charts import training_curves
from svag.lab.report.content import Card, Figure, Table
from svag.lab.report.figures import curve_figure
from svag.lab.specs.fields import SpecError
from svag.lab.specs.parts import substeps
from svag.lab.specs.text import TextSpec
from svag.prices.price import Price
from svag.prices.price_list import PriceList
from svag.prices.wording import columns, headline, unusable

QUESTION, QUESTION_OF_ONE = "How did these runs go?", "What does a larger batch cost?"
NOTE = (
    f"There is no {EXPERIMENT} here, so the runs are shown one by one; if they belong to one experiment, add "
    f"--as {' | '.join(FAMILIES)} to the command, which writes it and answers its question."
)
# Settings whose price lists are shown; `svag predict` prints all of them.
_LISTS = 6

# More lines cannot be told apart in a chart, and drawing a thousand of them takes minutes.
DRAWN = 20


def predictions(records: Sequence[RunRecord]) -> BaselinePredictions:
    """The predictions of `svag predict` for these runs; if it refuses, the reason is listed under what was skipped."""
    try:
        return predict_from_runs(records)
    except (SpecError, RunFailed) as error:
        return BaselinePredictions((), (str(error),))


def cards(records: Sequence[RunRecord], predicted: BaselinePredictions) -> tuple[Card, ...]:
    """How the runs went, and the price list of every setting; for a single run both in one card."""
    named = _by_name(records, predicted)
    lists = [_price_card(name, prediction, number) for number, (name, prediction) in enumerate(named.items(), 1)]
    went = _went(records, predicted, more=max(len(lists) - _LISTS, 0))
    if len(records) == 1 and lists:
        answer = lists[0].answer
        answer = replace(answer, numbers=answer.numbers + went.numbers, spark=went.spark, spark_of=went.spark_of)
        return (replace(lists[0], answer=answer),)
    return (Card(went), *lists[:_LISTS])


def _went(records: Sequence[RunRecord], predicted: BaselinePredictions, more: int) -> Answer:
    """The number of runs in each state, and the best run."""
    states = dict.fromkeys(record.state for record in records)
    counts = ", ".join(f"{sum(r.state == state for r in records)} {state}" for state in states)
    metric = _metric(records)
    finals = [(r.final[metric], r) for r in records if r.final.get(metric) is not None and r.ended]
    numbers = []
    spark: tuple[float, ...] = ()
    spark_of = ""
    if finals:
        best, run = (max if wording.is_share(metric) else min)(finals, key=lambda pair: pair[0])
        whose = f" ({_name(run)})" if len(records) > 1 else ""
        what = "best" if len(records) > 1 else "final"
        numbers.append((f"{what} {wording.UNITS[metric]}", f"{wording.value(best, metric)}{whose}"))
        spark = tuple(float(value) for _, value in run.curve(metric))
        spark_of = f"{wording.UNITS[metric]}{' of ' if whose else ''}{_name(run) if whose else ''}"
    if more:
        numbers.append(("more price lists", f"{wording.count(more, 'more setting')}: svag predict DIR"))
    if not predicted.predictions and any(record.state == "finished" and record.readings for record in records):
        numbers.append(("prices", f"none: {predicted.skipped[0]}"))
    headline = f"{wording.count(len(records), 'run')}: {counts}."
    return Answer("all runs", headline, "note", tuple(numbers), _next(records), spark, spark_of)


def _next(records: Sequence[RunRecord]) -> str:
    if any(record.state in {"interrupted", "failed"} for record in records):
        return "run the interrupted and failed ones again: they continue."
    if broken := [record for record in records if record.state == "broken"]:
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        return f"restore {broken[0].path}{more} from a copy, or remove it and run its spec again."
    if running := sum(record.state == "running" for record in records):
        return f"wait: {wording.count(running, 'run')} still running."
    return ""


def _price_card(name: str, prediction: BaselinePrediction, number: int) -> Card:
    """What larger batches cost from one setting."""
    prices = prediction.price_list
    numbers = (
        ("noise scale", f"{prices.noise_scale} examples (B·N/G, 95% interval), from {prices.readings} readings"),
        *(("note", str(reason)) for reason in prices.reasons),
    )
    if not prices.usable:
        return Card(Answer(name, f"{unusable(prices)} {prices.reasons[0]}", "note", numbers, ""))
    rows = prices.prices()
    return Card(Answer(name, headline(prices, rows), "note", numbers, "", first=1), price_table(prices, rows, number))


def price_table(prices: PriceList, rows: Sequence[Price], number: int) -> Table:
    """The formatted price list."""
    cells = columns(prices, rows)
    return Table(
        f"prices{number}", "prices", [dict(zip(cells, row, strict=True)) for row in zip(*cells.values(), strict=True)]
    )


def figures(records: Sequence[RunRecord], predicted: BaselinePredictions) -> Iterator[Figure]:
    """Price and noise of every setting, then test metric and training loss of the runs that were evaluated."""
    for number, (name, prediction) in enumerate(list(_by_name(records, predicted).items())[:_LISTS], 1):
        prices, panel = prediction.price_list, name if len(records) > 1 else ""
        if prices.usable:
            needed = charts.price_rows(prices.batch_size, prices.prices())
            title, picture = "Data that a larger batch needs", charts.needed_chart(needed)
            yield Figure.of(
                f"examples{number}",
                title,
                picture,
                charts.needed_sentence(needed),
                "prices",
                needed,
                panel,
            )
        noise = charts.noise_rows(prices)
        if noise:
            title, picture = "Gradient noise scale along training", charts.noise_chart(noise, prices.batch_size)
            yield Figure.of(f"noise{number}", title, picture, charts.noise_sentence(noise), "noise scale", noise, panel)
    metrics: tuple[Metric, ...] = (_metric(records), "train_loss")
    for metric in metrics:
        there = [record for record in in_order(records) if record.curve(metric)]
        named = [(_name(record), _batch_size(record), 0, record) for record in there[:DRAWN]]
        rows = [row for run in named for row in curve_rows(*run)]
        refined = any(record.spec is not None and substeps(record.spec.process) > 1 for record in there)
        across: training_curves.Across = "effective_step" if refined else "step"
        table = training_curves.table(rows, [run_row(*run) for run in named], metric, across=across)
        if table.rows:
            cut = f"The first {DRAWN} of {len(there)} runs, in the order of the table of every run. "
            figure = curve_figure(metric.replace("_", "-"), "", table)
            yield replace(figure, sentence=(cut if len(there) > DRAWN else "") + figure.sentence)


def in_order(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Sort similar runs together; those that cannot be read come last."""
    return sorted(records, key=_place)


def _place(record: RunRecord) -> tuple[bool, str, int, int, int]:
    spec = record.spec
    if spec is None:
        return True, "", 0, 0, 0
    return False, spec.process.kind, substeps(spec.process), spec.batch_size, spec.seed


def _metric(records: Sequence[RunRecord]) -> Metric:
    """The metric of the runs: bits per character if all of them learn texts."""
    data = [record.spec.data for record in records if record.spec is not None]
    texts = bool(data) and all(isinstance(source, TextSpec) for source in data)
    return "test_bits_per_character" if texts else "test_accuracy"


def _name(record: RunRecord) -> str:
    """A description of a run, with enough of its folder's name to find it."""
    spec = record.spec
    if spec is None:
        return record.path.name
    what = " ".join(word for word in spec.method.split() if "=" not in word)  # adamw svag, without its settings
    return f"{what} B={spec.batch_size} seed={spec.seed} ({record.path.name[:8]})"


def _batch_size(record: RunRecord) -> int:
    return 0 if record.spec is None else record.spec.batch_size


def _by_name(records: Sequence[RunRecord], predicted: BaselinePredictions) -> dict[str, BaselinePrediction]:
    """The predictions by the names of their runs; several seeds go by the name of the first."""
    names = {str(record.path): _name(record) for record in records}
    return {_together([names[run] for run in prediction.runs]): prediction for prediction in predicted.predictions}


def _together(names: Sequence[str]) -> str:
    """A name for the runs of one setting.

    >>> _together(["sgd B=8 seed=0 (ab)"]), _together(["sgd B=8 seed=0 (ab)", "sgd B=8 seed=1 (cd)"])
    ('sgd B=8 seed=0 (ab)', 'sgd B=8 seed=0 (ab) and 1 more seed')
    """
    return names[0] if len(names) == 1 else f"{names[0]} and {wording.count(len(names) - 1, 'more seed')}"


def finding(records: Sequence[RunRecord], predicted: BaselinePredictions) -> dict[str, object]:
    """Everything, for programs."""
    by_name = {name: prediction.to_dict() for name, prediction in _by_name(records, predicted).items()}
    return {"kind": "folder", "runs": [record.to_dict() for record in records], "predictions": by_name}
