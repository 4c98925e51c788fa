"""Up to which batch size does scaling hold? One run at batch sizes along the rule, each measured (fig:lsr_acc_gnr).

The rule is that of the optimizer, linear for SGD and square-root for Adam, AdamW and RMSprop: times given as fractions
of the budget stay the same, and numbers of effective steps are divided by κ. Or it is the gain rule: the smallest batch
size runs first, and the others follow the plans that its readings give (`svag.lab.experiments.gain_finding`).
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypedDict, Unpack

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer

from svag.lab.experiments.arms import ArmSpec, processes_at, require_sgd, shared_by_seeds, svag_arms, svag_fields
from svag.lab.experiments.experiment import Experiment, Panel, described, own_metric
from svag.lab.experiments.wording import percent
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import Count, NonNegative, Positive, Several, Share, SpecError, step_of
from svag.lab.specs.parts import FrozenProbe, InRunProbe, NoProbe
from svag.lab.specs.schedules import Steps
from svag.lab.specs.spec import RunSpec, plan_of
from svag.theory.adaptive import AdamSettings, RMSpropSettings
from svag.theory.domain import closeness
from svag.theory.optimizers import MomentumLimit

if TYPE_CHECKING:
    from svag.lab.experiments.ladder_finding import LadderFinding


LadderRule = Literal["gain", "linear", "square_root"]

SMALLEST_LADDER = (8, 16, 32)
# The paper's tolerance for test errors. Most of the bits per character of a text remain even after long training, so
# 20% more would undo most of it.
TOLERANCE, TEXT_TOLERANCE = 0.2, 0.02
C2 = 2.0

_SUBJECTS: dict[LadderRule, str] = {
    "gain": "The gain rule",
    "linear": "Linear scaling",
    "square_root": "Square-root scaling",
}
_GAIN_METHOD = (
    "The smallest batch size runs first. Its gradient noise sets the learning rate of each larger one at every moment "
    "of training, and how many times the examples that takes (the gain rule). The larger runs show whether they end at "
    "the same training loss, at that price."
)


def _increasing(window: tuple[float, float]) -> tuple[float, float]:
    if not window[0] < window[1]:
        raise ValueError(f"must be two increasing fractions of the budget, got {window[0]:g} and {window[1]:g}")
    return window


def _tolerance_of(fields: dict[str, Any]) -> float:
    """The default of the tolerance, by the metric of the panels."""
    errors = any(own_metric([panel]) == "test_accuracy" for panel in fields["panels"])
    return TOLERANCE if errors else TEXT_TOLERANCE


class LadderPanel(Panel):
    """Batch sizes along a scaling rule from one base spec, which gives the settings at its own batch size.

    Attributes:
        batch_sizes: the rungs.
        rule: "gain", or the rule of the optimizer: "linear" for SGD, "square_root" for the others; None is the latter.
        ells: also run SVAG at these ell, for the SDE limit at every batch size.
        split: into how many parts SVAG cuts its batches.
        momentum_limit: which limit SVAG follows if the base has momentum.
        refined: the rungs that have the SVAG arms; all of them if empty.
        probe_batches: batches of each reading at frozen weights, rung by rung; those of the base if empty.
        measured: with the gain rule, measure the gain while training instead of planning it.
        plans: with the gain rule, batch size and phases (first baseline step, gain) of each rung planned so far.
    """

    batch_sizes: tuple[Count, ...]
    rule: LadderRule | None = None
    ells: tuple[Count, ...] = ()
    split: Count = 1
    momentum_limit: MomentumLimit | None = None
    refined: tuple[Count, ...] = ()
    probe_batches: tuple[Several, ...] = ()
    measured: bool = False
    plans: tuple[tuple[Count, tuple[tuple[NonNegative, Positive], ...]], ...] = ()

    @model_serializer(mode="wrap")
    def _as_before(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the fields of the gain rule, so that other ladders are written as in versions without it."""
        fields: dict[str, Any] = handler(self)
        return {name: value for name, value in fields.items() if value or name not in {"measured", "plans"}}

    @property
    def gained(self) -> bool:
        """Whether the rungs follow the gain rule."""
        return self.rule == "gain"

    @property
    def sizes(self) -> list[int]:
        """The rungs, each once, increasing."""
        return sorted(set(self.batch_sizes))

    @property
    def unplanned(self) -> list[int]:
        """The rungs whose plan is still to be made from the smallest one."""
        planned = {size for size, _ in self.plans}
        return [size for size in self.sizes[1:] if size not in planned] if self.gained and not self.measured else []

    @property
    def baseline(self) -> RunSpec:
        """The smallest rung, by the rule of the optimizer: what the others of a gain ladder are planned from."""
        return rung(self.base, self.sizes[0])

    def rate_at(self, batch_size: int) -> float:
        """η at a rung by the rule of the optimizer; NaN by the gain rule, where it changes along the run."""
        if not self.gained or batch_size == self.sizes[0]:
            return rung(self.base, batch_size).lr
        return math.nan

    def arms(self) -> list[ArmSpec]:
        """SGD at every batch size, with SVAG beside it where it is asked for; rungs without a plan are left out."""
        require_sgd(self.base)
        own = self.base.optimizer.rule
        if self.rule not in (None, "gain", own):
            kind = self.base.optimizer.kind
            raise SpecError(
                "rule", f"{kind} scales by the {own} rule, for which its runs are priced: use {own} or gain"
            )
        if len(set(self.batch_sizes)) < 2:
            raise SpecError("batch_sizes", "a ladder has at least two rungs: name more batch sizes")
        if self.probe_batches and len(self.probe_batches) != len(self.batch_sizes):
            many = len(self.batch_sizes)
            raise SpecError("probe_batches", f"must be one for each of the {many} batch sizes, or none")
        if self.gained:
            return self._by_gain()
        if self.measured or self.plans:
            raise SpecError("rule", "a gain is planned or measured by the gain rule only: use gain")
        if strangers := sorted(set(self.refined) - set(self.batch_sizes)):
            raise SpecError("refined", f"names {strangers[0]}, which is not among the batch sizes of the ladder")
        batches = dict(zip(self.batch_sizes, self.probe_batches, strict=False))
        arms: list[ArmSpec] = []
        for size in self.sizes:
            sgd = rung(self.base, size)
            if size in batches and isinstance(sgd.probe, FrozenProbe):
                sgd = sgd.edited({"probe.batches": batches[size]})
            ells = self.ells if size in (self.refined or self.batch_sizes) else ()
            arms += [(self.itself, sgd), *svag_arms(sgd, ells, self.split, self.momentum_limit)]
        return arms

    def _by_gain(self) -> list[ArmSpec]:
        """The smallest rung, and those others whose gains are planned or will be measured."""
        if self.ells:
            raise SpecError("ells", "SVAG follows the rule of its optimizer, not the gain rule: use another rule")
        if self.probe_batches:
            raise SpecError("probe_batches", "the rungs of a gain ladder share the probe of the base: leave it empty")
        base, plans = self.baseline, dict(self.plans)
        arms = [(self.itself, base)]
        for size in self.sizes[1:]:
            process: dict[str, Any] = {"kind": "gain", "base_batch_size": base.batch_size}
            edits: dict[str, Any] = {"batch_size": size}
            if self.measured:
                if not isinstance(base.probe, InRunProbe):
                    edits["probe"] = {"kind": "in_run", "parts": 4 if size % 4 == 0 else 2}
            else:
                # before there is a plan, any plan serves to refuse an impossible rung before the baseline is trained
                process["plan"] = plans.get(size, ((0.0, 1.0),))
            spec = base.edited({**edits, "process": process})
            if self.measured or size in plans:
                arms.append((self.itself, spec))
        return arms

    def edited(self, edits: Mapping[str, Any]) -> Self:
        """The same ladder from another base, without its plans; a new probe is the probe of every rung."""
        probe = any(path.split(".")[0] == "probe" for path in edits)
        other = super().edited(edits).model_copy(update={"plans": ()})
        return other.model_copy(update={"probe_batches": ()}) if probe else other

    def smallest(self, edits: Mapping[str, Any]) -> Self:
        """Three small rungs of one epoch each, since the same number of steps would be longer at a larger batch."""
        fewer = super().smallest({"budget": {"epochs": 1}, **edits})
        return fewer.model_copy(update={"batch_sizes": SMALLEST_LADDER, "refined": (), "plans": ()})


