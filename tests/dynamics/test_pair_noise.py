"""track_noise: G and N from every pair, unbiased by enumeration, and without a trace in the run."""

from collections.abc import Callable
from itertools import combinations, product
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import svag

if TYPE_CHECKING:
    from tests.dynamics.conftest import Problem

    from svag.theory.optimizers import MomentumLimit

MakeProblem = Callable[[int], "Problem"]
N, BATCH = 6, 4


def covariance_trace(problem: "Problem", size: int) -> float:
    gradients = np.array([problem.gradient(batch) for batch in combinations(range(N), size)])
    return float(np.square(gradients - gradients.mean(0)).sum(1).mean())


@pytest.mark.parametrize(
    ("ell", "split", "population"), [(2, 1, None), (5, 1, N), (2, 2, N), (8, 2, N), (8, 4, N), (8, 2, None)]
)
def test_readings_average_to_g_and_to_n_at_the_batch_size_of_the_run(
    problem: MakeProblem, ell: int, split: int, population: int | None
) -> None:
    """All pairs of without-replacement batches: the average over them is the expectation."""
    tiny = problem(N)
    start, parts = tiny.get(), list(combinations(range(N), BATCH // split))
    optimizer = torch.optim.SGD(tiny.model.parameters(), lr=0.3, weight_decay=0.01)
    with svag.SVAG(tiny.model, optimizer, ell=ell, split=split, track_noise=True, population=population) as sim:
        for first, second in product(parts, parts):
            tiny.set(start)
            if first != second:
                sim.substep(tiny.loss, tiny.batch(first), tiny.batch(second))
            else:  # the same examples by chance, drawn independently all the same
                sim.substep(tiny.loss, tiny.batch(first), tuple(t.clone() for t in tiny.batch(second)))
    tiny.set(start)

    gradient = tiny.gradient(tuple(range(N)))
    expected_trace = covariance_trace(tiny, BATCH)
    if population is None:  # taken as drawn with replacement: N of the part, over `split`
        expected_trace = covariance_trace(tiny, BATCH // split) / split
    readings = sim.noise
    assert len(readings) == len(parts) ** 2
    assert np.mean([r.grad_sq for r in readings]) == pytest.approx(gradient @ gradient, rel=1e-10)
    assert np.mean([r.noise_trace for r in readings]) == pytest.approx(expected_trace, rel=1e-10)
    one = readings[0]
    assert one.param_sq == pytest.approx(start @ start, rel=1e-12)
    assert (one.batch_size, one.n, one.step, one.ell, one.population) == (BATCH, 2, 0, ell, population)
    assert one.param_dot_grad is not None
    assert np.mean([r.param_dot_grad for r in readings if r.param_dot_grad is not None]) == pytest.approx(
        start @ gradient, rel=1e-10
    )
    assert (one.lr, one.weight_decay, one.momentum, one.optimizer) == (0.3, 0.01, 0.0, "SGD")
    assert readings[-1].step == (len(readings) - 1) // ell


def test_a_pair_is_the_u_statistic_of_its_two_gradients(problem: MakeProblem) -> None:
    tiny = problem(N)
    g1, g2 = tiny.gradient((0, 1)), tiny.gradient((2, 3))
    with svag.SVAG(tiny.model, torch.optim.SGD(tiny.model.parameters(), lr=0.3), ell=2, track_noise=True) as sim:
        sim.substep(tiny.loss, tiny.batch((0, 1)), tiny.batch((2, 3)))
        reading = sim.noise[0]
    assert reading.grad_sq == pytest.approx(g1 @ g2, rel=1e-12)
    assert reading.noise_trace == pytest.approx((g1 - g2) @ (g1 - g2) / 2, rel=1e-12)


@pytest.mark.parametrize(("ell", "split"), [(1, 2), (3, 1)])
def test_the_velocity_before_the_step_is_recorded(problem: MakeProblem, ell: int, split: int) -> None:
    tiny = problem(N)
    optimizer = torch.optim.SGD(tiny.model.parameters(), lr=0.3, momentum=0.5)
    squares = []
    with svag.SVAG(tiny.model, optimizer, ell, split, momentum_limit="overdamped", track_noise=True) as sim:
        for _ in range(3):
            sim.substep(tiny.loss, tiny.batch((0, 1)), tiny.batch((2, 3)))
            buffers = [optimizer.state[p]["momentum_buffer"] for p in tiny.model.parameters()]
            squares.append(sum(float(v.square().sum()) for v in buffers))
    assert sim.noise[0].velocity_sq is None
    assert [r.velocity_sq for r in sim.noise[1:]] == pytest.approx(squares[:2], rel=1e-12)


def test_a_reading_carries_the_held_rate(problem: MakeProblem) -> None:
    tiny = problem(N)
    optimizer = torch.optim.SGD(tiny.model.parameters(), lr=0.3)
    with svag.SVAG(tiny.model, optimizer, ell=2, track_noise=True) as sim:
        for lr in (0.3, 0.2, 0.1):
            optimizer.param_groups[0]["lr"] = lr
            sim.substep(tiny.loss, tiny.batch((0, 1)), tiny.batch((2, 3)))
    assert [reading.lr for reading in sim.noise] == [0.3, 0.3, 0.1]


def test_a_second_weight_of_exactly_zero_is_refused(problem: MakeProblem) -> None:
    """n = 6, B = 4: l/m over the surplus (6 − 2)/(6 − 4) is 1, so that a, b = 1, 0."""
    tiny = problem(N)
    start = tiny.get()
    optimizer = torch.optim.SGD(tiny.model.parameters(), lr=0.3)
    with (
        svag.SVAG(tiny.model, optimizer, ell=4, split=2, track_noise=True, population=N) as sim,
        pytest.raises(ValueError, match=r"^track_noise\b"),
    ):
        sim.substep(tiny.loss, tiny.batch((0, 1)), tiny.batch((2, 3)))
    assert np.array_equal(tiny.get(), start)


def test_tracking_leaves_no_trace(problem: MakeProblem) -> None:
    ends = []
    for track in (False, True):
        tiny = problem(N)
        tiny.model.float()
        data = [(tiny.x[i : i + 2].float(), tiny.y[i : i + 2].float()) for i in (0, 2, 4)]
        optimizer = torch.optim.SGD(tiny.model.parameters(), lr=0.3)
        with svag.SVAG(tiny.model, optimizer, ell=3, track_noise=track, chunks=2) as sim:
            for _ in range(4):
                sim.step(tiny.loss, iter([(data[0], data[1]), (data[2], data[0]), (data[1], data[2])]))
        ends.append(tiny.get())
        assert len(sim.noise) == 12 * track
    assert np.array_equal(ends[0], ends[1])


def test_parameters_that_only_one_batch_uses(problem: MakeProblem) -> None:
    """No gradient is a gradient of 0."""
    used, unused = torch.nn.Parameter(torch.tensor([1.0])), torch.nn.Parameter(torch.tensor([1.0]))
    model = torch.nn.ParameterList([used, unused])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    with svag.SVAG(model, optimizer, ell=5, track_noise=True) as sim:
        sim.substep(lambda x: (used * x).sum() + ((unused * x).sum() if x > 3 else 0), torch.ones(1), 4 * torch.ones(1))
    assert sim.noise[0].grad_sq == pytest.approx(1 * 4 + 0 * 4)
    assert sim.noise[0].noise_trace == pytest.approx((3**2 + 4**2) / 2)


def test_pairs_that_are_not_finite_are_left_out_with_one_warning() -> None:
    x = torch.nn.Parameter(torch.tensor([1.0]))
    model = torch.nn.ParameterList([x])
    with svag.SVAG(model, torch.optim.SGD(model.parameters(), lr=0.3), ell=5, track_noise=True) as sim:
        sim.substep(lambda batch: (x * batch).sum(), torch.ones(1), torch.zeros(1))
        sim.substep(lambda batch: (x * batch).sum(), torch.ones(1), torch.full((1,), torch.inf))
    with pytest.warns(UserWarning, match=r"step 0\b"):
        _ = sim.noise
    assert len(sim.noise) == 1


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_complex_parameter_is_two_real_ones(momentum: float) -> None:
    """The loss |⟨x, z⟩|² + ⟨x, w⟩ with complex z, and with its real and imaginary parts as a parameter."""
    generator = torch.Generator().manual_seed(4)
    pairs = torch.randn(3, 2, 4, 3, generator=generator, dtype=torch.float64)
    start = torch.randn(3, 2, generator=generator, dtype=torch.float64)
    runs = []
    for is_complex in (True, False):
        z = nn.Parameter(torch.view_as_complex(start.clone()) if is_complex else start.clone())
        w = nn.Parameter(torch.ones(3, dtype=torch.float64))
        optimizer = torch.optim.SGD([z, w], lr=0.1, momentum=momentum)

        def loss_fn(x: Tensor, z: Tensor = z, w: Tensor = w) -> Tensor:
            parts = torch.view_as_real(z) if z.is_complex() else z
            return (x @ parts).square().sum(1).mean() + (x @ w).mean()

        limit: MomentumLimit | None = "overdamped" if momentum else None
        with svag.SVAG(nn.ParameterList([z, w]), optimizer, 2, track_noise=True, momentum_limit=limit) as sim:
            for first, second in pairs:
                sim.substep(loss_fn, first, second)
        found = [(r.grad_sq, r.noise_trace, r.param_sq, r.param_dot_grad, r.velocity_sq or 0.0) for r in sim.noise]
        runs.append((found, z))
    np.testing.assert_allclose(np.array(runs[0][0], float), np.array(runs[1][0], float), rtol=1e-10)
    assert (runs[0][0][-1][-1] > 0) == (momentum > 0)
    torch.testing.assert_close(torch.view_as_real(runs[0][1]), runs[1][1].detach(), rtol=1e-12, atol=0)
