"""How far can I scale the batch? The price list from runs on disk, or from files of readings of the user's own loop.

Before runs start, `shortfall` warns if they are too short for a theorem to apply.
"""

import math
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from svag.lab.experiments.arms import shared_by_seeds
from svag.lab.experiments.runs import by_seed, one_version
from svag.lab.experiments.wording import LINES, count
from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.records.record import RunFailed, RunRecord, notes_on
from svag.lab.specs.fields import SpecError, step_of, visible
from svag.lab.specs.optimizers import SgdOptimizer
from svag.lab.specs.parts import NoProbe, SgdSpec
from svag.lab.specs.schedules import Constant, Steps
from svag.lab.specs.spec import RunSpec
from svag.noise.reading import Reading, load_readings
from svag.prices import wording
from svag.prices.price import Throughput
from svag.prices.price_list import PriceList, price_list
from svag.theory.equilibrium import E_FOLDS, e_folds_to_balance, effective_lr, steps_to_equilibrium

# The text names at most this many runs; JSON names all.
_NAMED = 3


@dataclass(frozen=True)
class BaselinePrediction:
    """The price list from all seeds of one setting.

    Attributes:
        price_list: the price list.
        runs: run directories, or files with the names of the runs in them.
        throughput: examples per second of a training step by batch size, where it was measured.
        records: the records of the runs; empty for files.
    """

    price_list: PriceList
    runs: tuple[str, ...]
    throughput: Throughput | None = None
    records: tuple[RunRecord, ...] = ()

    @property
    def numerics(self) -> int | None:
        """The version of the numerics that computed the runs; None for files, for which it is unknown."""
        return self.records[0].numerics if self.records else None

    def to_dict(self) -> dict[str, object]:
        """Return the fields of the prediction for a JSON document, and the runs; prices with times if known."""
        fields = {**self.price_list.to_dict(), "runs": list(self.runs), "numerics": self.numerics}
        if self.throughput is not None:
            prices = self.price_list.prices(throughput=self.throughput)
            fields["prices"] = [price.to_dict() for price in prices]
            fields["throughput"] = {str(size): float(speed) for size, speed in self.throughput.items()}
        return fields

    def details(self) -> str:
        """Everything that is known, as text."""
        return f"From {_named(self.runs)}:\n{wording.details(self.price_list, self.throughput)}"


def _named(runs: Sequence[str], most: int = _NAMED) -> str:
    """Which runs an answer is about.

    >>> _named(["runs/0"]), _named(["a", "b", "c", "d"]), _named(["a", "b"], most=1)
    ('runs/0', '4 runs, a, b, c and 1 more', 'a and 1 more')
    """
    more = f" and {len(runs) - most} more" if len(runs) > most else ""
    return f"{f'{len(runs)} runs, ' if len(runs) > 1 < most else ''}{', '.join(map(visible, runs[:most]))}{more}"


def _filled(text: str) -> str:
    return textwrap.fill(text, wording.WIDTH)


def _lines(text: str) -> int:
    """How many lines a terminal needs for it."""
    return sum(max(math.ceil(len(line) / wording.WIDTH), 1) for line in text.split("\n"))


