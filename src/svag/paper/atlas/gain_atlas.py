"""The atlas under the rules that the price list prints: each larger batch beside its baseline, arm by arm.

The folder has one subfolder per arm, and in it one ladder per setting (`tools/run_atlas.py`): `planned` and `on_line`
are ladders by the gain rule, `linear` and `one_gain` single runs at the largest batch with the examples of the plan.
The baselines are in `planned`, and all arms share them. Other tools write single numbers beside them, as JSON.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Literal

import numpy as np

from svag.lab.experiments import EXPERIMENT, load_experiment
from svag.lab.experiments.drift import measure_drift
from svag.lab.experiments.gain_finding import (
    CLOSE,
    GainFinding,
    GainRung,
    final_loss,
    gain_between,
    least_drift,
    loss_points,
)
from svag.lab.experiments.ladder import Ladder
from svag.lab.records.record import RunRecord, load_records
from svag.lab.specs.spec import RunSpec
from svag.noise.reading import Reading
from svag.paper.atlas.answer import Success
from svag.paper.atlas.atlas import Setting, setting_of
from svag.prices.ranges import Calibration, price_range

GainArm = Literal["planned", "on_line", "linear", "one_gain"]
ARMS: tuple[GainArm, ...] = ("planned", "on_line", "linear", "one_gain")
LATER = "announced"  # folder of the pairs at 16 times the batch

# Set before the arms were run.
PRICED = 4.0  # the planned arm is judged up to this price
PRICE_NEAR, BILL_NEAR = 1.3, 1.2
ON_LINE_CLOSE = 0.05
MOVED = 2.0  # where the linear rule drifts by more than this, the gain rule is to halve it


@dataclass(frozen=True)
class GainResult:
    """How one arm ended at one larger batch.

    Attributes:
        losses: final training loss over the baseline's, seed by seed; infinite where a run diverged.
        examples: examples used over those of the baseline, on average over seeds.
        errors: pairs (baseline, arm) of final test errors, seed by seed; bits per character of a text.
        ratios: at each level of the training loss, examples that it took over the price up to there; infinite where the
            level was not reached. Empty for the arms that announce no price.
        drift: the largest over the smallest of the ratios of R, G and κN to the baseline's; None without readings.
        least: the least drift that theorem (iii) allows at equilibrium; None where it does not apply.
    """

    losses: tuple[float, ...]
    examples: float
    errors: tuple[tuple[float, float], ...]
    ratios: tuple[float, ...] = ()
    drift: float | None = None
    least: float | None = None

    @property
    def loss(self) -> float:
        """Final training loss over the baseline's, geometric mean over seeds."""
        return math.inf if math.inf in self.losses else geometric_mean(self.losses)

    @property
    def ratio(self) -> float:
        """Examples to the same loss over the price, over the levels that were reached.

        Infinite where none was, and where one was not and the run ended above the baseline: near the end of a run the
        loss hardly falls, and whether a level is reached there is chance.
        """
        reached = [ratio for ratio in self.ratios if math.isfinite(ratio)]
        missed = len(reached) < len(self.ratios) and self.loss > 1 + CLOSE
        return math.inf if missed or not reached else geometric_mean(reached)


@dataclass(frozen=True)
class GainPair:
    """A baseline and one larger batch.

    Attributes:
        setting: setting of the ladder.
        baseline: batch size of the baseline.
        batch_size: the larger batch size.
        price: the price that the list announced for it.
        arms: how each arm ended.
        announced: whether the price was written down before any larger batch of the ladder ran.
    """

    setting: Setting
    baseline: int
    batch_size: int
    price: float
    arms: Mapping[GainArm, GainResult]
    announced: bool = False

    @property
    def kappa(self) -> float:
        """κ."""
        return self.batch_size / self.baseline


@dataclass(frozen=True)
class GainAtlas:
    """All pairs, and what other tools wrote beside them.

    Attributes:
        pairs: by ladder and batch size.
        baseline_losses: final training loss of the baseline, by ladder, seed by seed.
        baseline_examples: examples of the baseline, by ladder.
        betas: final training loss over the baseline's with betas that follow the gain, by batch size.
        adascale: rows of `tools/run_adascale.py`.
        schedules: rows of `tools/run_schedules.py`.
        later: pairs at another batch size, whose prices were committed before they were run.
    """

    pairs: tuple[GainPair, ...]
    baseline_losses: Mapping[str, Mapping[int, float]]
    baseline_examples: Mapping[str, int]
    betas: Mapping[str, Mapping[int, tuple[float, ...]]] = field(default_factory=dict)
    adascale: Sequence[Mapping[str, Any]] = ()
    schedules: Sequence[Mapping[str, Any]] = ()
    later: tuple[GainPair, ...] = ()


