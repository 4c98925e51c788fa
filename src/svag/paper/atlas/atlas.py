"""The atlas: many ladders side by side, each pair of rungs with what was predicted and what was measured.

An atlas is a folder of ladders. Every number here is one that `svag.lab.experiments.ladder_finding` found for one of
them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from svag.lab.experiments import EXPERIMENT, load_experiment
from svag.lab.experiments.data_price import DataPrice
from svag.lab.experiments.drift import Crossing, Drift, PairDrift, covered
from svag.lab.experiments.ladder import Ladder
from svag.lab.experiments.ladder_finding import LadderPanelFinding, find_ladder
from svag.lab.experiments.rungs import RungPrediction
from svag.lab.records.record import RunRecord, holds_run, load_headers, load_records
from svag.lab.specs.fields import SpecError, cut
from svag.lab.specs.optimizers import TITLES, SgdOptimizer
from svag.lab.specs.spec import RunSpec
from svag.prices.estimate import Estimate


@dataclass(frozen=True)
class Setting:
    """What kind of run a ladder is about.

    Attributes:
        ladder: name of its folder.
        network: architecture and normalisation.
        data: name of the data set.
        optimizer: kind of the optimizer.
        schedule: schedule of the learning rate.
        weight_decay: λ at the base.
        lr: η at the base.
        scale_invariant: whether the network is scale-invariant.
        momentum: β of SGD; 0 without momentum and for the other optimizers.
    """

    ladder: str
    network: str
    data: str
    optimizer: str
    schedule: str
    weight_decay: float
    lr: float
    scale_invariant: bool
    momentum: float = 0.0

    @property
    def plain_sgd(self) -> bool:
        """Whether this is SGD without momentum."""
        return self.optimizer == "sgd" and not self.momentum

    @property
    def method(self) -> str:
        """The optimizer with its momentum, as "SGD, momentum 0.9"."""
        return TITLES[self.optimizer] + (f", momentum {self.momentum:g}" if self.momentum else "")

    @property
    def kind(self) -> str:
        """The kind of run that numbers are grouped by: the network's invariance, and the optimizer."""
        return f"{'scale-invariant' if self.scale_invariant else 'ordinary'}, {self.method}"

    def __str__(self) -> str:
        decay = f"weight decay {self.weight_decay:g}" if self.weight_decay else "no weight decay"
        invariant = ", scale-invariant" if self.scale_invariant else ""
        return f"{self.network}{invariant} on {self.data}; {self.method}, {self.schedule} rate, {decay}"


def setting_of(ladder: str, base: RunSpec) -> Setting:
    """What kind of run a base spec is.

    >>> base = RunSpec.from_yaml('''{data: {name: svhn}, model: {arch: mlp, norm: none}, batch_size: 8, lr: 1,
    ...     budget: 9, optimizer: {kind: sgd, momentum: 0.9}}''')
    >>> print(setting_of("a", base))
    mlp on svhn; SGD, momentum 0.9, constant rate, no weight decay
    >>> setting_of("a", base).kind
    'ordinary, SGD, momentum 0.9'
    """
    model = base.model
    norms = {"batch": " BatchNorm", "group": " GroupNorm", "none": "", "layer": " LayerNorm"}
    return Setting(
        ladder=ladder,
        network=f"{model.arch}{norms.get(model.norm, f' {model.norm}')}",
        data="a table" if base.data.name == "npz" else base.data.name,
        optimizer=base.optimizer.kind,
        schedule=base.schedule.kind,
        weight_decay=base.weight_decay,
        lr=base.lr,
        scale_invariant=base.model.scale_invariant,
        momentum=base.optimizer.momentum if isinstance(base.optimizer, SgdOptimizer) else 0.0,
    )


