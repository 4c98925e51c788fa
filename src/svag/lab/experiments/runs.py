"""The runs of an experiment: which record belongs to which slot, what each arm came to, and the curves of its panels.

A record belongs to the slots whose spec it has, up to what is measured and evaluated on the way (`base.matched`).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from svag.lab.experiments.base import ArmName, Experiment, Metric, Slot, matched
from svag.lab.records.identity import identity
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec
from svag.noise.reading import Reading
from svag.stats.samples import json_fields

CONTINUE = "start the same command again: it continues with the runs that have no result."


@dataclass(frozen=True)
class MissingRun:
    """A run that was asked for and has no result.

    Attributes:
        arm: what it is called.
        batch_size: B.
        seed: its seed.
        state: "not run", or the state of its record: "failed", "running", "interrupted", "broken".
        problem: why, if the record says.
        path: the run directory, if there is one.
    """

    arm: str
    batch_size: int
    seed: int
    state: str
    problem: str = ""
    path: str | None = None

    def __str__(self) -> str:
        return f"{self.arm} B={self.batch_size} seed {self.seed} ({self.problem or self.state})"


@dataclass(frozen=True)
class RunRow:
    """One result, a row for tables. NaN where the run diverged or did not measure it.

    Attributes:
        arm: what the arm is called.
        batch_size: B.
        lr: η.
        seed: the seed.
        state: "finished" or "diverged".
        step: last effective step.
        test_accuracy: at the end.
        test_loss: at the end.
        train_loss: mean since the evaluation before the last.
        readings: how many readings it has.
        path: the run directory.
    """

    arm: str
    batch_size: int
    lr: float
    seed: int
    state: str
    step: int
    test_accuracy: float
    test_loss: float
    train_loss: float
    readings: int
    path: str

    @property
    def test_bits_per_character(self) -> float:
        """The test loss of a text in bits."""
        return self.test_loss / math.log(2)

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; NaN is null."""
        return json_fields(asdict(self))


@dataclass(frozen=True)
class CurveRow:
    """One evaluation of one run, a row for drawing; None where a metric was not measured."""

    arm: str
    batch_size: int
    seed: int
    step: int
    test_accuracy: float | None
    test_loss: float | None
    train_loss: float | None

    @property
    def test_bits_per_character(self) -> float | None:
        """The test loss of a text in bits."""
        return None if self.test_loss is None else self.test_loss / math.log(2)


@dataclass(frozen=True, eq=False)
class PanelRuns:
    """The runs of one panel.

    Attributes:
        found: results by slot: finished or diverged.
        missing: slots without one.
    """

    found: dict[Slot, RunRecord]
    missing: tuple[MissingRun, ...]

    @property
    def remedy(self) -> str:
        """What gets the missing runs: the same command, which leaves broken ones alone until they are removed."""
        broken = [run.path for run in self.missing if run.state == "broken" and run.path]
        if not broken:
            return CONTINUE
        more, them = ("", "it") if len(broken) == 1 else (f" and {len(broken) - 1} more broken ones", "them")
        return f"restore {broken[0]}{more} from a copy or remove {them}, and {CONTINUE}"

    def of(self, arm: ArmName, batch_size: int) -> dict[int, RunRecord]:
        """Results of one arm by seed."""
        return dict(by_seed(run for s, run in self.found.items() if s.arm == arm and s.batch_size == batch_size))

    def finals(self, arm: ArmName, batch_size: int, metric: Metric) -> dict[int, float]:
        """Final metric by seed; NaN for a diverged run, which is an outcome."""
        return {seed: final_metric(run, metric) for seed, run in self.of(arm, batch_size).items()}

    def readings(self, arm: ArmName, batch_size: int) -> dict[int, list[Reading]]:
        """Readings by seed of the finished runs that have any, each naming its run."""
        named = self._named_readings
        return {seed: named[run.path] for seed, run in self.of(arm, batch_size).items() if run.path in named}

    @cached_property
    def _named_readings(self) -> dict[Path, list[Reading]]:
        """By run directory; every part of a finding asks for them again."""
        return {
            run.path: [_named(reading, f"seed {slot.seed}") for reading in run.readings]
            for slot, run in self.found.items()
            if run.state == "finished" and run.readings
        }

    def rows(self) -> tuple[RunRow, ...]:
        """All results, as a table."""
        return tuple(_row(slot, run) for slot, run in self.found.items())

    def curves(self) -> tuple[CurveRow, ...]:
        """All evaluations, as a table; a diverged run until it diverged."""
        return tuple(
            CurveRow(
                str(slot.arm),
                slot.batch_size,
                slot.seed,
                int(row["step"]),
                row.get("test_accuracy"),
                row.get("test_loss"),
                row.get("train_loss"),
            )
            for slot, run in self.found.items()
            for row in run.evaluations
        )


