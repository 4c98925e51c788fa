"""The runs of one panel: which record belongs to which slot, what each arm came to, and which runs are missing.

What the arms of a panel are called, and which arm a run belongs to.

The runs of one panel: what each arm came to, and which runs are missing.

Whether a run belongs to a panel: its spec is the base spec, moved along the linear scaling rule if at all.

Which records belong to a panel, slot by slot, and which belong to none.

Sentences that all findings share.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from svag.experiments.base import Compare, ComparePanel, Ladder, LadderPanel, Metric, Ngd, NgdPanel
from svag.records.parts import GdSpec, GlsrSpec, NgdSpec, Process, SgdSpec, SvagSpec
from svag.records.reading import Reading
from svag.records.record import RunRecord
from svag.records.spec import RunSpec
from svag.stats.samples import json_number
from svag.theory.optimizers import MomentumLimit

Kind = Literal["sgd", "svag", "glsr", "ngd", "gd"]


@dataclass(frozen=True)
class ArmName:
    """One arm of a panel.

    >>> str(ArmName("svag", 4)), str(ArmName("sgd"))
    ('SVAG ell=4', 'SGD')

    Attributes:
        kind: of the process.
        refinement: ell of SVAG, parts of the coupled ladder, 1 of the others.
    """

    kind: Kind
    refinement: int = 1

    def __str__(self) -> str:
        match self.kind:
            case "svag":
                return f"SVAG ell={self.refinement}"
            case "glsr":
                return f"ladder parts={self.refinement}"
        return self.kind.upper()


SGD, NGD, GD = ArmName("sgd"), ArmName("ngd"), ArmName("gd")


def svag_arm(ell: int) -> ArmName:
    """The arm of SVAG(ell); ell = 1 is SGD."""
    return SGD if ell == 1 else ArmName("svag", ell)


def arm_of(process: Process, split: int, limit: MomentumLimit | None) -> ArmName | None:
    """The arm that runs of this process belong to, in a panel whose SVAG arms have this split and momentum limit.

    None for no arm: what tends to another limit, or tends to it differently, is not pooled.

    >>> arm_of(SvagSpec(ell=4, split=2), split=2, limit=None), arm_of(SvagSpec(ell=4, split=2), split=1, limit=None)
    (ArmName(kind='svag', refinement=4), None)
    """
    match process:
        case SgdSpec():
            return SGD
        case SvagSpec():
            if process.is_sgd:
                return SGD
            same = (process.split, process.momentum_limit) == (split, limit)
            return ArmName("svag", process.ell) if same else None
        case GlsrSpec():
            return ArmName("glsr", process.parts)
        case NgdSpec():
            return NGD
        case GdSpec():
            return GD
    return None


@dataclass(frozen=True)
class Slot:
    """A run that the experiment asks for."""

    arm: ArmName
    batch_size: int
    seed: int

    def __str__(self) -> str:
        return f"{self.arm} B={self.batch_size} seed {self.seed}"


@dataclass(frozen=True)
class MissingRun:
    """A run that was asked for and has no result.

    Attributes:
        arm: what it is called.
        batch_size: B.
        seed: its seed.
        state: "not run", or the state of its record: "failed", "running", "interrupted".
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

    def to_dict(self) -> dict[str, object]:
        """Return the fields for a JSON document; NaN is null."""
        return plain(asdict(self))


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


