"""The rule on a quadratic with known noise: the expected loss by the recursion of the moments, without sampling.

L(x) = ½Σh_i x_i², and the gradient of a batch of B is hx plus noise of variance s/B. A step at rate r takes E x² to
(1 − rh)² E x² + r² s/B, so that the expected loss of a run is a recursion over the rates that its steps really had.
Here `GainRule` steps a torch optimizer whose gradients are made so that a probe reads the G and N of these moments, and
the rates are what its steps moved the weights by.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from svag import GainPlan, GainRule, NoiseProbe
from svag.arrays import FloatArray
from svag.dynamics.gain_rule import _Measured
from svag.dynamics.running_gain import RunningGain
from svag.theory.estimators import NoiseEstimate
from svag.theory.gain import gain

CURVATURES = np.logspace(-3, 0, 20)
NOISE = 5 * CURVATURES
BASE, STEPS, RATE = 16, 4000, 0.02
Schedule = Callable[[int], float]
SCHEDULES: dict[str, Schedule] = {
    "constant": lambda step: 1.0,
    "cosine": lambda step: 0.5 * (1 + math.cos(math.pi * step / STEPS)),
}


@dataclass
class Moments:
    """E x² of every coordinate."""

    square: FloatArray

    def step(self, rate: float, batch_size: int) -> None:
        self.square = (1 - rate * CURVATURES) ** 2 * self.square + rate**2 * NOISE / batch_size

    @property
    def loss(self) -> float:
        return float(0.5 * CURVATURES @ self.square)

    @property
    def signal(self) -> float:
        return float(CURVATURES**2 @ self.square)


def start() -> Moments:
    return Moments(np.ones_like(CURVATURES))


@cache
def baseline(schedule: Schedule) -> tuple[float, list[float]]:
    """The last expected loss of the small batch, and N/G at every step."""
    moments, ratios = start(), []
    for step in range(STEPS):
        ratios.append(float(NOISE.sum()) / BASE / moments.signal)
        moments.step(RATE * schedule(step), BASE)
    return moments.loss, ratios


class Trained:
    """A torch model that is stepped by the rule, while the moments move at the rates of its steps."""

    def __init__(self, kappa: int, schedule: Schedule) -> None:
        self.batch_size = kappa * BASE
        self.moments = start()
        self.weights = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.optimizer = torch.optim.SGD([self.weights], lr=RATE)
        self.schedule = LambdaLR(self.optimizer, schedule)
        self.probe = NoiseProbe(nn.ParameterList([self.weights]), self.optimizer, batch_size=self.batch_size)
        self.rates: list[float] = []

    def run(self, rule: GainRule, spread: float = 0.0) -> tuple[float, float]:
        """Until the rule is done: the last expected loss, and the price.

        The gradients (a, b) and (a, −b) of two halves read as G = a² − b² and N = b². With a `spread`, G is in turn
        too large and too small by so many times N.
        """
        steps = 0
        while not rule.done:
            noise = float(NOISE.sum()) / self.batch_size
            signal = self.moments.signal + (-1) ** steps * spread * noise
            a, b = math.sqrt(signal + noise), math.sqrt(noise)
            self.weights.grad = torch.tensor([a, b], dtype=torch.float64) / 2
            self.probe.micro_batch()
            self.weights.grad += torch.tensor([a, -b], dtype=torch.float64) / 2
            self.probe.micro_batch()
            self.probe.close_step()
            before = self.weights[0].item()
            self.optimizer.step()
            self.rates.append((before - self.weights[0].item()) / a)
            self.weights.grad = None
            self.moments.step(self.rates[-1], self.batch_size)
            steps += 1
            for _ in range(rule.due):
                self.schedule.step()
        assert rule.price is not None
        return self.moments.loss, rule.price


@cache
def true_gain(kappa: int, schedule: Schedule) -> tuple[float, float]:
    """Expected loss and price where every step uses the gain of the moments themselves."""
    moments, time, steps = start(), 0.0, 0
    while time < STEPS:
        ratio = float(NOISE.sum()) / BASE / moments.signal
        length = min(gain(ratio, kappa), STEPS - time)
        moments.step(RATE * schedule(math.floor(time)) * length, kappa * BASE)
        time, steps = time + length, steps + 1
    return moments.loss, kappa * steps / STEPS


def ends_where_the_baseline_did(found: tuple[float, float], kappa: int, schedule: Schedule) -> bool:
    """The check: the loss within 5% of the small batch's, at the price of the true gain within 15%."""
    (loss, price), (_, expected) = found, true_gain(kappa, schedule)
    return abs(math.log(loss / baseline(schedule)[0])) < 0.05 and abs(math.log(price / expected)) < 0.15


@pytest.fixture(params=SCHEDULES)
def schedule(request: pytest.FixtureRequest) -> Schedule:
    return SCHEDULES[request.param]