class LadderOptions(TypedDict, total=False):
    """Options besides base, batch sizes, seeds and rule.

    Each is a field of `LadderPanel` or `Ladder`, an argument of `svag.lab.ladder` and a flag of `svag ladder`.
    """

    measured: bool
    ells: Iterable[int]
    split: int
    momentum_limit: MomentumLimit | None
    tolerance: float | None
    c2: float


class Ladder(Experiment):
    """How far do training statistics drift apart along the scaling rule, and what did each rung predict?

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: {epochs: 9}}")
    >>> [(spec.batch_size, spec.lr) for spec in Ladder.of(base, batch_sizes=[4, 8, 16], seeds=1).runs()]
    [(4, 0.5), (8, 1.0), (16, 2.0)]

    Attributes:
        tolerance: test error fails where it exceeds the lowest by this fraction of it; by default 20%, or 2% of the
            bits per character of a text.
        c2: C² of the predictions.
        window: fractions of the budget between which all rungs are averaged; when None, where all have settled.
    """

    question: ClassVar[str] = "How far can this batch grow?"
    method: ClassVar[str] = (
        "Batch size and learning rate grow together, by the {rule} scaling rule. Runs at small batches predict, from "
        "their gradient noise, what a larger batch costs; runs at larger batches show what it does cost."
    )
    needs: ClassVar[str] = (
        "SGD at two batch sizes, with the settings and every number of steps scaled exactly from the smaller one"
    )
    options: ClassVar[type] = LadderOptions
    default_seeds: ClassVar[int] = 3

    kind: Literal["ladder"] = "ladder"
    panels: tuple[LadderPanel, ...] = Field(min_length=1)
    tolerance: Positive = Field(default_factory=_tolerance_of)
    c2: Annotated[Positive, AfterValidator(closeness)] = C2
    window: Annotated[tuple[Share, Share], AfterValidator(_increasing)] | None = None

    @classmethod
    def of(
        cls,
        base: RunSpec,
        batch_sizes: Iterable[int],
        seeds: int | Iterable[int],
        *,
        rule: LadderRule | None = None,
        name: str | None = None,
        file: Path | None = None,
        **options: Unpack[LadderOptions],
    ) -> Self:
        """One panel around a base spec, which gets a probe if it has none; see `Experiment.about`."""
        sizes = tuple(batch_sizes)
        gained = isinstance(rule, str) and rule == "gain"  # other values are refused by name below
        subject = _SUBJECTS["gain" if gained else base.optimizer.rule]
        probed, rungs = with_probe(base, sizes, whole=gained), {"batch_sizes": sizes, "rule": rule}
        return cls.about(probed, seeds, subject, rungs, options, name=name, file=file)

    @property
    def waits(self) -> bool:
        """Whether rungs are still to be planned, from runs of the smallest batch size."""
        return any(panel.unplanned for panel in self.panels)

    def planned_from(self, records: Sequence[RunRecord]) -> Self:
        """The same ladder with a plan for every rung, from the records of its smallest batch size."""
        from svag.lab.experiments.gain_finding import plans_from

        return self.model_copy(update={"panels": plans_from(self, records)})

    def with_plans_of(self, before: Experiment | None) -> Self:
        """The same ladder with the plans that were saved for the same baseline."""
        if not isinstance(before, Ladder):
            return self
        panels = []
        for panel in self.panels:
            known = {
                size: phases
                for old in before.panels
                if old.gained and old.baseline == panel.baseline
                for size, phases in old.plans
            }
            missing = [(size, known[size]) for size in panel.unplanned if size in known]
            panels.append(panel.model_copy(update={"plans": tuple(sorted((*panel.plans, *missing)))}))
        return self.model_copy(update={"panels": tuple(panels)})

    def asks(self) -> tuple[str, str]:
        """The question of the family, and how it is answered: by the gain rule, or by scaling."""
        question, method = super().asks()
        return question, _GAIN_METHOD if all(panel.gained for panel in self.panels) else method

    def planned(self) -> str:
        """What the plans of the gain rule cost, by panel."""
        said = []
        for panel in self.panels:
            prices = []
            for _, spec in panel.arms():
                if (plan := plan_of(spec)) is not None:
                    with suppress(SpecError):  # an npz file in epochs
                        price = f"{plan.price(spec.steps()):.2f}× the examples at batch size {spec.batch_size}"
                        prices.append(f"{price} ({plan.steps(spec.steps())} steps)")
            if prices:
                said.append(f"Planned from the runs at batch size {panel.sizes[0]}: {', '.join(prices)}.")
        return "\n".join(said)

    def asked(self) -> str:
        """The batch sizes of every panel, the tolerance, C² and the window."""
        sizes = "; ".join(
            f"{panel.name}: batch sizes {', '.join(map(str, panel.batch_sizes))}" for panel in self.panels
        )
        window = (
            "" if self.window is None else f", averages over {self.window[0]:.0%} to {self.window[1]:.0%} of training"
        )
        return f"{sizes}; tolerance {percent(self.tolerance)}, C² = {self.c2:g}{window}"

    def find(self, records: Sequence[RunRecord]) -> "LadderFinding":
        """Find what the rungs of each ladder predicted, how far they drifted apart, and where test error failed."""
        from svag.lab.experiments.ladder_finding import find_ladder

        return find_ladder(self, records)

    @classmethod
    def around(cls, base: RunSpec, known: Collection[RunSpec]) -> LadderPanel:
        """The batch sizes at which the known specs follow the rule from this base, with their SVAG arms."""
        rungs = {}
        for size in sorted({spec.batch_size for spec in known}):
            with suppress(SpecError):  # no batch size that the rule can reach
                rungs[shared_by_seeds(rung(base, size))] = size
        sizes = tuple(size for spec, size in rungs.items() if spec in known)
        svag = svag_fields(processes_at(rungs, known))
        refined = tuple(rungs[spec] for spec in rungs if svag_fields(processes_at([spec], known))["ells"])
        some = refined if set(refined) < set(sizes) else ()
        return LadderPanel(name=described(base), base=base, batch_sizes=sizes, refined=some, **svag)