@dataclass(frozen=True, eq=False)
class PanelRuns:
    """The runs of one panel.

    Attributes:
        found: results by slot: finished or diverged.
        missing: slots without one.
    """

    found: dict[Slot, RunRecord]
    missing: tuple[MissingRun, ...]

    def of(self, arm: ArmName, batch_size: int) -> dict[int, RunRecord]:
        """Results of one arm by seed."""
        return dict(by_seed(run for s, run in self.found.items() if s.arm == arm and s.batch_size == batch_size))

    def finals(self, arm: ArmName, batch_size: int, metric: Metric) -> dict[int, float]:
        """Final metric by seed; NaN for a diverged run, which is an outcome."""
        return {seed: final_metric(run, metric) for seed, run in self.of(arm, batch_size).items()}

    def readings(self, arm: ArmName, batch_size: int) -> dict[int, list[Reading]]:
        """Readings by seed of the finished runs that have any, each naming its run."""
        return {
            seed: [replace(reading, run=f"seed {seed}") for reading in run.readings]
            for seed, run in self.of(arm, batch_size).items()
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


def by_seed(runs: Iterable[RunRecord]) -> list[tuple[int, RunRecord]]:
    """Runs with their seeds, by increasing seed: an interval over blocks of readings depends on their order."""
    seeded = [(run.spec.seed, run) for run in runs if run.spec is not None]
    return sorted(seeded, key=lambda one: (one[0], str(one[1].path)))


def final_metric(run: RunRecord, metric: Metric) -> float:
    """The metric at the end; NaN if the run diverged."""
    value = run.final.get(metric)
    return math.nan if run.state == "diverged" or value is None else float(value)


def gather(slots: Iterable[Slot], offers: Sequence[tuple[Slot, RunRecord]], metric: Metric) -> PanelRuns:
    """Give each slot its run. Of several for one slot, a result is preferred, then the one with more readings."""
    found: dict[Slot, RunRecord] = {}
    missing = []
    offered: dict[Slot, list[RunRecord]] = {}
    for slot, run in offers:
        offered.setdefault(slot, []).append(run)
    for slot in slots:
        runs = sorted(offered.get(slot, ()), key=lambda run: (-run.ended, -len(run.readings)))
        problem = _unusable(runs[0], metric) if runs else "not run"
        if problem is None:
            found[slot] = runs[0]
        else:
            state, path = (runs[0].state, str(runs[0].path)) if runs else ("not run", None)
            missing.append(MissingRun(str(slot.arm), slot.batch_size, slot.seed, state, problem, path))
    return PanelRuns(found, tuple(missing))


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


def plain(fields: dict[str, object]) -> dict[str, object]:
    """Fields of a flat record as JSON values: infinity and NaN are null.

    >>> plain({"low": 0.5, "high": math.inf, "name": "a"})
    {'low': 0.5, 'high': None, 'name': 'a'}
    """
    return {name: json_number(value) if isinstance(value, float) else value for name, value in fields.items()}


# What may differ between the runs of a panel: the arm, the seed, and what is measured on the way.
_FREE = {"process", "seed", "probe", "evaluate"}
_SCALED = {"batch_size", "lr", "budget", "schedule"}
_SAME = tuple(name for name in RunSpec.model_fields if name not in _FREE | _SCALED)


def on_ladder(base: RunSpec, spec: RunSpec) -> bool:
    """Whether `spec` is `base` at another batch size by the linear rule: κB and κη, and 1/κ of any number of steps.

    Process, seed, probe and evaluation are free. Step counts may be rounded either way.

    >>> base = RunSpec(data={"name": "cifar10"}, model={"arch": "vgg16"}, batch_size=64, lr=0.1, budget=99)
    >>> on_ladder(base, base.edited({"batch_size": 128, "lr": 0.2, "budget": 50, "seed": 3}))
    True
    >>> on_ladder(base, base.edited({"batch_size": 128, "lr": 0.1, "budget": 50}))
    False
    """
    kappa = spec.batch_size / base.batch_size
    if not math.isclose(spec.lr, kappa * base.lr, rel_tol=1e-6):
        return False
    if any(getattr(base, name) != getattr(spec, name) for name in _SAME):
        return False
    ours, theirs = (one.model_dump(include={"budget", "schedule"}) for one in (base, spec))
    return _alike(ours, theirs, kappa)


def same_setting(base: RunSpec, spec: RunSpec) -> bool:
    """Whether `spec` is `base` up to process, seed, probe and evaluation."""
    return base.batch_size == spec.batch_size and on_ladder(base, spec)


def _alike(base: Any, other: Any, kappa: float) -> bool:
    """Whether two trees of values agree, whole numbers being effective steps, of which κ times the batch needs 1/κ."""
    if isinstance(base, dict) and isinstance(other, dict):
        return base.keys() == other.keys() and all(_alike(base[key], other[key], kappa) for key in base)
    if isinstance(base, list | tuple) and isinstance(other, list | tuple):
        return len(base) == len(other) and all(_alike(b, o, kappa) for b, o in zip(base, other, strict=True))
    if kappa != 1 and type(base) is int and type(other) is int:
        return abs(other - base / kappa) < 1
    return bool(base == other)


def slots_of(panel: ComparePanel | LadderPanel | NgdPanel, seeds: Sequence[int]) -> list[Slot]:
    """Every run that the panel asks for."""
    sizes = panel.batch_sizes if isinstance(panel, LadderPanel) else (panel.base.batch_size,)
    return [Slot(arm, size, seed) for size in sorted(set(sizes)) for arm in arms_of(panel) for seed in seeds]


def arms_of(panel: ComparePanel | LadderPanel | NgdPanel) -> list[ArmName]:
    """The arms of a panel, SGD first, then by increasing refinement."""
    match panel:
        case NgdPanel():
            return [SGD, NGD, GD]
        case LadderPanel():
            return [SGD, *(svag_arm(ell) for ell in sorted(set(panel.ells)) if ell > 1)]
        case ComparePanel():
            svag = [svag_arm(ell) for ell in sorted(set(panel.ells)) if ell > 1]
            ladder = [ArmName("glsr", parts) for parts in sorted(set(panel.glsr)) if parts > 1]
            return [SGD, *svag, *ladder, *([NGD] if panel.ngd else [])]


def runs_of(
    panel: ComparePanel | LadderPanel | NgdPanel, seeds: Sequence[int], records: Iterable[RunRecord], metric: Metric
) -> PanelRuns:
    """The runs of a panel; those without a result are listed, never dropped."""
    offers = [(slot, record) for record in records if (slot := _slot(panel, record)) is not None]
    return gather(slots_of(panel, seeds), offers, metric)


def strangers(experiment: Compare | Ladder | Ngd, records: Iterable[RunRecord]) -> tuple[str, ...]:
    """A sentence for every record that no panel asked for, and for every one that cannot be read."""
    asked = [(panel, set(slots_of(panel, experiment.seeds_of(panel)))) for panel in experiment.panels]
    return tuple(
        f"{record.path} is broken: {record.problem}" if record.spec is None else f"{record.path} was not asked for"
        for record in records
        if not any(_slot(panel, record) in slots for panel, slots in asked)
    )


def _slot(panel: ComparePanel | LadderPanel | NgdPanel, record: RunRecord) -> Slot | None:
    spec = record.spec
    split, limit = (1, None) if isinstance(panel, NgdPanel) else (panel.split, panel.momentum_limit)
    if spec is None or not on_ladder(panel.base, spec):
        return None
    arm = arm_of(spec.process, split, limit)
    return None if arm is None else Slot(arm, spec.batch_size, spec.seed)


_SHOWN = 4
CONTINUE = "start the same command again: it continues with the runs that have no result."


def missing_first(missing: Sequence[MissingRun], found: int) -> list[str]:
    """The first line of a finding with missing runs; none without."""
    if not missing:
        return []
    named = "; ".join(str(run) for run in missing[:_SHOWN])
    more = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return [f"Incomplete: {found} of {found + len(missing)} runs have a result. Missing: {named}{more}."]


def not_used(strangers: Sequence[str], missing: Sequence[MissingRun]) -> list[str]:
    """A paragraph about the records that no panel asked for, after what matters more; none without."""
    if not strangers:
        return []
    more = f"; and {len(strangers) - _SHOWN} more" if len(strangers) > _SHOWN else ""
    first = f"Incomplete: {len(missing)} runs have no result. " if missing else ""
    return [f"{first}Not used: {'; '.join(strangers[:_SHOWN])}{more}."]