@dataclass(frozen=True)
class AtlasPair:
    """Two rungs of a ladder: what the smaller one predicted, and what was measured.

    Attributes:
        setting: setting of the ladder.
        small: what the baseline predicts.
        large: what the larger rung predicts in turn.
        drift: every ratio between the two.
        compared: what stands beside G and κN: "R", "T" or "V".
        theorem: whether a theorem says that the spread is at least D.
        examples: the factor in examples to the same training loss; None where losses were not logged.
    """

    setting: Setting
    small: RungPrediction
    large: RungPrediction
    drift: PairDrift
    compared: str
    theorem: bool
    examples: DataPrice | None

    @cached_property
    def predicted(self) -> Estimate:
        """D by the price list of the smaller rung."""
        return self.small.linear.distortion(self.drift.batch_size)

    @property
    def observed(self) -> Estimate:
        """The spread; for adaptive optimizers (κV′/V)/(κN′/N), which D predicts."""
        growth = self.drift.second_moment_over_noise
        return self.drift.spread if growth is None else growth

    @property
    def over_predicted(self) -> float:
        """Observed over predicted."""
        return self.observed.value / self.predicted.value

    @property
    def agrees(self) -> bool:
        """Whether the two intervals overlap."""
        return self.observed.low <= self.predicted.high and self.predicted.low <= self.observed.high

    @property
    def falls_short(self) -> bool:
        """Whether the spread is below D, intervals included, although a theorem says that it cannot be."""
        return self.theorem and self.drift.below

    @property
    def factor(self) -> Estimate | None:
        """Examples of the larger rung over those of the baseline: geometric mean over the levels reached, and range.

        None where no level was reached.
        """
        if self.examples is None or not self.examples.reached:
            return None
        reached = self.examples.reached
        mean = math.exp(math.fsum(map(math.log, reached)) / len(reached))
        return Estimate(mean, min(reached), max(reached))


@dataclass(frozen=True)
class AtlasBaseline:
    """One rung that predicts: B*, and where the ladder really drifted apart by C² above it.

    Attributes:
        setting: setting of the ladder.
        prediction: what the rung predicts, and what that rests on.
        crossing: where the measured spread reaches C², and def:lsi is lost.
        miss: mean of |log(observed/D)| over its pairs.
    """

    setting: Setting
    prediction: RungPrediction
    crossing: Crossing
    miss: float

    @property
    def batch_size(self) -> int:
        """B."""
        return self.prediction.batch_size

    @property
    def predicted(self) -> Estimate:
        """B*."""
        return self.prediction.linear.limit

    @property
    def scale_drift(self) -> float | None:
        """B_simple in the last part of the run over that in the first; None when unknown."""
        rise = self.prediction.rise
        return rise if rise is not None and math.isfinite(rise) else None

    @property
    def strict_over_predicted(self) -> float:
        """The batch size at which def:lsi is lost over B* of the price list."""
        return self.crossing.strict.value / self.predicted.value


@dataclass(frozen=True)
class AtlasLadder:
    """One ladder of the atlas.

    Attributes:
        setting: what kind of run it is about.
        pairs: every two rungs.
        baselines: the rungs that predict.
        fails_at: the batch size at which test error fails by the rule of the ladder; None when it does not.
        distortion_there: D at that batch size, from the smallest baseline that predicts; None when unknown.
        error: answer of the verdict on test error: "fails", "never fails" and the like; None when unknown.
        diverged: batch sizes at which a seed diverged.
        sizes: the rungs.
    """

    setting: Setting
    pairs: tuple[AtlasPair, ...]
    baselines: tuple[AtlasBaseline, ...]
    fails_at: float | None
    distortion_there: float | None
    error: str | None
    diverged: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Atlas:
    """All ladders of a folder.

    Attributes:
        name: name of the folder.
        ladders: the ladders, by name.
        left_out: members that give no row, each a sentence.
        records: every run that was read.
    """

    name: str
    ladders: tuple[AtlasLadder, ...]
    left_out: tuple[str, ...]
    records: tuple[RunRecord, ...]

    @property
    def pairs(self) -> tuple[AtlasPair, ...]:
        """Every two rungs of every ladder whose smaller one predicts."""
        return tuple(pair for ladder in self.ladders for pair in ladder.pairs if pair.small.usable)

    @property
    def baselines(self) -> tuple[AtlasBaseline, ...]:
        """Every rung that predicts."""
        return tuple(baseline for ladder in self.ladders for baseline in ladder.baselines)