def rung(base: RunSpec, batch_size: int) -> RunSpec:
    """The base at another batch size, along the rule of its optimizer (def:lsr for SGD), for the same epochs.

    Every number of effective steps is divided by κ. At its own batch size the base is left as it is, so that an
    existing run of it is not repeated.

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 900}")
    >>> rung(base, 32).budget, rung(base, 32).lr
    (225, 4.0)
    >>> rung(base.edited({"optimizer": {"kind": "adamw", "betas": [0.96875, 0.984375]}}), 32).optimizer.betas
    (0.875, 0.9375)
    """
    if batch_size == base.batch_size:
        return base
    kappa = batch_size / base.batch_size
    _refuse_short_averages(base, batch_size)
    try:
        scaled = base.optimizer.settings(base.lr, base.weight_decay).scaled(kappa)
    except ValueError as error:
        raise SpecError("batch_sizes", f"{batch_size} cannot be reached from {base.batch_size}: {error}") from None
    edits: dict[str, Any] = {"batch_size": batch_size, "lr": scaled.lr, "weight_decay": scaled.weight_decay}
    match scaled:
        case AdamSettings():
            edits |= {"optimizer.betas": scaled.betas, "optimizer.eps": scaled.eps}
        case RMSpropSettings():
            edits |= {"optimizer.alpha": scaled.alpha, "optimizer.eps": scaled.eps}
    return base.edited(scaled_steps(base, kappa) | edits)


