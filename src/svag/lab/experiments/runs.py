"""The runs of an experiment: which record belongs to which slot, the results and evaluations of each arm.

A record belongs to the slots whose spec it has, up to what is measured and evaluated on the way (`arms.matched`).
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypedDict

from svag.as_json import JsonRow
from svag.lab.experiments.arms import SGD, ArmName, Slot, matched
from svag.lab.experiments.experiment import Experiment, Metric
from svag.lab.records.identity import identity
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec
from svag.noise.reading import Reading

CONTINUE = "start the same command again: it continues with the runs that have no result."


@dataclass(frozen=True)
class MissingRun(JsonRow):
    """A run of the experiment without a result.

    Attributes:
        arm: name of its arm.
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
class RunRow(JsonRow):
    """One result, a row for tables. NaN where the run diverged or did not measure it.

    Attributes:
        arm: name of the arm.
        batch_size: B.
        lr: η.
        seed: the seed.
        state: "finished" or "diverged".
        step: last effective step.
        test_accuracy: test accuracy at the end.
        test_loss: test loss at the end.
        train_loss: mean training loss since the last evaluation but one.
        readings: number of readings.
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


class Listed(TypedDict):
    """The runs of a panel, as the fields of its finding."""

    runs: tuple[RunRow, ...]
    curves: tuple[CurveRow, ...]
    missing: tuple[MissingRun, ...]


@dataclass(frozen=True, eq=False)
class PanelRuns:
    """The runs of one panel.

    Attributes:
        results: records that finished or diverged, by slot.
        missing: runs without a result.
    """

    results: dict[Slot, RunRecord]
    missing: tuple[MissingRun, ...]

    @property
    def remedy(self) -> str:
        """How to get the missing runs: repeat the command, which skips broken ones until they are removed."""
        broken = [run.path for run in self.missing if run.state == "broken" and run.path]
        if not broken:
            return CONTINUE
        more, them = ("", "it") if len(broken) == 1 else (f" and {len(broken) - 1} more broken ones", "them")
        return f"restore {broken[0]}{more} from a copy or remove {them}, and {CONTINUE}"

    def of(self, arm: ArmName, batch_size: int) -> dict[int, RunRecord]:
        """Results of one arm by seed."""
        results = self.results.items()
        return dict(by_seed(run for slot, run in results if slot.arm == arm and slot.batch_size == batch_size))

    def finals(self, arm: ArmName, batch_size: int, metric: Metric) -> dict[int, float]:
        """Final metric by seed; NaN for a diverged run, which is an outcome."""
        return {seed: final_metric(run, metric) for seed, run in self.of(arm, batch_size).items()}

    def steps(self, batch_size: int) -> int:
        """Effective steps of the runs of SGD at one batch size; 0 without results."""
        return max((run.steps for run in self.of(SGD, batch_size).values()), default=0)

    def readings(self, arm: ArmName, batch_size: int) -> dict[int, list[Reading]]:
        """Readings by seed of the finished runs that have any, each naming its run."""
        named = self._named_readings
        return {seed: named[run.path] for seed, run in self.of(arm, batch_size).items() if run.path in named}

    def pooled_readings(self, arm: ArmName, batch_size: int) -> list[Reading]:
        """The readings of all seeds of one arm, seed after seed."""
        return [reading for own in self.readings(arm, batch_size).values() for reading in own]

    @cached_property
    def _named_readings(self) -> dict[Path, list[Reading]]:
        """Readings by run directory; cached, because every part of a finding uses them."""
        return {
            run.path: [_named(reading, f"seed {slot.seed}") for reading in run.readings]
            for slot, run in self.results.items()
            if run.state == "finished" and run.readings
        }

    def listed(self) -> Listed:
        """Results, evaluations and missing runs, as the fields of a finding."""
        named = [(str(slot.arm), slot.batch_size, slot.seed, run) for slot, run in self.results.items()]
        return {
            "runs": tuple(run_row(*one) for one in named),
            "curves": tuple(row for one in named for row in curve_rows(*one)),
            "missing": self.missing,
        }


def _named(reading: Reading, run: str) -> Reading:
    """The reading with the name of its run; `replace` would check it again, which takes longer than reading it."""
    other = copy(reading)
    vars(other)["run"] = run  # frozen, but this copy has no other reference yet
    return other


def by_seed(runs: Iterable[RunRecord]) -> list[tuple[int, RunRecord]]:
    """Runs with their seeds, by increasing seed: an interval over blocks of readings depends on their order."""
    seeded = [(run.spec.seed, run) for run in runs if run.spec is not None]
    return sorted(seeded, key=lambda pair: (pair[0], str(pair[1].path)))


def final_metric(run: RunRecord, metric: Metric) -> float:
    """The metric at the end; NaN if the run diverged."""
    value = run.final.get(metric)
    return math.nan if run.state == "diverged" or value is None else float(value)


def gather(
    experiment: Experiment, records: Sequence[RunRecord], metric: Metric
) -> tuple[list[PanelRuns], tuple[str, ...]]:
    """The runs of every panel, and a sentence for every record that belongs to no panel or cannot be read.

    Of several records for one slot, a result is preferred, then the one with more readings.
    """
    one_version(records)
    offered = defaultdict(list)
    for record in records:
        if record.spec is not None:
            offered[matched(record.spec)].append(record)
    panels: list[tuple[dict[Slot, RunRecord], list[MissingRun]]] = [({}, []) for _ in experiment.panels]
    slots = experiment.slots()
    broken = _broken_slots(slots, records)
    wanted = set()
    for slot, spec in slots.items():
        results, missing = panels[slot.panel]
        wanted.add(matched(spec))
        best = min(offered[matched(spec)], key=lambda run: (-run.ended, -len(run.readings)), default=broken.get(slot))
        problem = _unusable(best, metric)
        if best is not None and problem is None:
            results[slot] = best
        else:
            state, path = ("not run", None) if best is None else (best.state, str(best.path))
            missing.append(MissingRun(str(slot.arm), slot.batch_size, slot.seed, state, problem or "", path))
    listed = {record.path for record in broken.values()}
    strangers = tuple(
        f"{record.path} is broken: {record.problem}" if record.spec is None else f"{record.path} was not asked for"
        for record in records
        if record.path not in listed and (record.spec is None or matched(record.spec) not in wanted)
    )
    return [PanelRuns(results, tuple(missing)) for results, missing in panels], strangers


def _broken_slots(slots: Mapping[Slot, RunSpec], records: Sequence[RunRecord]) -> dict[Slot, RunRecord]:
    """The records that cannot be read, by slot: the name of their folder is the identity of their spec."""
    broken = {record.path.name: record for record in records if record.spec is None}
    by_slot = {}
    for slot, spec in slots.items() if broken else ():
        with suppress(SpecError):  # a spec without its npz file or its network has no identity
            if (record := broken.get(identity(spec)[:12])) is not None:
                by_slot[slot] = record
    return by_slot


def one_version(records: Iterable[RunRecord], to_come: int | None = None) -> None:
    """Refuse runs of several versions of the numerics: the same spec does not give the same numbers in both.

    Args:
        records: the runs that are there.
        to_come: the version with which further runs will be computed, if there are any.
    """
    examples: dict[int, str] = {}
    for record in records:
        if record.spec is not None:
            examples.setdefault(record.numerics, str(record.path))
    versions = sorted(examples.items())
    if to_come is not None and to_come not in examples:
        versions.insert(1, (to_come, "a new run"))
    if len(versions) > 1:
        (version, where), (other, elsewhere) = versions[:2]
        raise SpecError(
            "",
            f"{where} was computed by version {version} of the numerics, {elsewhere} by version {other}: results of "
            "different versions are not comparable, so put each version in a folder of its own",
        )


def _unusable(run: RunRecord | None, metric: Metric) -> str | None:
    """Why a slot has no result; None if it has one."""
    if run is None:
        return "not run"
    if not run.ended:
        return f"{run.state}: {run.problem}" if run.problem else run.state
    if run.state == "finished" and run.final.get(metric) is None:
        return f"finished without {metric}"
    return None


def curve_rows(arm: str, batch_size: int, seed: int, run: RunRecord) -> Iterator[CurveRow]:
    """The evaluations of a run, under the name of its arm."""
    for row in run.evaluations:
        metrics = (row.get("test_accuracy"), row.get("test_loss"), row.get("train_loss"))
        yield CurveRow(arm, batch_size, seed, int(row["step"]), *metrics)


def run_row(arm: str, batch_size: int, seed: int, run: RunRecord) -> RunRow:
    """The result of a run, under the name of its arm."""
    return RunRow(
        arm=arm,
        batch_size=batch_size,
        lr=math.nan if run.spec is None else run.spec.lr,
        seed=seed,
        state=run.state,
        step=run.step,
        test_accuracy=final_metric(run, "test_accuracy"),
        test_loss=final_metric(run, "test_loss"),
        train_loss=final_metric(run, "train_loss"),
        readings=len(run.readings),
        path=str(run.path),
    )