def _named(reading: Reading, run: str) -> Reading:
    """The reading with the name of its run; not checked a second time, which would take longer than reading it did."""
    other = copy(reading)
    vars(other)["run"] = run  # of a copy that nobody else has seen
    return other


def by_seed(runs: Iterable[RunRecord]) -> list[tuple[int, RunRecord]]:
    """Runs with their seeds, by increasing seed: an interval over blocks of readings depends on their order."""
    seeded = [(run.spec.seed, run) for run in runs if run.spec is not None]
    return sorted(seeded, key=lambda one: (one[0], str(one[1].path)))


def final_metric(run: RunRecord, metric: Metric) -> float:
    """The metric at the end; NaN if the run diverged."""
    value = run.final.get(metric)
    return math.nan if run.state == "diverged" or value is None else float(value)


def gather(
    experiment: Experiment, records: Sequence[RunRecord], metric: Metric
) -> tuple[list[PanelRuns], tuple[str, ...]]:
    """The runs of every panel, and a sentence for every record that no panel asked for or that cannot be read.

    Of several records for one slot, a result is preferred, then the one with more readings.
    """
    one_version(records)
    offered = defaultdict(list)
    for record in records:
        if record.spec is not None:
            offered[matched(record.spec)].append(record)
    found: list[dict[Slot, RunRecord]] = [{} for _ in experiment.panels]
    missing: list[list[MissingRun]] = [[] for _ in experiment.panels]
    slots = experiment.slots()
    asked = {slot: matched(spec) for slot, spec in slots.items()}
    broken = _broken_slots(slots, records)
    for slot, spec in asked.items():
        best = min(offered[spec], key=lambda run: (-run.ended, -len(run.readings)), default=None)
        if best is None and (lost := broken.get(slot)) is not None:
            missing[slot.panel].append(_missing(slot, lost.state, f"broken: {lost.problem}", str(lost.path)))
        elif best is None:
            missing[slot.panel].append(_missing(slot, "not run", "not run"))
        elif problem := _unusable(best, metric):
            missing[slot.panel].append(_missing(slot, best.state, problem, str(best.path)))
        else:
            found[slot.panel][slot] = best
    wanted = set(asked.values())
    listed = {record.path for record in broken.values()}
    strangers = tuple(
        f"{record.path} is broken: {record.problem}" if record.spec is None else f"{record.path} was not asked for"
        for record in records
        if record.path not in listed and (record.spec is None or matched(record.spec) not in wanted)
    )
    return [PanelRuns(runs, tuple(lost)) for runs, lost in zip(found, missing, strict=True)], strangers


def _broken_slots(slots: Mapping[Slot, RunSpec], records: Sequence[RunRecord]) -> dict[Slot, RunRecord]:
    """The slots of runs that cannot be read, which their folders are named after by identity."""
    broken = {record.path.name: record for record in records if record.spec is None}
    found = {}
    for slot, spec in slots.items() if broken else ():
        with suppress(SpecError):  # without its npz file or its network a spec has no identity
            if (record := broken.get(identity(spec)[:12])) is not None:
                found[slot] = record
    return found