def _refuse_short_averages(base: RunSpec, batch_size: int) -> None:
    """Refuse a β with κ(1 − β) ≥ 1: an average that forgets everything at each step is not an average."""
    for name, beta in base.optimizer.averages.items():
        kappa, limit = batch_size / base.batch_size, base.batch_size / (1 - beta)
        if batch_size * (1 + 1e-9) >= limit:  # 10 × (1 − 0.9) is just below 1 in floating point
            raise SpecError(
                f"optimizer.{name}",
                f"{beta:g} cannot be scaled to batch size {batch_size}, where {kappa:g}·(1 − β) is not below 1: raise "
                f"it above {1 - 1 / kappa:.4g} at batch size {base.batch_size}, or stay below batch size {limit:.4g}",
            )


def scaled_steps(spec: RunSpec, kappa: float) -> dict[str, Any]:
    """Edits that divide everything in a spec that is a number of effective steps by κ, to the nearest step.

    A probe that measures every effective step continues to do so.

    >>> spec = RunSpec.from_yaml('''{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 400,
    ...     schedule: {kind: steps, at: [100, 0.5]}, evaluate: {every: 20}}''')
    >>> scaled_steps(spec, 4)
    {'schedule.warmup': 0, 'schedule.at': [25, 0.5], 'evaluate.every': 5, 'budget': 100}
    """
    edits: dict[str, Any] = {"schedule.warmup": _scaled(spec.schedule.warmup, kappa)}
    if isinstance(spec.schedule, Steps):
        edits["schedule.at"] = [_scaled(time, kappa) for time in spec.schedule.at]
    if isinstance(spec.probe, InRunProbe | FrozenProbe):
        edits["probe.window"] = [_scaled(time, kappa) for time in spec.probe.window]
    if isinstance(spec.probe, InRunProbe) and spec.probe.every != 1:
        edits["probe.every"] = _scaled(spec.probe.every, kappa)
    edits["evaluate.every"] = _scaled(spec.evaluate.every, kappa)
    if isinstance(spec.budget, int):
        edits["budget"] = _scaled(spec.budget, kappa)
    return edits


