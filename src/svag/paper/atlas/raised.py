r"""Adam and AdamW at a rate above the square-root rule: an arm beside the rungs of a ladder, and what it came to.

At κ times the batch the square-root rule presumes v/κ and finds D·v/κ: given v, its steps are √D too short. The raised
arm undoes that,

$$\eta \to \eta\sqrt{\kappa D}, \qquad \epsilon \to \epsilon\sqrt{D/\kappa}, \qquad
  \lambda \to \lambda\sqrt{\kappa/D} \text{ (decoupled)},$$

with everything else as the rule has it. It is a heuristic to be measured, and recommended nowhere: the squared step per
example grows by D.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from svag.arrays import FloatArray
from svag.lab.experiments.base import Metric, own_metric, setting
from svag.lab.experiments.data_price import DataPrice, data_prices
from svag.lab.experiments.ladder import LadderPanel, rung
from svag.lab.experiments.ladder_drift import loss_curves
from svag.lab.experiments.runs import by_seed, final_metric
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec
from svag.prices.estimate import Estimate
from svag.stats.means import welch


def raised(spec: RunSpec, distortion: float) -> RunSpec:
    """The run at a rung with its rate raised by √D, eps with it, and a decoupled weight decay lowered by as much.

    >>> spec = RunSpec.from_yaml('''{data: {name: svhn}, model: {arch: mlp}, batch_size: 32, lr: 0.5, budget: 9,
    ...     optimizer: {kind: adamw, eps: 0.25}, weight_decay: 0.5}''')
    >>> found = raised(spec, 4.0)
    >>> found.lr, found.optimizer.eps, found.weight_decay
    (1.0, 0.5, 0.25)

    Args:
        spec: the run that the square-root rule asks for.
        distortion: D at its batch size.
    """
    settings = spec.optimizer.settings(spec.lr, spec.weight_decay)
    eps = getattr(settings, "eps", None)
    if spec.optimizer.rule != "square_root" or eps is None:
        raise SpecError("optimizer.kind", f"must be one that scales by the square-root rule, got {spec.optimizer.kind}")
    root = math.sqrt(distortion)
    decay = spec.weight_decay / root if getattr(settings, "decoupled", False) else spec.weight_decay
    return spec.edited({"lr": spec.lr * root, "optimizer.eps": eps * root, "weight_decay": decay})


@dataclass(frozen=True)
class RaisedRung:
    """One batch size of the raised arm, beside the square-root rule.

    Attributes:
        baseline: batch size of the smallest rung, to whose training loss examples are counted.
        batch_size: of the arm.
        distortion: D by which its rate was raised.
        seeds: finished runs of the arm.
        diverged: how many diverged.
        final: mean final test error of the arm, of a text bits per character.
        final_by_rule: that of the rung.
        gained: the second minus the first, with Welch's 95% interval; unbounded with fewer than two seeds of each.
        examples: factor in examples of the arm over the baseline.
        examples_by_rule: that of the rung.
    """

    baseline: int
    batch_size: int
    distortion: float
    seeds: int
    diverged: int
    final: float
    final_by_rule: float
    gained: Estimate
    examples: DataPrice | None
    examples_by_rule: DataPrice | None


def raised_arm(
    panel: LadderPanel, baseline: int, runs: Sequence[RunRecord], others: Iterable[RunRecord]
) -> tuple[RaisedRung, ...]:
    """Those of the other runs that are rungs of a ladder but for rate, eps and weight decay, each beside its rung.

    Args:
        panel: the ladder.
        baseline: the rung to whose training loss examples are counted.
        runs: records of the ladder.
        others: records that no experiment asked for.
    """
    if panel.base.optimizer.rule != "square_root":
        return ()
    rungs = {size: rung(panel.base, size) for size in sorted(set(panel.batch_sizes)) if size >= baseline}
    by_rule, arm = _by_size(runs, rungs, setting), _by_size(others, rungs, lambda spec: _by_the_rule(spec, rungs))
    return tuple(
        _beside(baseline, rungs[size], by_rule, found, own_metric([panel]))
        for size, found in arm.items()
        if size > baseline
    )


def _by_size(
    records: Iterable[RunRecord], rungs: Mapping[int, RunSpec], known_as: Callable[[RunSpec], RunSpec | None]
) -> dict[int, list[RunRecord]]:
    """The runs with a result that are known as a rung, by batch size and seed."""
    ended = [record for record in records if record.spec is not None and record.ended]
    named = [(record, known_as(record.spec)) for record in ended if record.spec is not None]
    mine = {size: [run for run, name in named if name == setting(spec)] for size, spec in rungs.items()}
    return {size: [run for _, run in by_seed(found)] for size, found in mine.items() if found}


def _by_the_rule(spec: RunSpec, rungs: Mapping[int, RunSpec]) -> RunSpec | None:
    """A raised run with the rate, eps and weight decay of its rung; None where it has no rung, or is not raised."""
    own = rungs.get(spec.batch_size)
    if own is None or spec.optimizer.kind != own.optimizer.kind or not spec.lr > own.lr:
        return None
    eps = own.to_dict()["optimizer"]["eps"]
    return setting(spec.edited({"lr": own.lr, "weight_decay": own.weight_decay, "optimizer.eps": eps}))


def _beside(
    baseline: int, own: RunSpec, by_rule: Mapping[int, list[RunRecord]], arm: Sequence[RunRecord], metric: Metric
) -> RaisedRung:
    size, first = own.batch_size, by_rule.get(baseline, [])
    spec = next(record.spec for record in arm if record.spec is not None)
    prices = [
        next(iter(data_prices(loss_curves({baseline: first, size: runs}))), None)
        for runs in (arm, by_rule.get(size, []))
    ]
    finals, by_the_rule = (_finals(runs, metric) for runs in (arm, by_rule.get(size, [])))
    return RaisedRung(
        baseline=baseline,
        batch_size=size,
        distortion=(spec.lr / own.lr) ** 2,
        seeds=len(arm),
        diverged=sum(record.state == "diverged" for record in arm),
        final=float(finals.mean()) if finals.size else math.nan,
        final_by_rule=float(by_the_rule.mean()) if by_the_rule.size else math.nan,
        gained=_difference(by_the_rule, finals),
        examples=prices[0],
        examples_by_rule=prices[1],
    )


def _finals(runs: Sequence[RunRecord], metric: Metric) -> FloatArray:
    """Final test errors of the runs that finished, of a text bits per character."""
    values = np.array([value for run in runs if math.isfinite(value := final_metric(run, metric))])
    return 1 - values if metric == "test_accuracy" else values


def _difference(first: FloatArray, second: FloatArray) -> Estimate:
    if min(first.size, second.size) < 2:
        return Estimate(float(first.mean() - second.mean()) if first.size and second.size else 0.0, -math.inf, math.inf)
    found = welch(first, second)
    return Estimate(found.value, *found.interval())
