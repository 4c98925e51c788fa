"""Moments that mean the same at every batch size: effective steps as fractions of the budget."""

from typing import Any

from svag.records.probe_spec import FrozenProbe, InRunProbe
from svag.records.refusal import SpecError
from svag.records.schedules import Steps
from svag.records.spec import Epochs, RunSpec


def as_fractions(spec: RunSpec) -> dict[str, Any]:
    """Edits that turn the moments of a spec that are effective steps into fractions of its budget.

    Zero stays, and so does a probe that reads at every effective step: both mean the same in any run.

    >>> spec = RunSpec.from_yaml('''{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 400,
    ...     schedule: {kind: steps, at: [100, 0.5]}, evaluate: {every: 20}}''')
    >>> as_fractions(spec)
    {'schedule.at': [0.25, 0.5], 'evaluate.every': 0.05}
    """
    found: dict[str, tuple[float, ...] | float] = {
        "schedule.warmup": spec.schedule.warmup,
        "evaluate.every": spec.evaluate.every,
    }
    if isinstance(spec.schedule, Steps):
        found["schedule.at"] = spec.schedule.at
    if isinstance(spec.probe, InRunProbe | FrozenProbe):
        found["probe.window"] = spec.probe.window
    if isinstance(spec.probe, InRunProbe) and spec.probe.every != 1:
        found["probe.every"] = spec.probe.every
    edits: dict[str, Any] = {}
    for path, moments in sorted(found.items(), reverse=True):
        if isinstance(moments, tuple):
            if any(map(_is_step, moments)):
                edits[path] = [_fraction(path, moment, spec) for moment in moments]
        elif _is_step(moments):
            edits[path] = _fraction(path, moments, spec)
    return edits


def _is_step(moment: float) -> bool:
    return isinstance(moment, int) and moment > 0


def _fraction(path: str, moment: float, spec: RunSpec) -> float:
    if not _is_step(moment):
        return moment
    if isinstance(spec.budget, Epochs) and spec.data.examples is None:
        raise SpecError(
            path,
            f"{moment} effective steps are another moment at every batch size: write a fraction of the budget",
        )
    return moment / spec.steps()