def one_version(records: Iterable[RunRecord], to_come: int | None = None) -> None:
    """Refuse runs of several versions of the numerics: the same spec does not give the same numbers in both.

    Args:
        records: the runs that are there.
        to_come: the version of those that are about to be computed beside them, if any are.
    """
    found: dict[int, str] = {}
    for record in records:
        if record.spec is not None:
            found.setdefault(record.numerics, str(record.path))
    first = sorted(found.items())
    if to_come is not None and to_come not in found:
        first.insert(1, (to_come, "a new run"))
    if len(first) > 1:
        (one, where), (other, elsewhere) = first[:2]
        raise SpecError(
            "",
            f"{where} was computed by version {one} of the numerics, {elsewhere} by version {other}: results of "
            "different versions are not comparable, so put each version in a folder of its own",
        )


def _missing(slot: Slot, state: str, problem: str, path: str | None = None) -> MissingRun:
    return MissingRun(str(slot.arm), slot.batch_size, slot.seed, state, problem, path)


def _unusable(run: RunRecord, metric: Metric) -> str | None:
    if not run.ended:
        return f"{run.state}: {run.problem}" if run.problem else run.state
    if run.state == "finished" and run.final.get(metric) is None:
        return f"finished without {metric}"
    return None


def _row(slot: Slot, run: RunRecord) -> RunRow:
    return RunRow(
        arm=str(slot.arm),
        batch_size=slot.batch_size,
        lr=math.nan if run.spec is None else run.spec.lr,
        seed=slot.seed,
        state=run.state,
        step=run.step,
        test_accuracy=final_metric(run, "test_accuracy"),
        test_loss=final_metric(run, "test_loss"),
        train_loss=final_metric(run, "train_loss"),
        readings=len(run.readings),
        path=str(run.path),
    )


@dataclass(frozen=True)
class MeanPoint:
    """One series at one evaluation.

    Attributes:
        series: the arm, or the rung.
        step: the effective step.
        budget: the same as a share of the longest run of the series.
        mean: over the seeds that were still running then.
        low: their smallest value.
        high: their largest value.
        seeds: how many they are.
    """

    series: str
    step: int
    budget: float
    mean: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class DivergedEnd:
    """Where a diverged run was evaluated last."""

    series: str
    seed: int
    step: int
    budget: float
    value: float


@dataclass(frozen=True)
class MeanCurves:
    """The curves of one panel in one metric.

    Attributes:
        points: the means, series by series, in the order of the steps.
        diverged: where runs ended early.
    """

    points: tuple[MeanPoint, ...]
    diverged: tuple[DivergedEnd, ...]


def mean_curves(
    curves: Sequence[CurveRow], runs: Sequence[RunRow], metric: Metric, series_of: Callable[[CurveRow | RunRow], str]
) -> MeanCurves:
    """Average a metric over the seeds; evaluations without it, or where it is not finite, are left out.

    >>> rows = [CurveRow("SGD", 64, seed, 20, accuracy, None, None) for seed, accuracy in enumerate((0.5, 0.75))]
    >>> (point,) = mean_curves(rows, [], "test_accuracy", lambda row: row.arm).points
    >>> point.series, point.mean, point.low, point.high
    ('SGD', 0.625, 0.5, 0.75)

    Args:
        curves: every evaluation of every run.
        runs: every run with its state.
        metric: what to average.
        series_of: the name of the series that an evaluation or a run belongs to.
    """
    values: dict[str, dict[int, list[float]]] = {}
    last: dict[tuple[str, int], tuple[int, float]] = {}
    for row in curves:
        found = getattr(row, metric)
        if found is not None and math.isfinite(found):
            values.setdefault(series_of(row), {}).setdefault(row.step, []).append(found)
            last[series_of(row), row.seed] = (row.step, found)
    longest = {series: max(1, *steps) for series, steps in values.items()}
    points = [
        MeanPoint(series, step, step / longest[series], sum(found) / len(found), min(found), max(found), len(found))
        for series, steps in values.items()
        for step, found in sorted(steps.items())
    ]
    lost = [(series_of(run), run.seed) for run in runs if run.state == "diverged"]
    ends = [
        DivergedEnd(series, seed, step, step / longest[series], value)
        for series, seed in lost
        if (series, seed) in last
        for step, value in (last[series, seed],)
    ]
    return MeanCurves(tuple(points), tuple(ends))
