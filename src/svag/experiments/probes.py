"""The probe of a ladder whose base has none: the predictions are made from what it measures."""

from collections.abc import Iterable

from svag.experiments.ladder import rung
from svag.records.numbers import step_of
from svag.records.probe_spec import NoProbe
from svag.records.refusal import SpecError
from svag.records.schedules import Steps
from svag.records.spec import RunSpec

READINGS, BATCHES = 60, 20


def with_probe(base: RunSpec, batch_sizes: Iterable[int]) -> RunSpec:
    """The base with a probe over the last third of its last-but-one phase, unless it has one.

    In the run where all batches can be cut into parts; at frozen weights with BatchNorm, which cutting would change,
    and with a network of the user's own, which may have it.

    >>> base = RunSpec.from_yaml('''{data: {name: svhn}, model: {arch: mlp, norm: layer}, batch_size: 8, lr: 1,
    ...     budget: {epochs: 9}, schedule: {kind: steps, at: [0.3, 0.9]}}''')
    >>> with_probe(base, [8, 16]).probe
    InRunProbe(kind='in_run', parts=4, window=(0.7, 0.9), every=0.0005)
    >>> with_probe(base.edited({"model.norm": "batch"}), [8, 16]).probe
    FrozenProbe(kind='frozen', readings=60, window=(0.7, 0.9), batches=20)
    """
    if not isinstance(base.probe, NoProbe):
        return base
    sizes, window = list(batch_sizes), _window(base)
    parts = next((parts for parts in (4, 2) if not any(size % parts for size in sizes)), None)
    if parts is not None and base.model.norm != "batch" and not base.model.is_callable:
        return base.edited({"probe": {"kind": "in_run", "parts": parts, "window": window, "every": 0.0005}})
    readings = _that_fit([rung(base, size) for size in sizes], window)
    return base.edited({"probe": {"kind": "frozen", "readings": readings, "window": window, "batches": BATCHES}})


def _window(base: RunSpec) -> list[float]:
    """As fractions of the budget; a rate that never decays in steps is watched over the second half."""
    if not isinstance(base.schedule, Steps):
        return [0.5, 1.0]
    moments: list[float] = [0.0, *base.schedule.at]
    if any(isinstance(moment, int) for moment in moments):
        try:
            moments = [step_of(moment, base.steps()) / base.steps() for moment in moments]
        except SpecError:  # an npz file in epochs
            raise SpecError("probe", "is missing: say when to measure G and N, such as {kind: frozen}") from None
    start, end = moments[-2:]
    return [round(end - (end - start) / 3, 6), float(end)]


def _that_fit(rungs: Iterable[RunSpec], window: list[float]) -> int:
    """A reading at every step of the window at most, at the largest batch size."""
    known = [spec for spec in rungs if isinstance(spec.budget, int) or spec.data.examples is not None]
    steps = (step_of(window[1], spec.steps()) - step_of(window[0], spec.steps()) for spec in known)
    return max(1, min([READINGS, *steps]))
