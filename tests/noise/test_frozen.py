import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from tests.noise.nets import Norm, Pair, batches, data, everything, gradient, loss_of, net
from torch import Tensor, nn
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from svag import BatchSampler, measure_noise, scale_invariance_error
from svag.noise.frozen import GROUPS, GradientStream, interval_reach
from svag.theory.weights import Sampling


@pytest.mark.parametrize("norm", ["batch", "group", "layer", "none"])
@pytest.mark.parametrize("count", [2, 3, 8, 21])
def test_is_the_u_statistic_of_the_batch_gradients(norm: Norm, count: int) -> None:
    model, stream = net(norm), batches(count, 6)
    gradients = torch.stack([gradient(model, batch) for batch in stream])
    mean = gradients.mean(dim=0)
    spread = float((gradients - mean).square().sum() / (count - 1))
    reading = measure_noise(model, loss_of(model), stream)
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    assert reading.noise_trace == pytest.approx(spread, rel=1e-10)
    assert reading.grad_sq == pytest.approx(float(mean @ mean) - spread / count, rel=1e-9)
    assert reading.param_sq == pytest.approx(float(weights @ weights), rel=1e-12)
    assert reading.param_dot_grad == pytest.approx(float(weights @ mean), rel=1e-9)
    assert (reading.batch_size, reading.n, reading.approximate) == (6, count, False)


def test_unbiased_over_all_pairs_of_batches_of_a_tiny_data_set() -> None:
    model, (x, y) = net(), data(5)
    all_batches = [(x[list(draw)], y[list(draw)]) for draw in itertools.combinations(range(5), 2)]
    gradients = torch.stack([gradient(model, batch) for batch in all_batches])
    full = gradients.mean(dim=0)
    readings = [measure_noise(model, loss_of(model), pair) for pair in itertools.product(all_batches, repeat=2)]
    trace = float((gradients - full).square().sum(dim=1).mean())
    assert np.mean([r.grad_sq for r in readings]) == pytest.approx(float(full @ full), rel=1e-12)
    assert np.mean([r.noise_trace for r in readings]) == pytest.approx(trace, rel=1e-12)


def test_population_corrects_the_batches_of_one_epoch() -> None:
    model, (x, y) = net(), data(4)
    full = gradient(model, (x, y))
    draws = [(x[list(draw)], y[list(draw)]) for draw in itertools.combinations(range(4), 2)]
    trace = float(torch.stack([gradient(model, batch) - full for batch in draws]).square().sum(dim=1).mean())
    readings = []
    for order in itertools.permutations(range(4)):
        epoch = list(zip(x[list(order)].split(2), y[list(order)].split(2), strict=True))
        readings.append(measure_noise(model, loss_of(model), epoch, population=4))
    assert np.mean([r.grad_sq for r in readings]) == pytest.approx(float(full @ full), rel=1e-12)
    assert np.mean([r.noise_trace for r in readings]) == pytest.approx(trace, rel=1e-12)
    assert readings[0].population == 4


def test_a_loader_of_epochs_tells_its_population_and_independent_draws_have_none() -> None:
    model, (x, y) = net(), data(12)
    examples = TensorDataset(x, y)
    loader = DataLoader(examples, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(0))
    found = measure_noise(model, loss_of(model), loader)
    assert found == measure_noise(model, loss_of(model), loader, population=12)
    assert found.population == 12
    assert measure_noise(model, loss_of(model), DataLoader(examples, batch_size=4)).population == 12
    again = RandomSampler(examples, replacement=True, generator=torch.Generator())
    assert measure_noise(model, loss_of(model), DataLoader(examples, batch_size=4, sampler=again)).population is None
    sampler = BatchSampler(12, 4, generator=torch.Generator())
    endless = DataLoader(examples, batch_sampler=sampler)
    assert measure_noise(model, loss_of(model), endless, max_batches=4).population is None


def test_a_loss_of_another_model_is_refused() -> None:
    model, copy = net(), net()
    with pytest.raises(ValueError, match=r"\bloss_fn\b"):
        measure_noise(copy, loss_of(model), batches(2, 4))
    with pytest.raises(ValueError, match=r"\bloss_fn\b"):
        scale_invariance_error(copy, loss_of(model), data(4))
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, got function"):
        measure_noise(loss_of, loss_of(model), batches(2, 4))  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", ["batch", "group", "layer", "none"])