def find_gain_atlas(folder: Path) -> GainAtlas:
    """Read what all arms left."""
    announced = _json(folder / "predictions.json", {})
    pairs: list[GainPair] = []
    losses: dict[str, dict[int, float]] = {}
    examples: dict[str, int] = {}
    betas: dict[str, dict[int, tuple[float, ...]]] = {}
    for place in sorted(path.parent for path in (folder / "planned").glob(f"*/{EXPERIMENT}")):
        name, ladder = place.name, load_experiment(place)
        assert isinstance(ladder, Ladder), f"{place} is no ladder"
        spec = ladder.panels[0].baseline
        small = _by_size(place)[spec.batch_size]
        losses[name] = {seed: final_loss(run) for seed, run in small.items()}
        examples[name] = int(next(iter(small.values())).outcome["examples"])
        results: dict[int, dict[GainArm, GainResult]] = {}
        prices = {}
        for arm in ARMS:
            larger = {size: runs for size, runs in _by_size(folder / arm / name).items() if size != spec.batch_size}
            every = [run for runs in (*larger.values(), small) for run in runs.values()]
            gains = _gains(folder / arm / name, every) if larger else None
            for size, large in larger.items():
                rung = None if gains is None else next(rung for rung in gains.rungs if rung.batch_size == size)
                results.setdefault(size, {})[arm] = _result(spec, small, large, rung)
                if arm == "planned" and rung is not None:
                    prices[size] = rung.price
        setting = setting_of(name, spec)
        for size, arms in sorted(results.items()):
            pairs.append(GainPair(setting, spec.batch_size, size, prices[size], arms, name in announced))
        if following := _by_size(folder / "betas" / name):
            betas[name] = {size: _losses(small, large) for size, large in following.items()}
    return GainAtlas(
        tuple(pairs),
        losses,
        examples,
        betas,
        _json(folder / "adascale.json", []),
        _json(folder / "schedules.json", []),
        find_gain_atlas(folder / LATER).pairs if (folder / LATER).exists() else (),
    )


BySeed = Mapping[int, RunRecord]


def _by_size(folder: Path) -> dict[int, dict[int, RunRecord]]:
    """The runs of a folder by batch size and seed, both increasing."""
    runs: dict[int, dict[int, RunRecord]] = {}
    specs = [(run.spec, run) for run in load_records(folder) if run.spec is not None]
    for spec, run in sorted(specs, key=lambda pair: (pair[0].batch_size, pair[0].seed)):
        runs.setdefault(spec.batch_size, {})[spec.seed] = run
    return runs


def _json(path: Path, default: Any) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else default


def _gains(place: Path, records: Sequence[RunRecord]) -> GainFinding | None:
    """What a ladder by the gain rule found; None for single runs."""
    experiment = load_experiment(place)
    return experiment.find(records).panels[0].gain if isinstance(experiment, Ladder) else None


def _result(spec: RunSpec, small: BySeed, large: BySeed, rung: GainRung | None) -> GainResult:
    base = next(iter(small.values())).outcome["examples"]
    ended = {seed: run for seed, run in large.items() if run.state == "finished"}
    paid = math.fsum(run.outcome["examples"] for run in ended.values()) / len(ended) / base if ended else math.nan
    errors = tuple((_error(small[seed]), _error(run)) for seed, run in ended.items() if seed in small)
    ratios: tuple[float, ...] = ()
    if rung is not None and rung.examples is not None:
        levels = zip(rung.examples.factors, rung.prices_so_far, strict=True)
        ratios = tuple(factor.value / so_far for factor, so_far in levels)
    drift, least = _drift(spec, small, ended), _least(spec, small, ended)
    return GainResult(_losses(small, large), paid, errors, ratios, drift, least)


def _losses(small: BySeed, large: BySeed) -> tuple[float, ...]:
    return tuple(
        final_loss(run) / final_loss(small[seed]) if run.state == "finished" else math.inf
        for seed, run in large.items()
        if seed in small
    )


def _error(run: RunRecord) -> float:
    """Test error, or bits per character of a text."""
    bits = run.final.get("test_bits_per_character")
    return float(bits) if bits is not None else 1 - float(run.final["test_accuracy"])