@pytest.mark.parametrize("kappa", [8, 32])
def test_a_planned_run_ends_where_the_baseline_did(kappa: int, schedule: Schedule) -> None:
    _, ratios = baseline(schedule)
    starts = [0, 10, 25, 50, 100, 200, 400, *range(800, STEPS, 400)]
    phases = tuple((start, gain(ratios[start], kappa)) for start in starts)
    plan = GainPlan(BASE, kappa * BASE, phases, STEPS)
    trained = Trained(kappa, schedule)
    found = trained.run(GainRule.planned(trained.optimizer, plan))
    assert ends_where_the_baseline_did(found, kappa, schedule)
    # and its recursion by hand, without torch
    moments, time = start(), 0.0
    while time < STEPS:
        length, after = plan.next_step(time)
        moments.step(RATE * schedule(math.floor(time)) * length, kappa * BASE)
        time = after
    assert found[0] == pytest.approx(moments.loss, rel=1e-10)
    assert len(trained.rates) == plan.steps()


@pytest.mark.parametrize(("kappa", "name"), [(8, "constant"), (8, "cosine"), (32, "cosine")])
def test_a_measured_run_ends_where_the_baseline_did(kappa: int, name: str) -> None:
    trained = Trained(kappa, SCHEDULES[name])
    found = trained.run(GainRule(trained.probe, BASE, STEPS))
    assert ends_where_the_baseline_did(found, kappa, SCHEDULES[name])


def test_at_a_constant_rate_a_much_larger_batch_ends_below_the_noise_of_the_small_one() -> None:
    """The diffusion of a path falls D-fold, and a constant rate ends where drift and diffusion balance."""
    trained = Trained(32, SCHEDULES["constant"])
    loss, price = trained.run(GainRule(trained.probe, BASE, STEPS))
    assert 0.9 < loss / baseline(SCHEDULES["constant"])[0] < 1
    assert abs(math.log(price / true_gain(32, SCHEDULES["constant"])[1])) < 0.15


def spread_run(kappa: int, schedule: Schedule) -> tuple[float, float]:
    trained = Trained(kappa, schedule)
    return trained.run(GainRule(trained.probe, BASE, STEPS), spread=0.5)


def test_a_spread_of_the_readings_does_not_matter(schedule: Schedule) -> None:
    assert ends_where_the_baseline_did(spread_run(8, schedule), 8, schedule)


def test_clipping_before_averaging_fails_the_check(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RunningGain.add

    def clipped(self: RunningGain, found: NoiseEstimate, batch_size: int) -> None:
        plain(self, NoiseEstimate(max(found.grad_sq, 0.0), found.noise_trace), batch_size)

    monkeypatch.setattr(RunningGain, "add", clipped)
    assert not ends_where_the_baseline_did(spread_run(8, schedule), 8, schedule)


def test_a_gain_without_counting_time_fails_the_check(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _Measured.next_step

    def uncounted(self: _Measured, time: float) -> tuple[float, float, float]:
        length, _, kappa = plain(self, time)
        return length, time + 1, kappa

    monkeypatch.setattr(_Measured, "next_step", uncounted)
    trained = Trained(8, schedule)
    assert not ends_where_the_baseline_did(trained.run(GainRule(trained.probe, BASE, STEPS)), 8, schedule)


def test_the_linear_rule_fails_the_check() -> None:
    """Beyond the stability limit of the sharpest direction, at 128 times the batch; the measured rule brakes."""
    constant = SCHEDULES["constant"]
    trained = Trained(128, constant)
    loss, _ = trained.run(GainRule(trained.probe, BASE, STEPS))
    assert loss < 1.05 * baseline(constant)[0]
    trained = Trained(128, constant)
    linear = GainPlan(BASE, 128 * BASE, ((0, 128.0),), STEPS)
    loss, _ = trained.run(GainRule.planned(trained.optimizer, linear))
    assert loss > 1000 * baseline(constant)[0]


def readings(count: int, seed: int) -> Iterator[float]:
    """The gain that the rule measures at frozen weights, reading by reading."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Linear(50, 1, bias=False).double()
    nn.init.constant_(model.weight, 0.02)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    probe = NoiseProbe(model, optimizer, batch_size=64)
    rule = GainRule(probe, base_batch_size=4)
    for _ in range(count):
        optimizer.zero_grad()
        noise = torch.randn(64, 50, generator=generator, dtype=torch.float64)
        probe.backward(lambda x: model.weight.square().sum() / 2 + model(x).mean() * 0.05, noise, parts=8)
        optimizer.step()
        assert rule.gain is not None
        yield rule.gain


def test_the_measured_gain_tends_to_kappa_over_the_distortion() -> None:
    """G = |w|², N = 50·0.05²/64. Forty runs give a standard error; α = 1e-6 is 4.9 of them, and 1% is for the bias.

    Fifty readings remember five times the shortest memory, so that the start is forgotten to 1%.
    """
    truth = gain(16 * (50 * 0.05**2 / 64) / (50 * 0.02**2), 16.0)
    last = np.log([list(readings(50, seed))[-1] for seed in range(40)])
    error = last.std(ddof=1) / math.sqrt(len(last))
    assert error < 0.02
    assert abs(last.mean() - math.log(truth)) < 4.9 * error + 0.01