def _scaled(time: float, kappa: float) -> float:
    """A whole number is effective steps, a float a fraction of the budget."""
    return max(1, round(time / kappa)) if isinstance(time, int) and time > 0 else time


READINGS, BATCHES = 60, 20
# A plan needs 20 readings in each of its phases, the first of which is to be short.
PLANNED_READINGS, PLANNED_BATCHES = 200, 10


def with_probe(base: RunSpec, batch_sizes: Iterable[int], *, whole: bool = False) -> RunSpec:
    """The base with a probe over the last third of its last-but-one phase, or over the whole run, unless it has one.

    The probe measures in the run if all batches can be cut into parts. With BatchNorm, whose statistics the cutting
    would change, and with a network of the user's own, which may have BatchNorm, it measures at frozen weights.

    >>> base = RunSpec.from_yaml('''{data: {name: svhn}, model: {arch: mlp, norm: layer}, batch_size: 8, lr: 1,
    ...     budget: {epochs: 9}, schedule: {kind: steps, at: [0.3, 0.9]}}''')
    >>> with_probe(base, [8, 16]).probe
    InRunProbe(kind='in_run', parts=4, window=(0.7, 0.9), every=0.0005)
    >>> with_probe(base.edited({"model.norm": "batch"}), [8, 16]).probe
    FrozenProbe(kind='frozen', readings=60, window=(0.7, 0.9), batches=20)
    """
    if not isinstance(base.probe, NoProbe):
        return base
    sizes, window = list(batch_sizes), [0.0, 1.0] if whole else _window(base)
    parts = next((parts for parts in (4, 2) if not any(size % parts for size in sizes)), None)
    if parts is not None and base.model.norm != "batch" and not base.model.is_callable:
        return base.edited({"probe": {"kind": "in_run", "parts": parts, "window": window, "every": 0.0005}})
    if whole:
        readings, batches = _that_fit([rung(base, min(sizes))], window, PLANNED_READINGS), PLANNED_BATCHES
    else:
        readings, batches = _that_fit([rung(base, size) for size in sizes], window, READINGS), BATCHES
    return base.edited({"probe": {"kind": "frozen", "readings": readings, "window": window, "batches": batches}})


def _window(base: RunSpec) -> list[float]:
    """Where to measure, as fractions of the budget: the second half if the rate never falls in steps."""
    if not isinstance(base.schedule, Steps):
        return [0.5, 1.0]
    times: list[float] = [0.0, *base.schedule.at]
    if any(isinstance(time, int) for time in times):
        try:
            times = [step_of(time, base.steps()) / base.steps() for time in times]
        except SpecError:  # an npz file in epochs
            raise SpecError("probe", "is missing: say when to measure G and N, such as {kind: frozen}") from None
    start, end = times[-2:]
    return [round(end - (end - start) / 3, 6), float(end)]


def _that_fit(rungs: Iterable[RunSpec], window: list[float], readings: int) -> int:
    """The number of readings, limited to one per step of the window at the largest batch size."""
    known = [spec for spec in rungs if isinstance(spec.budget, int) or spec.data.examples is not None]
    steps = (step_of(window[1], spec.steps()) - step_of(window[0], spec.steps()) for spec in known)
    return max(1, min([readings, *steps]))