def test_leaves_no_trace(norm: Norm) -> None:
    model = net(norm, dropout=True)
    model[4].eval()  # type: ignore[index]  # a mixture of modes
    loss_of(model)(data(6)).backward()  # gradients that belong to the run
    x, y = data(48)
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(TensorDataset(x, y), batch_size=6, shuffle=True, generator=generator)
    mine = torch.Generator().manual_seed(6)

    def loss_fn(batch: Pair) -> Tensor:
        model.train()
        random.random()
        np.random.rand()  # noqa: NPY002
        noise = torch.randn(batch[0].shape, generator=mine, dtype=torch.float64)
        return loss_of(model)((batch[0] + 0.1 * noise, batch[1]))

    before = everything(model, generator, mine)
    with torch.no_grad():  # a careless caller
        reading = measure_noise(model, loss_fn, loader, generators=[mine])
    assert everything(model, generator, mine) == before
    assert reading.n == 8


def test_a_buffer_that_forward_replaces_is_put_back() -> None:
    class Counting(nn.Linear):
        calls: Tensor

        def __init__(self) -> None:
            super().__init__(4, 3, dtype=torch.float64)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls = self.calls + 1
            return super().forward(x)

    model = Counting()
    calls = model.calls
    measure_noise(model, loss_of(model), batches(3, 2))
    assert model.calls is calls
    assert calls.item() == 0


Loader = DataLoader[tuple[Tensor, ...]]


def loaders() -> dict[str, Callable[[TensorDataset, torch.Generator], Loader]]:
    def drawn(sampling: Sampling) -> Callable[[TensorDataset, torch.Generator], Loader]:
        return lambda d, g: DataLoader(d, batch_sampler=BatchSampler(24, 6, sampling=sampling, generator=g))

    return {
        "global": lambda d, _: DataLoader(d, 6, shuffle=True),
        "generator": lambda d, g: DataLoader(d, 6, shuffle=True, generator=g),
        "sampler": lambda d, g: DataLoader(d, 6, sampler=RandomSampler(d, generator=g)),
        "inside a batch sampler": lambda d, g: DataLoader(
            d, batch_sampler=TorchBatchSampler(RandomSampler(d, generator=g), 6, drop_last=True)
        ),
        "without_replacement": drawn("without_replacement"),
        "with_replacement": drawn("with_replacement"),
        "shuffle": drawn("shuffle"),
    }


@pytest.mark.parametrize("kind", loaders())
def test_loader_order_is_what_it_was(kind: str) -> None:
    x, y = data(24)

    def order(measure: bool) -> list[Tensor]:
        torch.manual_seed(3)
        loader = loaders()[kind](TensorDataset(x, y), torch.Generator().manual_seed(4))
        model = net(dropout=True)
        next(iter(loader))  # the run is under way
        if measure:
            measure_noise(model, loss_of(model), loader, max_batches=3)
        return [batch[0] for batch in itertools.islice(loader, 4)]

    assert all(torch.equal(a, b) for a, b in zip(order(True), order(False), strict=True))


