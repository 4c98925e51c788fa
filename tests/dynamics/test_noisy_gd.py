"""Noisy gradient descent: exact mean and covariance, gradient descent as a special case, and what is refused."""

import math
from collections.abc import Callable
from copy import deepcopy
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import svag
from svag.arrays import FloatArray

if TYPE_CHECKING:
    from tests.dynamics.conftest import Law, Problem

LR, N = 0.3, 5
MakeProblem = Callable[[int], "Problem"]
MakeLaw = Callable[[list[FloatArray], list[float]], "Law"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noisy(problem: "Problem", **settings: Any) -> svag.NoisyGD:
    optimizer = torch.optim.SGD(problem.model.parameters(), lr=LR)
    return svag.NoisyGD(
        problem.model, optimizer, **{"dataset_size": N, "batch_size": 3, "generator": seeded(), **settings}
    )


def batch_law(problem: "Problem", law: MakeLaw, sampling: str, size: int) -> "Law":
    draws = combinations(range(N), size) if sampling == "without_replacement" else product(range(N), repeat=size)
    batches = list(draws)
    return law([problem.gradient(batch) for batch in batches], [1 / len(batches)] * len(batches))


@pytest.mark.parametrize("sampling", ["without_replacement", "with_replacement"])
@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("refine", [1, 4])
def test_the_covariance_is_that_of_a_batch(
    problem: MakeProblem, law: MakeLaw, sampling: Any, size: int, refine: int
) -> None:
    """The increment is affine in z: unit vectors give its matrix M, and M Mᵀ is the covariance."""
    tiny = problem(N)
    expected = batch_law(tiny, law, sampling, size)
    start = tiny.get()
    ngd = noisy(tiny, batch_size=size, sampling=sampling, refine=refine)

    def increment(z: Tensor) -> FloatArray:
        tiny.set(start)
        ngd._step(tiny.losses, [tiny.batch((0, 1)), tiny.batch((2, 3, 4))], z)
        return tiny.get() - start

    mean = increment(torch.zeros(N, dtype=torch.float64))
    matrix = np.array([increment(unit) - mean for unit in torch.eye(N, dtype=torch.float64)]).T
    np.testing.assert_allclose(mean, -LR / refine * expected.mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(matrix @ matrix.T, LR**2 / refine * expected.covariance, rtol=0, atol=1e-12)


def test_the_public_step_draws_that_noise(problem: MakeProblem, law: MakeLaw) -> None:
    """1,000 steps from one point: the variance along the gradient has a relative standard error of √(2/999).

    4.9 of them (α = 1e-6) is 22%, enough to see a missing factor (n−B)/(n−1) = ½, and the mean to 15% of a deviation.
    """
    tiny, steps = problem(N), 1_000
    expected = batch_law(tiny, law, "without_replacement", 3)
    direction = expected.mean / np.linalg.norm(expected.mean)
    start, ngd = tiny.get(), noisy(tiny)
    moves = []
    for _ in range(steps):
        tiny.set(start)
        ngd.step(tiny.losses, [tiny.batch(range(N))])
        moves.append((tiny.get() - start) @ direction)
    variance = LR**2 * direction @ expected.covariance @ direction
    assert abs(np.var(moves, ddof=1) / variance - 1) < 4.9 * math.sqrt(2 / (steps - 1))
    assert abs(np.mean(moves) + LR * expected.mean @ direction) < 4.9 * math.sqrt(variance / steps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_infinite_batch_is_gradient_descent_bit_for_bit(problem: MakeProblem, dtype: torch.dtype) -> None:
    tiny, plain = problem(N), problem(N)
    for one in (tiny, plain):
        one.model.to(dtype)
    data = (tiny.x.to(dtype), tiny.y.to(dtype))
    sgd = torch.optim.SGD(plain.model.parameters(), lr=LR)
    gd = noisy(tiny, batch_size=math.inf)
    for _ in range(3):
        sgd.zero_grad()
        expected = plain.loss(data)
        torch.autograd.backward(expected)
        sgd.step()
        loss = gd.step(tiny.losses, [data])
        torch.testing.assert_close(loss, expected.detach())
    assert np.array_equal(tiny.get(), plain.get())
    assert gd.effective_step == 3


def test_chunks_do_not_change_the_noise(problem: MakeProblem) -> None:
    ends = []
    for chunks in ([range(5)], [range(2), range(2, 5)], [[i] for i in range(5)]):
        tiny = problem(N)
        ngd = noisy(tiny)
        for _ in range(3):
            ngd.step(tiny.losses, [tiny.batch(chunk) for chunk in chunks])
        ends.append(tiny.get())
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-12)
    np.testing.assert_allclose(ends[2], ends[0], rtol=1e-12)


def test_a_refined_run_holds_its_rate_and_counts_effective_steps(problem: MakeProblem) -> None:
    tiny = problem(N)
    optimizer = torch.optim.SGD(tiny.model.parameters(), lr=LR)
    em = svag.NoisyGD(tiny.model, optimizer, batch_size=3, dataset_size=N, refine=2, generator=seeded())
    em.step(tiny.losses, [tiny.batch(range(N))])
    assert (em.effective_step, em.boundary, em.time) == (0, False, LR / 2)
    optimizer.param_groups[0]["lr"] = 100.0
    em.step(tiny.losses, [tiny.batch(range(N))])
    assert (em.effective_step, em.boundary, em.time) == (1, True, LR)
    assert str(em) == "NoisyGD(refine=2, effective_step=1, time=0.3)"


def test_a_continued_run_is_bit_identical(problem: MakeProblem) -> None:
    whole, early = problem(N), problem(N)
    ngd, first = noisy(whole, refine=3), noisy(early, refine=3)
    chunks = [whole.batch(range(N))]
    for _ in range(5):
        ngd.step(whole.losses, chunks)
    for _ in range(2):
        first.step(early.losses, chunks)
    late = noisy(early, refine=3, generator=seeded(77))
    late.load_state_dict(first.state_dict())
    for _ in range(3):
        late.step(early.losses, chunks)
    assert np.array_equal(whole.get(), early.get())
    assert late.time == ngd.time


class Jittered(Dataset[tuple[Tensor, Tensor]]):
    """Augments at random whenever it is asked."""

    def __init__(self, problem: "Problem") -> None:
        self.problem = problem

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.problem.x[index] + torch.randn(2), self.problem.y[index]


def test_a_pass_that_is_not_of_one_function_is_refused_and_changes_nothing(problem: MakeProblem) -> None:
    tiny = problem(N)
    chunks = [tiny.batch((0, 1)), tiny.batch((2, 3, 4))]
    before = deepcopy(tiny.model.state_dict())

    def augmented(batch: tuple[Tensor, Tensor]) -> Tensor:
        return tiny.losses((batch[0] + torch.randn_like(batch[0]), batch[1]))

    def contrastive(batch: tuple[Tensor, Tensor]) -> Tensor:
        losses = tiny.losses(batch)
        return losses - losses.mean()

    cases: list[tuple[Any, Any, str]] = [
        (augmented, chunks, r"^losses_fn\b.*augment"),
        (contrastive, chunks, "GroupNorm or LayerNorm"),
        (tiny.loss, chunks, r"^losses_fn\b.* 2 .*\(\)"),
        (lambda batch: 1.0, chunks, r"^losses_fn\b.*float"),
        (tiny.losses, chunks[:1], r"^chunks\b.* 2 .*dataset_size=5"),
        (tiny.losses, chunks * 2, r"^chunks\b.*dataset_size=5"),
        (tiny.losses, DataLoader(Jittered(tiny), 5), "first example"),
    ]
    for losses_fn, data, sentence in cases:
        generator = seeded()
        ngd = noisy(tiny, generator=generator)
        with pytest.raises(ValueError, match=sentence):
            ngd.step(losses_fn, data)
        assert torch.equal(generator.get_state(), seeded().get_state())
        assert ngd.effective_step == 0
    for name, value in before.items():
        assert torch.equal(tiny.model.state_dict()[name], value)
    assert all(p.grad is None for p in tiny.model.parameters())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"batch_size": 6}, r"^batch_size\b.*dataset_size=5"),
        ({"batch_size": math.nan}, r"^batch_size\b"),
        ({"batch_size": 2.5}, r"^batch_size\b"),
        ({"generator": None}, r"^generator\b"),
        ({"sampling": "shuffle"}, r"^sampling\b.*without_replacement.*with_replacement"),
        ({"refine": 0}, r"^refine\b"),
    ],
)
def test_bad_arguments(problem: MakeProblem, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        noisy(problem(N), **settings)


def test_models_whose_examples_have_no_loss_of_their_own() -> None:
    for layer, sentence in (
        (nn.BatchNorm1d(2), "^BatchNorm1d .*GroupNorm"),
        (nn.Dropout(0.1), r"\(Dropout\)"),
    ):
        model = nn.Sequential(nn.Linear(2, 2), layer)
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        with pytest.raises(ValueError, match=sentence):
            svag.NoisyGD(model, optimizer, batch_size=3, dataset_size=N, generator=seeded())
        model.eval()
        ngd = svag.NoisyGD(model, optimizer, batch_size=3, dataset_size=N, generator=seeded())
        ngd.step(lambda x, model=model: model(x).sum(1), [torch.ones(N, 2)])  # type: ignore[misc]
        model.train()
        with pytest.raises(ValueError, match=sentence):
            ngd.step(lambda x, model=model: model(x).sum(1), [torch.ones(N, 2)])  # type: ignore[misc]


def test_momentum_belongs_to_the_unrefined_process_only(problem: MakeProblem) -> None:
    tiny = problem(N)
    optimizer = torch.optim.SGD(tiny.model.parameters(), lr=LR, momentum=0.9)
    settings: dict[str, Any] = {"batch_size": 3, "dataset_size": N, "generator": seeded()}
    with pytest.raises(ValueError, match=r"^refine\b"):
        svag.NoisyGD(tiny.model, optimizer, refine=2, **settings)
    ngd = svag.NoisyGD(tiny.model, optimizer, **settings)
    ngd.step(tiny.losses, [tiny.batch(range(N))])
    assert "momentum_buffer" in optimizer.state[next(tiny.model.parameters())]


def test_detached_losses_are_refused(problem: MakeProblem) -> None:
    tiny = problem(N)
    with pytest.raises(ValueError, match="no_grad"):
        noisy(tiny).step(lambda batch: tiny.losses(batch).detach(), [tiny.batch(range(N))])