@dataclass(frozen=True)
class BaselinePredictions:
    """One prediction per setting, by increasing batch size, and a sentence for every run that was not used."""

    predictions: tuple[BaselinePrediction, ...]
    skipped: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return everything for a JSON document; the fields of a single prediction are also at the top level."""
        rows = [prediction.to_dict() for prediction in self.predictions]
        about = {"predictions": rows, "skipped": list(self.skipped), "record_notes": notes_on(self._records)}
        return {**(rows[0] if len(rows) == 1 else {}), **about}

    @property
    def _records(self) -> list[RunRecord]:
        return [record for prediction in self.predictions for record in prediction.records]

    def details(self) -> str:
        """Everything that is known, as text."""
        parts = [prediction.details() for prediction in self.predictions]
        return "\n\n".join([*parts, *map(_filled, self._notes())])

    def brief(self, more: str = "--details") -> str:
        """The answer in at most 12 lines: the price list of a single setting, the headlines of several.

        Args:
            more: where the rest is.
        """
        if len(self.predictions) == 1:
            [one] = self.predictions
            said = wording.brief(one.price_list, LINES - 1, one.throughput, self._notes())
            return f"{said}\nFrom {count(len(one.runs), 'run')}. All numbers: {more}"
        below = [*map(_filled, self._notes()), f"All numbers: {more}"]
        left = LINES - sum(map(_lines, below)) - 1  # one for how many are left out
        lines: list[str] = []
        for one in self.predictions:
            runs = f"batch size {one.price_list.batch_size}, {_named(one.runs, most=1)}"
            line = f"From {runs}: {wording.first_line(one.price_list, one.throughput)}"
            if sum(map(_lines, lines)) + _lines(line) > left:
                break
            lines.append(line)
        if len(lines) < len(self.predictions):
            lines.append(f"and {count(len(self.predictions) - len(lines), 'more setting')}")
        return "\n".join([*lines, *below])

    def __str__(self) -> str:
        return self.brief()

    def _notes(self) -> list[str]:
        """What is to be known of the records, in a sentence if there is anything."""
        notes = notes_on(self._records)
        if self._records and (version := self._records[0].numerics) != NUMERICS_VERSION:
            notes = [f"Computed by version {version} of the numerics", *notes]
        return ["; ".join(notes) + "."] if notes else []


def predict_from_runs(
    records: Iterable[RunRecord],
    c2: float = 2.0,
    confidence: float = 0.95,
    window: tuple[float, float] | None = None,
    throughput: Callable[[RunSpec], Throughput] | None = None,
) -> BaselinePredictions:
    """Make a price list from runs of SGD that finished with readings, the seeds of one setting together.

    A run that cannot be used is skipped with a sentence. If none can be used, an error is raised: a `RunFailed` if all
    of them are broken.

    Args:
        records: records of one run, of several seeds, or of a ladder.
        c2: C² of the bound.
        confidence: level of the intervals.
        window: two effective steps, or two fractions of the budget; see `svag.price_list`.
        throughput: measures examples per second by batch size, for the first seed of every setting.
    """
    there = list(records)
    one_version(there)
    seeds = defaultdict(list)
    skipped = []
    for record in there:
        problem = _problem(record)
        if problem is None and record.spec is not None:
            seeds[shared_by_seeds(record.spec)].append(record)
        elif problem is not None:
            skipped.append(problem)
    if there and all(record.state == "broken" for record in there):
        raise RunFailed(skipped[0])
    if not seeds:
        raise SpecError("", skipped[0] if skipped else "there is no run here: give a folder that svag run has written")
    groups = [[run for _, run in by_seed(group)] for group in seeds.values()]
    groups.sort(key=lambda group: (group[0].readings[0].batch_size, str(group[0].path)))
    with _refused():
        predictions = tuple(_predict(group, c2, confidence, window, throughput) for group in groups)
    return BaselinePredictions(predictions, tuple(skipped))


@contextmanager
def _refused() -> Iterator[None]:
    """Turn a `ValueError` of the library, about readings or arguments, into a refusal of the laboratory."""
    try:
        yield
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError("", str(error)) from None


def predict_from_files(
    paths: Iterable[Path],
    c2: float = 2.0,
    confidence: float = 0.95,
    window: tuple[float, float] | None = None,
) -> BaselinePredictions:
    """Make a price list from files that `svag.append_readings` wrote, the runs of one batch size together.

    Args:
        paths: the files.
        c2: C² of the bound.
        confidence: level of the intervals.
        window: two effective steps, or two fractions of the run; see `svag.price_list`.
    """
    sizes = defaultdict[int, list[Reading]](list)
    with _refused():
        for path in paths:
            try:
                readings = load_readings(path)
            except UnicodeDecodeError:
                raise SpecError(str(path), "is not a text file: give a JSONL file of svag.append_readings") from None
            if not readings:
                raise SpecError(str(path), "there is no reading in it: write some with svag.append_readings")
            for reading in readings:
                sizes[reading.batch_size].append(replace(reading, run=f"{path} {reading.run}".rstrip()))
        predictions = tuple(
            BaselinePrediction(
                price_list(readings, c2, confidence, window),
                tuple(dict.fromkeys(reading.run for reading in readings)),
            )
            for _, readings in sorted(sizes.items())
        )
    return BaselinePredictions(predictions, ())


def _predict(
    group: Sequence[RunRecord],
    c2: float,
    confidence: float,
    window: tuple[float, float] | None,
    throughput: Callable[[RunSpec], Throughput] | None,
) -> BaselinePrediction:
    readings = [replace(reading, run=str(record.path)) for record in group for reading in record.readings]
    steps, spec = group[0].steps, group[0].spec
    chosen = None if window is None else (step_of(window[0], steps), step_of(window[1], steps))
    return BaselinePrediction(
        price_list(readings, c2, confidence, chosen),
        tuple(str(record.path) for record in group),
        None if throughput is None or spec is None else throughput(spec),
        tuple(group),
    )


def _problem(record: RunRecord) -> str | None:
    """Why a run cannot be used, and the remedy; None if it can be used."""
    where, spec = record.path, record.spec
    if spec is None:
        return f"{where} cannot be read: {record.problem}"
    if not isinstance(shared_by_seeds(spec).process, SgdSpec):
        return f"{where} is a run of {spec.process.kind}, but predictions come from SGD: use a run of sgd"
    if record.state == "diverged":
        return f"{where} diverged and has no equilibrium to measure at: lower the learning rate and run it again"
    if record.state == "running":
        return f"{where} is still running, at step {record.step} of {record.steps}: wait until it ends"
    if record.state == "failed":
        return f"{where} failed ({record.problem}): repair that and run its spec again into the same folder"
    if record.state != "finished":
        return (
            f"{where} was interrupted at step {record.step} of {record.steps}: run its spec again into the "
            "same folder, and it continues"
        )
    if not record.readings:
        return f"{where} has no readings of the noise: run it with a probe, as in --probe.kind in_run"
    return None


def start_over_settled(record: RunRecord) -> float | None:
    """R₀/R* if the run has measured it, otherwise None.

    R* = R·√(growth over decay), as in `svag.theory.equilibrium.relaxed_param_sq`, at the last balance measured.
    """
    balances = [row["noise"] for row in record.evaluations if ((row.get("noise") or {}).get("balance") or 0) > 0]
    if not balances or record.evaluations[0]["step"]:
        return None
    last = balances[-1]
    return float(record.evaluations[0]["param_sq"] / (last["param_sq"] * math.sqrt(last["balance"])))


def shortfall(specs: Iterable[RunSpec], records: Iterable[RunRecord] = ()) -> str:
    """Warn that measured runs are too short for their weights to settle, naming the shortest; empty if none is.

    The time to settle depends on how far from equilibrium the weights start, which earlier runs of the same network may
    have measured. Runs whose time to settle is not known in advance are left out: those without weight decay, with a
    rate that changes all the time, or with a budget in epochs of a file that has not been opened.

    >>> spec = RunSpec.from_yaml('''{data: {name: svhn}, model: {arch: mlp}, batch_size: 128, lr: 0.1, budget: 93,
    ...     weight_decay: 1.0e-3, probe: {kind: in_run, parts: 4}}''')
    >>> print(shortfall([spec]))
    93 steps at the first learning rate are too few for equilibrium, which takes 3 to 5 relaxation times
    1/(4ηλ) of 2,500 steps: the prices will be estimates, and no theorem will apply.

    Args:
        specs: the runs.
        records: records of runs that have ended; read only if one of the specs is measured.
    """
    settling = [(*times, spec.model) for spec in specs if (times := _settling(spec)) is not None]
    known: dict[object, float] = {}
    for record in records if settling else ():
        if record.spec is not None and (ratio := start_over_settled(record)) is not None:
            known[record.spec.model] = max(known.get(record.spec.model, 0.0), e_folds_to_balance(ratio))
    short = [
        (steps / relaxation, steps, relaxation, known.get(model))
        for steps, relaxation, model in settling
        if steps < known.get(model, E_FOLDS) * relaxation
    ]
    if not short:
        return ""
    _, steps, relaxation, needed = min(short, key=lambda run: run[0])
    several = "3 to 5" if needed is None else f"{needed:.1f}"
    return (
        f"{steps:,} steps at the first learning rate are too few for equilibrium, which takes {several} "
        f"relaxation times 1/(4ηλ) of {relaxation:,.0f} steps: the prices will be estimates, and no theorem will apply."
    )


def _settling(spec: RunSpec) -> tuple[int, float] | None:
    """Effective steps at the first learning rate, and the relaxation time there; None where this is not known."""
    measured = not isinstance(spec.probe, NoProbe) and isinstance(shared_by_seeds(spec).process, SgdSpec)
    counted = isinstance(spec.budget, int) or spec.data.examples is not None
    if not (measured and counted and spec.weight_decay and isinstance(spec.schedule, Constant | Steps)):
        return None
    if not isinstance(spec.optimizer, SgdOptimizer):  # for the others no theorem needs an equilibrium
        return None
    steps = spec.steps()
    if isinstance(spec.schedule, Steps):
        steps = min(step_of(at, steps) for at in spec.schedule.at)
    rate = effective_lr(spec.lr, spec.optimizer.momentum)
    return steps, steps_to_equilibrium(rate, spec.weight_decay)
