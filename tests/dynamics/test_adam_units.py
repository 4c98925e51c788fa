"""The state of Adam around SVAG: always in Adam's own units, whatever ell, whoever looks, and when it is saved."""

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from operator import is_
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

import svag
from svag.dynamics.refined_step import Clock
from svag.noise.optimizer import SubstepState, refinable_settings
from svag.theory.adaptive import AdamSettings, RMSpropSettings
from svag.theory.optimizers import SGDSettings

Batch = tuple[Tensor, Tensor]
MAKE: dict[str, Callable[[Iterable[Any]], Optimizer]] = {
    "adam": lambda p: Adam(p, lr=0.02, weight_decay=0.1),
    "adamw": lambda p: AdamW(p, lr=0.02, betas=(0.5, 0.9)),
    "fused": lambda p: AdamW(p, lr=0.02, betas=(0.5, 0.9), fused=True),
    "rmsprop": lambda p: RMSprop(p, lr=0.002),
}


class Run:
    """A training script; an RMSprop has taken a few steps before."""

    def __init__(self, kind: str, ell: int) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
        self.optimizer = MAKE[kind](self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.8)
        self.sampler = svag.BatchSampler(40, 8, generator=torch.Generator().manual_seed(5))
        self.x = torch.randn(40, 3)
        self.pairs = svag.independent_pairs(self.batches())
        self.losses: list[float] = []
        if kind == "rmsprop":
            self.plain_steps(3)
        self.sim = svag.SVAG(self.model, self.optimizer, ell=ell)

    def batches(self) -> Iterator[Batch]:
        for chosen in self.sampler:
            yield self.x[chosen], self.x[chosen].sum(1)

    def loss_fn(self, batch: Batch) -> Tensor:
        output: Tensor = self.model(batch[0])
        return (output.squeeze(1) - batch[1]).square().mean()

    def plain_steps(self, count: int) -> None:
        for _ in range(count):
            self.optimizer.zero_grad()
            torch.autograd.backward(self.loss_fn(next(self.pairs)[0]))
            self.optimizer.step()

    def substeps(self, count: int) -> None:
        with self.sim:
            for _ in range(count):
                self.losses.append(self.sim.substep(self.loss_fn, *next(self.pairs)).item())
                if self.sim.boundary:
                    self.scheduler.step()

    def states(self, name: str) -> list[Tensor]:
        return [state[name] for state in self.optimizer.state.values()]

    @property
    def parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "sampler": self.sampler,
            "sim": self.sim,
        }


@pytest.mark.parametrize("ell", [3, 4])
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("interrupted_after", [0, 5, 8])
def test_a_continued_run_is_bit_identical(kind: str, ell: int, interrupted_after: int) -> None:
    whole = Run(kind, ell)
    whole.substeps(14)

    early = Run(kind, ell)
    early.substeps(interrupted_after)
    file = io.BytesIO()
    torch.save({name: part.state_dict() for name, part in early.parts.items()}, file)
    file.seek(0)
    late = Run(kind, ell)
    for name, state in torch.load(file, weights_only=True).items():
        late.parts[name].load_state_dict(state)
    late.substeps(14 - interrupted_after)

    assert early.losses + late.losses == whole.losses
    for name in ("model", "optimizer"):
        mine, theirs = late.parts[name].state_dict(), whole.parts[name].state_dict()
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    assert (late.sim.effective_step, late.sim.time) == (whole.sim.effective_step, whole.sim.time)


@pytest.mark.parametrize("ell", [3, 4])
@pytest.mark.parametrize("kind", MAKE)
def test_opening_and_closing_the_context_changes_nothing(kind: str, ell: int) -> None:
    run = Run(kind, ell)
    run.plain_steps(5)
    before = deepcopy((run.model.state_dict(), run.optimizer.state_dict()))
    run.substeps(0)
    torch.testing.assert_close((run.model.state_dict(), run.optimizer.state_dict()), before, rtol=0, atol=0)


@pytest.mark.parametrize("ell", [3, 7, 8])
def test_the_optimizer_counts_effective_steps(ell: int) -> None:
    """In the middle of one, a fraction; at its end a whole number exactly, so that Adam goes on from there."""
    run = Run("adamw", ell)
    run.plain_steps(2)
    for done in range(1, 40 * ell + 1):
        run.substeps(1)
        assert [step.item() for step in run.states("step")] == pytest.approx([2 + done / ell] * 6, rel=1e-6)
        if run.sim.boundary:
            assert all(step == 2 + run.sim.effective_step for step in run.states("step"))
    run.plain_steps(1)
    assert all(step == 43 for step in run.states("step"))