def is_atlas(folder: Path) -> bool:
    """Whether a folder holds ladders, and is itself neither an experiment nor a run.

    >>> is_atlas(Path("no-such-folder"))
    False
    """
    if not folder.is_dir() or (folder / EXPERIMENT).exists() or holds_run(folder):
        return False
    return any(isinstance(_experiment(child), Ladder) for child in folder.iterdir())


def _experiment(folder: Path) -> object:
    try:
        return load_experiment(folder)
    except SpecError as error:
        return error


def find_atlas(folder: Path) -> Atlas:
    """Read every ladder of a folder; what cannot be read is named, and the others are used."""
    ladders: list[AtlasLadder] = []
    every: list[RunRecord] = []
    left_out: list[str] = []
    for child in sorted(path for path in folder.iterdir() if path.is_dir()):
        experiment = _experiment(child)
        if isinstance(experiment, Ladder):
            records = load_records(child)
            try:
                panels = find_ladder(experiment, records).panels
            except (SpecError, ValueError) as error:
                left_out.append(f"{child.name} cannot be used: {cut(str(error))}")
                continue
            for panel, finding in zip(experiment.panels, panels, strict=True):
                name = child.name if len(panels) == 1 else f"{child.name}: {panel.name}"
                left_out += [f"{name}: {problem}" for problem in _problems(finding)]
                if finding.drift is not None:
                    ladders.append(ladder_of(setting_of(name, panel.base), finding, finding.drift))
                    every += records
        elif isinstance(experiment, SpecError):
            left_out.append(f"{child.name} cannot be used: {cut(str(experiment))}")
        elif experiment is not None or load_headers(child):
            left_out.append(f"{child.name} is no ladder")
        elif not any(child.iterdir()):
            left_out.append(f"{child.name} is empty")
    return Atlas(folder.resolve().name, tuple(ladders), tuple(left_out), tuple(every))


def _problems(finding: LadderPanelFinding) -> Iterator[str]:
    """Why a ladder gives fewer rows than it should, or none."""
    if finding.missing:
        yield f"{len(finding.missing)} of its runs have no result, the first {finding.missing[0]}"
    if finding.drift is None:
        yield f"no two rungs can be compared; {finding.status}"
    elif not finding.checked:
        yield finding.status  # which says so


def ladder_of(setting: Setting, finding: LadderPanelFinding, drift: Drift) -> AtlasLadder:
    """The rows of a ladder whose rungs can be compared."""
    pairs = tuple(_pairs(setting, finding, drift))
    fails = finding.scaling is not None and finding.scaling.answer == "fails"
    first = next((prediction for prediction, _ in finding.checked), None)
    at = finding.observed if fails else None
    return AtlasLadder(
        setting=setting,
        pairs=pairs,
        baselines=tuple(_baseline(setting, prediction, crossing, pairs) for prediction, crossing in finding.checked),
        fails_at=at,
        distortion_there=_distortion_at(first, at),
        error=None if finding.scaling is None else finding.scaling.answer,
        diverged=tuple(rung.batch_size for rung in finding.rungs if rung.diverged),
        sizes=tuple(rung.batch_size for rung in finding.rungs),
    )


def _distortion_at(baseline: RungPrediction | None, batch_size: float | None) -> float | None:
    if baseline is None or batch_size is None or batch_size < baseline.batch_size:
        return None
    return baseline.linear.distortion(batch_size).value


def _pairs(setting: Setting, finding: LadderPanelFinding, drift: Drift) -> Iterator[AtlasPair]:
    predictions = {prediction.batch_size: prediction for prediction in finding.predictions}
    prices = {(price.baseline, price.batch_size): price for price in finding.data}
    for pair in drift.pairs:
        small, large = predictions[pair.baseline], predictions[pair.batch_size]
        examples = prices.get((pair.baseline, pair.batch_size))
        theorem = covered(pair, finding.predictions)
        yield AtlasPair(setting, small, large, pair, drift.compared, theorem, examples)


def _baseline(
    setting: Setting, prediction: RungPrediction, crossing: Crossing, pairs: Sequence[AtlasPair]
) -> AtlasBaseline:
    own = (pair for pair in pairs if pair.drift.baseline == prediction.batch_size)
    misses = [abs(math.log(pair.over_predicted)) for pair in own]
    return AtlasBaseline(setting, prediction, crossing, math.fsum(misses) / len(misses))
