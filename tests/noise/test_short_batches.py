"""The ordinary loop of a newcomer: a short last batch, a forgotten close_step, BatchNorm, momentum and cosine."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.noise.nets import Pair, data, everything, loss_of, net, sgd
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import svag
from svag import NoiseProbe


def loader(examples: int, size: int) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*data(examples)), size, shuffle=True, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("examples", [42, 39, 33], ids=["divisible", "not divisible", "one example"])
def test_a_short_last_batch_is_trained_without_a_reading(examples: int) -> None:
    model, plain = net(), net()
    optimizers = sgd(model), sgd(plain)
    probe = NoiseProbe(model, optimizers[0], batch_size=16, population=examples)

    def train() -> None:
        for _ in range(3):
            for batch in loader(examples, 16):
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss = probe.backward(loss_of(model), batch, parts=4)
                expected = loss_of(plain)(batch)
                expected.backward()
                assert torch.allclose(loss, expected, rtol=1e-12)
                for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
                    assert mine.grad is not None
                    assert theirs.grad is not None
                    assert torch.allclose(mine.grad, theirs.grad, rtol=1e-10, atol=1e-14)
                for optimizer in optimizers:
                    optimizer.step()

    with pytest.warns(UserWarning, match=f" {examples - 32} examples.*batch_size=16") as said:
        train()
    assert len(said) == 1
    assert [reading.step for reading in probe.readings] == [0, 1, 3, 4, 6, 7]  # the third of an epoch is a step too


def test_a_short_batch_is_cut_so_that_it_fits_where_the_parts_do() -> None:
    model, sizes = net(), list[int]()

    def loss_fn(batch: Pair) -> Tensor:
        sizes.append(len(batch[1]))
        return loss_of(model)(batch)

    probe = NoiseProbe(model, sgd(model), batch_size=16, check_loss=False)
    probe.backward(loss_fn, data(16), parts=4)
    model.zero_grad()
    with pytest.warns(UserWarning, match="without a reading"):
        probe.backward(loss_fn, data(9), parts=4)
    assert sizes == [4, 4, 4, 4, 3, 3, 3]


def test_a_first_batch_of_another_size_is_refused() -> None:
    """It is not the end of an epoch: the probe was made for another size."""
    model = net()
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    with pytest.raises(ValueError, match=r"12 examples.*batch_size=16"):
        probe.backward(loss_of(model), data(12))
    probe.backward(loss_of(model), data(16))
    model.zero_grad()
    with pytest.raises(ValueError, match=r"20 examples.*batch_size=16"):
        probe.backward(loss_of(model), data(20))


def test_an_error_in_a_short_batch_leaves_no_gradient() -> None:
    model = net("batch")
    probe = NoiseProbe(model, sgd(model), batch_size=16)
    probe.backward(loss_of(model), data(16))
    model.zero_grad()
    before = everything(model)
    with pytest.raises(ValueError, match=r"^loss_fn\b"):
        probe.backward(lambda batch: nn.functional.cross_entropy(model.eval()(batch[0]), batch[1], reduction="none"),
                       data(12))  # fmt: skip
    model.train()
    assert everything(model) == before


def steps(model: nn.Module, probe: NoiseProbe, optimizer: torch.optim.Optimizer, set_to_none: bool) -> Iterator[None]:
    """An accumulation loop; whoever takes its steps closes them or does not."""
    for _ in range(3):
        optimizer.zero_grad(set_to_none=set_to_none)
        for _ in range(2):
            (loss_of(model)(data(8)) / 2).backward()
            probe.micro_batch()
        yield
        optimizer.step()


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_step_that_was_never_closed_is_noticed(kind: str, set_to_none: bool) -> None:
    model = net()
    optimizer = sgd(model) if kind == "sgd" else torch.optim.Adam(model.parameters())
    probe = NoiseProbe(model, optimizer, batch_size=16)
    loop = steps(model, probe, optimizer, set_to_none)
    next(loop)
    with pytest.raises(ValueError, match=r"probe\.close_step\(\).*optimizer\.step\(\)"):
        next(loop)
    assert probe.readings == []
    for _ in steps(model, probe, optimizer, set_to_none):  # and the probe still works
        probe.close_step()
    assert len(probe.readings) == 3


def test_closed_and_skipped_steps_are_not_taken_for_forgotten_ones() -> None:
    model = net()
    optimizer = sgd(model)
    probe = NoiseProbe(model, optimizer, batch_size=16)
    for number, _ in enumerate(steps(model, probe, optimizer, set_to_none=True)):
        if number == 1:
            probe.skip_step()
        else:
            probe.close_step()
    assert len(probe.readings) == 2


class Block(nn.Module):
    """A residual block with BatchNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.body = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


def test_an_ordinary_batch_norm_resnet_with_momentum_and_cosine_gets_a_price_list() -> None:
    """The three-line probe in the loop that most people have: nothing is scale invariant, nothing settles."""
    torch.manual_seed(0)
    x, y = torch.randn(130, 1, 6, 6), torch.randint(3, (130,))
    x[:, 0, 0, :3] += 2 * nn.functional.one_hot(y, 3)
    batches = DataLoader(TensorDataset(x, y), 16, shuffle=True, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), Block(4), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    epochs = 20
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(batches))

    def loss_fn(batch: Any) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    probe = svag.NoiseProbe(model, optimizer, batch_size=16, population=130)

    def train() -> None:
        for _ in range(epochs):
            for batch in batches:
                optimizer.zero_grad()
                probe.backward(loss_fn, batch, parts=4)
                optimizer.step()
                schedule.step()

    with pytest.warns(UserWarning, match=" 2 examples"):  # 130 is 8 × 16 + 2
        train()
    found = probe.price_list()
    rule = found.linear
    assert (len(probe.readings), rule.basis, rule.rule, rule.proved) == (160, "momentum", "linear", False)
    assert found.usable
    assert found.prices([32])[0].settings.startswith("× ")  # a factor, as the rate varied