def _drift(spec: RunSpec, small: BySeed, large: BySeed) -> float | None:
    """Drift between two arms over the second half of training, each by its own clock."""
    # by folder, as the last digits of the average depend on the order
    runs = sorted([*small.values(), *large.values()], key=lambda run: run.path)
    rungs: dict[int, list[list[Reading]]] = {spec.batch_size: []}
    for run in runs:
        if run.spec is not None:
            rungs.setdefault(run.spec.batch_size, []).append(_late(run))
    drift = measure_drift(rungs, rng=np.random.default_rng(0))
    return None if drift is None or not drift.pairs else drift.pairs[0].spread.value


def _least(spec: RunSpec, small: BySeed, large: BySeed) -> float | None:
    """The least drift that theorem (iii) allows at the rates of the second half, were both runs at equilibrium."""
    readings = [reading for run in small.values() for reading in _late(run)]
    factors = [factor for run in large.values() if (factor := _rate_factor(spec, run)) is not None]
    kappas = [run.spec.batch_size / spec.batch_size for run in large.values() if run.spec is not None]
    return least_drift(spec, kappas[0], readings, factors) if kappas else None


def _rate_factor(spec: RunSpec, run: RunRecord) -> float | None:
    """Learning rate of a run over that of the baseline, in its second half: by its spec, and by its gain."""
    gain = gain_between(loss_points(run), run.steps / 2, run.steps)
    return None if run.spec is None or gain is None else gain * run.spec.lr / spec.lr


def _late(run: RunRecord) -> list[Reading]:
    return [reading for reading in run.readings if reading.step is not None and reading.step >= run.steps / 2]


def successes(atlas: GainAtlas) -> tuple[Success, ...]:
    """The criteria that were set before the arms were run, and on how many pairs each was met."""
    planned = [pair.arms["planned"] for pair in atlas.pairs if pair.price <= PRICED and "planned" in pair.arms]
    on_line = [pair.arms["on_line"] for pair in atlas.pairs if "on_line" in pair.arms]
    both = [
        (pair.arms["planned"].drift, pair.arms["linear"].drift)
        for pair in atlas.pairs
        if pair.setting.plain_sgd and {"planned", "linear"} <= set(pair.arms)
    ]
    halved = [2 * gain <= linear for gain, linear in both if gain is not None and linear is not None and linear > MOVED]
    inside, of = coverage(calibration(atlas))
    upto = f"planned, price up to {PRICED:g}"
    return (
        _success(f"{upto}: loss at most 7% above", [arm.loss <= 1 + CLOSE for arm in planned], 0.8),
        _success(f"{upto}: price within 30%", [_near(arm.ratio, PRICE_NEAR) for arm in planned], 0.8),
        _success("on line: loss at most 5% above", [arm.loss <= 1 + ON_LINE_CLOSE for arm in on_line], 0.9),
        _success("on line: its own bill within 20%", [_near(arm.ratio, BILL_NEAR) for arm in on_line], 0.9),
        Success("printed range of a price, leaving one ladder out", inside, of, 0.8),
        _success("SGD without momentum: at most half the drift of the linear rule", halved, 1.0),
    )


def _success(what: str, met: Sequence[bool], needed: float) -> Success:
    return Success(what, sum(met), len(met), needed)


def _near(ratio: float, factor: float) -> bool:
    return 1 / factor <= ratio <= factor


def calibration(atlas: GainAtlas) -> dict[str, tuple[float, ...]]:
    """Examples to the same loss over the planned price, by ladder: what the range of a price rests on."""
    ratios: dict[str, tuple[float, ...]] = {}
    for pair in atlas.pairs:
        if "planned" in pair.arms and pair.arms["planned"].ratios:
            name = pair.setting.ladder
            ratios[name] = (*ratios.get(name, ()), pair.arms["planned"].ratio)
    return ratios


def coverage(ladders: Mapping[str, Sequence[float]], level: float = 0.8) -> tuple[int, int]:
    """How many pairs lie inside the range that the other ladders give, and of how many.

    >>> coverage({str(ladder): [1.0 + ladder / 100] for ladder in range(30)})
    (24, 30)
    """
    inside = total = 0
    for name, ratios in ladders.items():
        rest = Calibration("planned", tuple(tuple(other) for key, other in ladders.items() if key != name))
        low, high = price_range(level=level, calibration=rest)
        inside, total = inside + sum(low <= ratio <= high for ratio in ratios), total + len(ratios)
    return inside, total
