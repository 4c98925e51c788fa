"""What a ladder found: where linear scaling fails, and what its rungs had predicted (fig:lsr_acc_gnr)."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from svag.experiments import wording
from svag.experiments.base import SGD
from svag.experiments.evidence import Finding
from svag.experiments.ladder import Ladder, LadderPanel
from svag.experiments.ladder_evidence import (
    Certificate,
    PredictionRange,
    Rung,
    RungPrediction,
    certificates,
    pooled,
    prediction_of,
    ranges,
    ruled_out,
    rung_of,
)
from svag.experiments.runs import CONTINUE, CurveRow, MissingRun, PanelRuns, RunRow, gather, json_fields
from svag.experiments.wording import Answer, Tone, unbounded
from svag.findings.scaling_verdict import ScalingVerdict, scaling_verdict
from svag.records.record import RunRecord

_TONES: dict[str, Tone] = {"fails": "no", "never fails": "yes", "fails from the start": "no"}


@dataclass(frozen=True)
class LadderPanelFinding:
    """What one ladder found.

    Attributes:
        name: of the panel.
        rungs: one per batch size, increasing.
        scaling: where linear scaling was seen to fail; None when fewer than two batch sizes have results.
        predictions: one per rung with readings, increasing in batch size.
        ranges: smallest and largest usable prediction, for each form; empty without usable baselines.
        certificates: what the measured N/G rule out.
        c2: C² of the predictions.
        runs: all results.
        curves: all evaluations.
        missing: runs without a result.
        status: what to do next.
    """

    name: str
    rungs: tuple[Rung, ...]
    scaling: ScalingVerdict | None
    predictions: tuple[RungPrediction, ...]
    ranges: tuple[PredictionRange, ...]
    certificates: tuple[Certificate, ...]
    c2: float
    runs: tuple[RunRow, ...]
    curves: tuple[CurveRow, ...]
    missing: tuple[MissingRun, ...]
    status: str

    @property
    def observed(self) -> float | None:
        """The batch size at which the ladder was seen to fail."""
        return None if self.scaling is None else self.scaling.observed

    def to_dict(self) -> dict[str, object]:
        """Return the panel for a JSON document, without the curves."""
        found = self.scaling
        limits = (math.nan, math.nan) if found is None else (found.low, found.high)
        return {
            "name": self.name,
            **json_fields({"observed": self.observed, "observed_low": limits[0], "observed_high": limits[1]}),
            "predictions": [one.to_dict() for one in self.predictions],
            "rungs": [rung.to_dict() for rung in self.rungs],
            "ranges": [json_fields(asdict(one)) for one in self.ranges],
            "certificates": [json_fields(asdict(one)) for one in self.certificates],
            "scaling": None if found is None else found.to_dict(),
            "c2": self.c2,
            "runs": [row.to_dict() for row in self.runs],
            "missing": [asdict(run) for run in self.missing],
            "status": self.status,
        }

    @property
    def headline(self) -> str:
        """Where linear scaling was seen to fail, in one sentence."""
        found = self.scaling
        if found is None:
            return "Fewer than two batch sizes have results."
        limits = wording.batch_interval(found.low, found.high)
        at = wording.batch(found.observed)
        if unbounded(found.low, found.high):
            where = f"at batch size {at}" if found.observed is not None else "nowhere on this ladder"
            return f"Not decided: the means would put the failure {where}, but these seeds give no interval."
        rule = f"test error {found.tolerance:.0%} above the best"
        failing = [rung for rung in self.rungs if found.observed is not None and rung.batch_size >= found.observed]
        if failing and failing[0].diverged:
            rule = f"seeds diverged at {failing[0].batch_size:,}"
        first, last = self.rungs[0].batch_size, self.rungs[-1].batch_size
        match found.answer:
            case "fails":
                return f"Linear scaling fails at batch size {at} {limits} ({rule})."
            case "never fails":
                return f"Linear scaling does not fail up to batch size {last:,}; 95% interval {limits}."
            case "fails from the start":
                return f"Linear scaling fails already at the smallest batch size, {first:,} ({rule})."
            case _:
                then = f"; linear scaling fails beyond it, at {at} {limits}" if found.observed is not None else ""
                return f"Test error improves up to batch size {wording.batch(found.best_batch)}{then}."

    def answer(self) -> Answer:
        """Where scaling fails; what was observed, predicted, and whether the two agree, first."""
        found = self.scaling
        numbers = [*self._observed(), *self._predicted(), *self._checked()]
        return Answer(
            self.name,
            self.headline,
            "open" if found is None or unbounded(found.low, found.high) else _TONES.get(found.answer, "open"),
            (*numbers, *self._more()),
            self.status,
            tuple(rung.error for rung in self.rungs),
            "test error by batch size",
            first=len(numbers),
        )

    def _observed(self) -> Iterator[tuple[str, str]]:
        found = self.scaling
        if found is not None:
            observed = wording.batch(found.observed) if found.observed is not None else "no failure"
            yield "observed failure", f"{observed} {wording.batch_interval(found.low, found.high)}"
            if found.best_batch is not None:
                best = min(rung.error for rung in self.rungs if rung.batch_size == found.best_batch)
                yield "lowest test error", f"{best:.2%} at batch size {found.best_batch:,}"
        if lost := [rung for rung in self.rungs if rung.diverged]:
            first, *others = (f"{rung.diverged} of {rung.seeds}{{}} at {rung.batch_size:,}" for rung in lost)
            yield "diverged", ", ".join([first.format(" seeds"), *(one.format("") for one in others)])

    def _predicted(self) -> Iterator[tuple[str, str]]:
        """The smallest and the largest of all usable predictions, as the paper's figures show them."""
        usable = sorted((one for one in self.predictions if one.usable), key=lambda one: one.critical.critical_batch)
        if len(usable) == 1:
            yield "predicted", usable[0].said
        elif usable:
            yield f"smallest of {len(usable)} predictions", usable[0].said
            yield f"largest of {len(usable)} predictions", usable[-1].said
        elif self.predictions:
            yield "predicted", "no baseline gives a usable prediction"

    def _checked(self) -> Iterator[tuple[str, str]]:
        """Whether the smallest usable baseline had it right; nothing without a failure to hold it against."""
        first = next((one for one in self.predictions if one.usable), None)
        if first is None or first.over_observed_low is None or first.over_observed_high is None:
            return
        low, high = first.over_observed_low, first.over_observed_high
        prediction = f"The prediction from B = {first.batch_size}"
        if unbounded(low, high):
            yield "check", f"{prediction} cannot be checked: predicted over observed has no bounds"
        elif high < 1:
            yield "check", f"{prediction} lies below the observed failure"
        elif low > 1:
            yield "check", f"{prediction} lies above the observed failure, which the theorem allows"
        else:
            yield "check", f"{prediction} agrees with the observed failure"

    def _more(self) -> Iterator[tuple[str, str]]:
        """One row for everything else that was found."""
        forms = [f"{one.said} as {one.form}" for one in self.ranges if one.form != "sharp"]
        if forms:
            yield "as printed / as plotted", f"B* = {'; '.join(forms)}"
        if self.certificates:
            fired = ruled_out(self.certificates).items()
            yield "ruled out", "; ".join(f"at B = {size} {what}" for size, what in fired)
        balances = [(rung.batch_size, rung.balance) for rung in self.rungs if rung.balance is not None]
        if balances:
            said = ", ".join(f"{balance:.3g} at B = {size}" for size, balance in balances)
            yield "equilibrium", f"growth over decay of |x|², 1 at equilibrium: {said}"
        ratios = [(one.batch_size, one.critical.noise_to_signal) for one in self.predictions]
        if ratios:
            yield "N/G", ", ".join(f"{wording.plain(ratio)} at B = {size}" for size, ratio in ratios)
        limits = [(rung.batch_size, rung.sde) for rung in self.rungs if rung.sde is not None]
        if limits:
            said = ", ".join(f"{one.value:.2%} ({one.low:.2%} to {one.high:.2%}) at B = {size}" for size, one in limits)
            yield "SDE limit of the error", said
        for one in self.predictions:
            if not one.usable:
                yield f"not usable from B = {one.batch_size}", one.status.partition(". ")[0]  # the table has all of it

    def __str__(self) -> str:
        return str(self.answer())