def test_the_second_moment_stays_in_the_units_of_adam() -> None:
    """Pure noise ±1 in every coordinate: the squared gradient is 1 in Adam, and l on average in a sub-step."""
    for ell in (1, 4, 16):
        x = nn.Parameter(torch.zeros(4000, dtype=torch.float64))
        optimizer = Adam([x], lr=1e-3, betas=(0.9, 0.95))
        generator = torch.Generator().manual_seed(0)

        def signs(count: int, generator: torch.Generator = generator) -> list[Tensor]:
            return [torch.randint(2, (4000,), generator=generator).double() * 2 - 1 for _ in range(count)]

        with svag.SVAG(nn.ParameterList([x]), optimizer, ell=ell) as sim:
            for _ in range(20):
                pairs = iter([tuple(signs(2)) for _ in range(ell)])
                sim.step(lambda z, x=x: (z * x).sum(), pairs)  # type: ignore[arg-type,misc]
        corrected = optimizer.state[x]["exp_avg_sq"] / (1 - (1 - 0.05 / ell) ** (20 * ell))
        # 4,000 coordinates, and at most 12 independent steps of variance 2 each: a standard error below .01
        assert corrected.mean().item() == pytest.approx(1, abs=0.05)


def test_everybody_sees_the_own_settings_and_units() -> None:
    run = Run("adamw", 4)
    run.substeps(4)
    first = next(iter(run.model.parameters()))
    seen: list[tuple[Any, ...]] = []

    def look(*_: Any) -> None:
        group, state = run.optimizer.param_groups[0], run.optimizer.state[first]
        own = tuple(group[name] for name in ("lr", "betas", "eps", "weight_decay"))
        seen.append((own, state["step"].item(), state["exp_avg_sq"].clone()))

    run.optimizer.register_step_post_hook(look)
    with run.sim:
        run.optimizer.register_step_pre_hook(look)
        run.sim.substep(run.loss_fn, *next(run.pairs))
    look()
    assert [own for own, _, _ in seen] == [(0.02 * 0.8, (0.5, 0.9), 1e-8, 0.01)] * 3
    assert [step for _, step, _ in seen] == [1.0, 1.25, 1.25]
    before, after, later = (moment for _, _, moment in seen)
    assert torch.equal(after, later)
    assert bool((after >= before * (1 - 0.1 / 4) * (1 - 1e-6)).all())  # forgets (1 − β₂)/l of it at most
    assert not torch.equal(before, after)


