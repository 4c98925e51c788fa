"""Which records belong to a panel, slot by slot, and which belong to none."""

from collections.abc import Iterable, Sequence

from svag.findings.experiments.arm_name import GD, NGD, SGD, ArmName, arm_of, svag_arm
from svag.findings.experiments.matching import on_ladder
from svag.findings.experiments.runs import PanelRuns, Slot, gather
from svag.records.experiment import Compare, ComparePanel, Ladder, LadderPanel, Metric, Ngd, NgdPanel
from svag.records.record import RunRecord


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