def _bad(kind: str) -> tuple[nn.Module, Callable[[Pair], Tensor], list[Pair]]:
    model = net("batch")
    fine, stream = loss_of(model), batches(4, 6)
    second = iter([False, True, True, True])
    return {
        "one": (model, fine, stream[:1]),
        "none": (model, fine, []),
        "unequal": (model, fine, [*stream, batches(1, 5)[0]]),
        "empty": (model, fine, [stream[0], (torch.zeros(0, 4), torch.zeros(0))]),
        "vector": (model, lambda b: nn.functional.cross_entropy(model(b[0]), b[1], reduction="none"), stream),
        "float": (model, lambda b: fine(b).item(), stream),
        "detached": (model, lambda b: fine(b).detach(), stream),
        "nan": (model, lambda b: fine(b) * (float("nan") if next(second) else 1.0), stream),
        "frozen": (net("batch").requires_grad_(False), fine, stream),
    }[kind]  # type: ignore[return-value]  # one of them returns a float on purpose


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("one", ValueError, "got 1"),
        ("none", ValueError, "got 0"),
        ("unequal", ValueError, r"batch 5 has 5: .*drop_last=True"),
        ("empty", ValueError, "the batch is empty"),
        ("vector", ValueError, r"^loss_fn\b.*\(6,\)"),
        ("float", TypeError, r"^loss_fn\b.*float"),
        ("detached", ValueError, "does not depend on any trainable parameter"),
        ("nan", ValueError, "batch 2 gave gradients that are not finite"),
        ("frozen", ValueError, "nothing to measure"),
    ],
)
def test_bad_input_is_one_sentence_and_the_model_is_as_it_was(kind: str, error: type[Exception], message: str) -> None:
    model, loss_fn, stream = _bad(kind)
    before = everything(model)
    with pytest.raises(error, match=message) as caught:
        measure_noise(model, loss_fn, stream)
    assert "\n" not in str(caught.value)
    assert everything(model) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relative_error": 0.0}, r"^relative_error\b"),
        ({"max_batches": 1}, r"^max_batches\b"),
        ({"max_batches": 2.5}, r"^max_batches\b"),
        ({"population": 6}, r"^population\b"),
        ({"population": 20}, r"\b20\b.*\bpopulation\b"),
    ],
)
def test_bad_options(options: dict[str, float], message: str) -> None:
    model = net()
    with pytest.raises(ValueError, match=message):
        measure_noise(model, loss_of(model), batches(4, 6), **options)  # type: ignore[arg-type]


def test_knows_what_the_optimizer_knows() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    loss_of(model)(data(6)).backward()
    optimizer.step()
    velocity = sum(float(optimizer.state[p]["momentum_buffer"].square().sum()) for p in model.parameters())
    reading = measure_noise(model, loss_of(model), batches(2, 6), optimizer=optimizer, step=7, run="a")
    assert (reading.lr, reading.momentum, reading.weight_decay, reading.optimizer) == (0.1, 0.9, 0.01, "SGD")
    assert (reading.step, reading.run) == (7, "a")
    assert reading.velocity_sq == pytest.approx(velocity, rel=1e-12)


def test_stops_at_the_wanted_error_or_at_the_limit_and_says_how_far_it_got() -> None:
    weight = nn.Linear(50, 1, bias=False, dtype=torch.float64)
    nn.init.ones_(weight.weight)
    generator = torch.Generator().manual_seed(0)
    # the loss w·x has the gradient mean(x): N(1, 1/2) in each of 50 coordinates, so N/G is 1/2
    endless = (1 + torch.randn(2, 50, generator=generator, dtype=torch.float64) for _ in itertools.count())
    reached = measure_noise(weight, lambda x: weight(x).mean(), endless, relative_error=0.2)
    assert reached.relative_error is not None
    assert reached.relative_error <= 0.2
    assert reached.n % GROUPS == 0
    limited = measure_noise(weight, lambda x: weight(x).mean(), endless, relative_error=1e-4, max_batches=30)
    assert limited.n == 30
    assert limited.relative_error is not None
    assert limited.relative_error > 1e-4


def test_an_unresolved_gradient_has_no_relative_error() -> None:
    weight = nn.Linear(50, 1, bias=False, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    noise = [torch.randn(2, 50, generator=generator, dtype=torch.float64) for _ in range(16)]
    assert measure_noise(weight, lambda x: weight(x).mean(), noise).relative_error is None


@pytest.mark.parametrize(("count", "ratio"), [(16, 4.0), (40, 10.0)])
def test_jackknife_interval_covers(count: int, ratio: float) -> None:
    """400 streams of Gaussian gradients: the 95% interval of N/G holds the truth in 90% to 100% of them.

    The jackknife is conservative by up to √2 where the pairwise part dominates, so there is no upper limit below 100%.
    Binomial bound at α = 1e-6 for 400 draws at 95%: at least 357 of 400.
    """
    dimension, trials = 200, 400
    generator = torch.Generator().manual_seed(1)
    covered = 0
    for _ in range(trials):
        stream = GradientStream(batch_size=1)
        noise = torch.randn(count, dimension, generator=generator, dtype=torch.float64) * (ratio / dimension) ** 0.5
        noise[:, 0] += 1.0
        for row in noise:
            stream.add([row])
        estimate, error = stream.estimate(), interval_reach(stream)
        if error is None:
            covered += 1  # unbounded: it covers
            continue
        value = estimate.noise_trace / estimate.grad_sq
        covered += value * (1 - error) <= ratio <= value * (1 + error)
    assert covered >= 357