@pytest.mark.parametrize("ell", [3, 4])
def test_an_error_inside_the_optimizer_leaves_own_units(ell: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run("adamw", ell)
    run.substeps(ell)
    before = deepcopy((run.model.state_dict(), run.optimizer.state_dict()))

    def fail(*_: Any, **__: Any) -> None:
        assert all(step == ell for step in run.states("step")), "in units of sub-steps here"
        raise OSError("in the optimizer")

    monkeypatch.setattr(sys.modules["torch.optim.adam"], "adam", fail)
    with run.sim:
        with pytest.raises(OSError, match="in the optimizer"):
            run.sim.step(run.loss_fn, run.pairs)
        torch.testing.assert_close((run.model.state_dict(), run.optimizer.state_dict()), before, rtol=0, atol=0)
        with pytest.raises(OSError, match="in the optimizer"):  # which keeps no copy of the weights
            run.sim.substep(run.loss_fn, *next(run.pairs))
    now = (run.model.state_dict(), run.optimizer.state_dict())
    torch.testing.assert_close(now, before, rtol=0, atol=0)


def test_units_are_of_the_parameters_that_the_step_moves() -> None:
    """A layer without a gradient in this step keeps its state, bit for bit; one that is new begins in own units."""
    used, idle, new = (nn.Parameter(torch.ones(size)) for size in (2, 1000, 2))
    optimizer = Adam([used, idle, new], lr=0.1)
    for p in (used, idle):
        p.grad = torch.linspace(1, 2, p.numel())
    optimizer.step()
    moments = optimizer.state[idle]["exp_avg_sq"]
    assert not torch.equal(moments * 5 / 5, moments)  # so that it would be seen
    kept = deepcopy(optimizer.state[idle])
    with svag.SVAG(nn.ParameterList([used, idle, new]), optimizer, ell=5) as sim:  # a, b = 2, −1
        sim.substep(lambda z: (z * used).sum() + (z * new).sum(), torch.ones(2), 3 * torch.ones(2))
    torch.testing.assert_close(optimizer.state[idle], kept, rtol=0, atol=0)
    gradient = 2 * 1 - 3
    expected = (1 - 0.999) / 5 * gradient**2 / 5
    torch.testing.assert_close(optimizer.state[new]["exp_avg_sq"], torch.full((2,), expected))
    assert optimizer.state[new]["step"].item() == pytest.approx(1 / 5)
    assert optimizer.state[used]["step"].item() == pytest.approx(1 + 1 / 5)


def test_units_there_and_back() -> None:
    run = Run("adam", 4)
    run.plain_steps(3)
    before, tensors = deepcopy(run.optimizer.state_dict()), run.states("exp_avg_sq")
    substep = SubstepState(run.optimizer, refinable_settings(run.optimizer), 4)
    torch.testing.assert_close(run.optimizer.state_dict(), before, rtol=0, atol=0)
    substep.use()
    assert all(step == 12 for step in run.states("step"))
    now = run.optimizer.state_dict()["state"]
    for name, factor in (("exp_avg_sq", 4), ("exp_avg", 1)):
        assert all(torch.equal(now[i][name], factor * state[name]) for i, state in before["state"].items())
    for _ in range(2):  # a second time, as where the first was cut short, changes nothing
        substep.keep()
        torch.testing.assert_close(run.optimizer.state_dict(), before, rtol=0, atol=0)
    assert all(map(is_, run.states("exp_avg_sq"), tensors))  # whoever holds one still does


def test_settings_are_held_over_an_effective_step() -> None:
    """The rate and the betas (which a OneCycleLR moves) are read when an effective step begins."""
    ends = []
    for meddle in (False, True):
        run = Run("adamw", 4)
        with run.sim:
            for k in range(8):
                run.sim.substep(run.loss_fn, *next(run.pairs))
                for group in run.optimizer.param_groups:
                    if meddle:
                        group.update(lr=9.0, betas=(0.1, 0.2), eps=1.0, weight_decay=3.0)
                    if k == 3:
                        group.update(lr=0.01, betas=(0.8, 0.9), eps=1e-8, weight_decay=0.01)
        ends.append(run.model.state_dict())
        assert run.sim.time == 0.02 + 0.01
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=0)


@pytest.mark.parametrize("settings", [AdamSettings(0.1, (0.5, 0.9)), RMSpropSettings(0.1), SGDSettings(0.1)], ids=str)
def test_a_clock_saves_the_settings_of_every_optimizer(settings: Any) -> None:
    clock, other = Clock(ell=2), Clock(ell=2)
    clock.start([settings])
    clock.tick()
    other.load_state_dict(json.loads(json.dumps(clock.state_dict())))
    assert other == clock


def test_a_cold_rmsprop_is_refused_and_a_warm_one_is_not() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    model.register_parameter("unused", nn.Parameter(torch.ones(1)))
    optimizer = RMSprop(model.parameters(), lr=0.01)
    before = deepcopy(model.state_dict())
    one, two = torch.ones(2, 3), torch.zeros(2, 3)
    loss_fn = lambda x: model(x).square().mean()  # noqa: E731
    with svag.SVAG(model, optimizer, ell=2) as sim:
        refusal = r"\bRMSprop\b.*ell=1\b.*\bAdam\b.*betas=\(0.0, alpha\)"
        with pytest.raises(ValueError, match=refusal):
            sim.substep(loss_fn, one, two)
        with pytest.raises(ValueError, match=refusal):
            sim.step(loss_fn, iter([(one, two)] * 2))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    assert not any(optimizer.state.values())
    assert optimizer.param_groups[0]["lr"] == 0.01
    with svag.SVAG(model, optimizer, ell=1) as plain:
        plain.step(loss_fn, iter([(one, two)]))
    with sim:
        sim.step(loss_fn, iter([(one, two)] * 2))
    assert [state["step"].item() for state in optimizer.state.values()] == [2, 2]


def test_sgd_has_no_units() -> None:
    x = nn.Parameter(torch.ones(1))
    optimizer = SGD([x], lr=0.1, momentum=0.9)
    x.grad = torch.ones(1)
    optimizer.step()
    before = deepcopy(optimizer.state_dict())
    substep = SubstepState(optimizer, refinable_settings(optimizer), 4)
    substep.use()
    assert optimizer.state_dict() == before
    substep.keep()
    assert optimizer.state_dict() == before
