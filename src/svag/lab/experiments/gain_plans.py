"""Plans for the rungs of a gain ladder, from the runs of its smallest batch size.

A plan depends on those runs alone. It is written into `experiment.json` with the ladder, and kept from then on.
"""

from collections.abc import Sequence

from svag.lab.experiments.base import SGD
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.runs import PanelRuns, gather
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import SpecError
from svag.prices.history import History, run_history


def baseline_history(panel: LadderPanel, runs: PanelRuns) -> History | None:
    """N/G along the runs at the smallest batch size, all seeds together; None without readings."""
    size = panel.sizes[0]
    readings = [reading for seed in runs.readings(SGD, size).values() for reading in seed]
    if not readings:
        return None
    return run_history(readings, max(run.steps for run in runs.of(SGD, size).values()))


def baseline_prices(ladder: Ladder, records: Sequence[RunRecord]) -> dict[int, float]:
    """What the runs at the smallest batch size say that each larger one of the first panel will cost in examples.

    Args:
        ladder: by the gain rule.
        records: of its smallest batch size, in any order.
    """
    found, _ = gather(ladder, records, "train_loss")
    panel, history = ladder.panels[0], baseline_history(ladder.panels[0], found[0])
    return {} if history is None else {size: history.examples(size) for size in panel.sizes[1:]}


def plans_from(ladder: Ladder, records: Sequence[RunRecord]) -> tuple[LadderPanel, ...]:
    """The panels of a ladder with a plan for every rung, from the records of its smallest batch size.

    Args:
        ladder: whose smallest runs have ended.
        records: these, in any order; others are not looked at.
    """
    found, _ = gather(ladder, records, "train_loss")
    return tuple(_planned(panel, runs) for panel, runs in zip(ladder.panels, found, strict=True))


def _planned(panel: LadderPanel, runs: PanelRuns) -> LadderPanel:
    if not panel.unplanned:
        return panel
    size = panel.sizes[0]
    history = baseline_history(panel, runs)
    if history is None:
        lost = [run for run in runs.of(SGD, size).values() if run.state == "diverged"]
        if lost:
            raise SpecError("lr", f"training at batch size {size} diverged, and no gain can be planned: lower it")
        raise SpecError("probe", "is needed to plan the larger batches: leave it out, or use {kind: in_run}")
    try:
        new = [(larger, history.plan(larger).phases) for larger in panel.unplanned]
    except ValueError as error:  # an npz file that has fewer examples
        raise SpecError("batch_sizes", str(error)) from None
    return panel.model_copy(update={"plans": tuple(sorted((*panel.plans, *new)))})