class LadderFinding(Finding[LadderPanelFinding]):
    """What an experiment `ladder` found.

    >>> from svag.records.spec import RunSpec
    >>> base = RunSpec.from_yaml(
    ...     "{data: {name: svhn}, model: {arch: mlp, norm: none}, batch_size: 8, lr: 1, budget: {epochs: 9}}")
    >>> found = Ladder.of(base, batch_sizes=[8, 16], seeds=1).find([])
    >>> len(found.missing), found.to_dict()["observed"]
    (2, None)
    >>> print(found.panels[0])
    mlp none on svhn: Fewer than two batch sizes have results.
    Next: start the same command again: it continues with the runs that have no result.
    """

    kind = "ladder"


def find_ladder(experiment: Ladder, records: Sequence[RunRecord]) -> LadderFinding:
    """Find where each ladder fails and what its rungs predicted."""
    found, strangers = gather(experiment, records, "test_accuracy")
    panels = tuple(_panel(experiment, panel, runs) for panel, runs in zip(experiment.panels, found, strict=True))
    return LadderFinding(experiment.title, panels, strangers)


def _panel(experiment: Ladder, panel: LadderPanel, runs: PanelRuns) -> LadderPanelFinding:
    sizes = sorted(set(panel.batch_sizes))
    errors = {size: found for size in sizes if (found := _errors(runs, size))}
    scaling, unscaled = _scaling(errors, experiment.tolerance)
    measured, unread = pooled(runs, sizes, experiment.c2)
    predictions = tuple(prediction_of(one, by_seed, scaling) for one, by_seed in measured)
    critical = [one.critical for one in predictions]
    return LadderPanelFinding(
        name=panel.name,
        rungs=tuple(rung_of(panel, runs, size, errors.get(size, {}), critical) for size in sizes),
        scaling=scaling,
        predictions=predictions,
        ranges=ranges(predictions),
        certificates=certificates(critical, sizes),
        c2=experiment.c2,
        runs=runs.rows(),
        curves=runs.curves(),
        missing=runs.missing,
        status=_next(runs, predictions, scaling, unscaled, unread),
    )


def _errors(runs: PanelRuns, size: int) -> dict[int, float]:
    return {seed: 1 - accuracy for seed, accuracy in runs.finals(SGD, size, "test_accuracy").items()}


def _scaling(errors: Mapping[int, Mapping[int, float]], tolerance: float) -> tuple[ScalingVerdict | None, str]:
    if len(errors) < 2:
        return None, "run at least two batch sizes: a ladder of one rung shows no failure."
    try:
        return scaling_verdict({size: list(found.values()) for size, found in errors.items()}, tolerance), ""
    except ValueError as error:
        return None, f"{error}."


def _next(
    runs: PanelRuns,
    predictions: Sequence[RungPrediction],
    scaling: ScalingVerdict | None,
    unscaled: str,
    unread: str,
) -> str:
    if runs.missing:
        return CONTINUE
    if scaling is None:
        return unscaled
    if not predictions:
        return unread
    if not any(one.usable for one in predictions):
        return f"no baseline is usable; at the smallest, B={predictions[0].batch_size}: {predictions[0].status}"
    return scaling.status
