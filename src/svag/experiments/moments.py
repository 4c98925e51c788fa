"""Moments at another batch size: effective steps shrink as the batch grows, fractions of the budget stay."""

from typing import Any

from svag.records.probe_spec import FrozenProbe, InRunProbe
from svag.records.schedules import Steps
from svag.records.spec import RunSpec


def scaled_steps(spec: RunSpec, kappa: float) -> dict[str, Any]:
    """Edits that divide everything in a spec that is a number of effective steps by κ, to the nearest step.

    A probe that reads at every effective step goes on doing so.

    >>> spec = RunSpec.from_yaml('''{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 400,
    ...     schedule: {kind: steps, at: [100, 0.5]}, evaluate: {every: 20}}''')
    >>> scaled_steps(spec, 4)
    {'schedule.warmup': 0, 'schedule.at': [25, 0.5], 'evaluate.every': 5, 'budget': 100}
    """
    edits: dict[str, Any] = {"schedule.warmup": _scaled(spec.schedule.warmup, kappa)}
    if isinstance(spec.schedule, Steps):
        edits["schedule.at"] = [_scaled(moment, kappa) for moment in spec.schedule.at]
    if isinstance(spec.probe, InRunProbe | FrozenProbe):
        edits["probe.window"] = [_scaled(moment, kappa) for moment in spec.probe.window]
    if isinstance(spec.probe, InRunProbe) and spec.probe.every != 1:
        edits["probe.every"] = _scaled(spec.probe.every, kappa)
    edits["evaluate.every"] = _scaled(spec.evaluate.every, kappa)
    if isinstance(spec.budget, int):
        edits["budget"] = _scaled(spec.budget, kappa)
    return edits


def _scaled(moment: float, kappa: float) -> float:
    return max(1, round(moment / kappa)) if isinstance(moment, int) and moment > 0 else moment
