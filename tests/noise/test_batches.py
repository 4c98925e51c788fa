from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from tests.noise.nets import data, loss_of, net, sgd
from torch import Tensor

import svag
from svag.noise.batches import batch_size_of, mean_loss, split


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


def test_nested_batches_are_cut_alike_without_copying() -> None:
    x, y = torch.arange(8.0).reshape(4, 2), torch.arange(4)
    batch: Any = {"inputs": [x, Pair(x, y)], "scale": 2.0, "weight": torch.tensor(3.0), "none": None}
    first, second = split(batch, 2)
    assert first["inputs"][0].data_ptr() == x.data_ptr()
    assert isinstance(second["inputs"][1], Pair)
    assert torch.equal(second["inputs"][1].y, torch.tensor([2, 3]))
    assert second["scale"] == 2.0
    assert torch.equal(second["weight"], torch.tensor(3.0))


def test_the_parts_are_the_batch_in_order() -> None:
    x = torch.randn(12, 3)
    assert torch.equal(torch.cat(split(x, 4)), x)


def test_size_is_the_leading_dimension_of_the_first_tensor() -> None:
    assert batch_size_of((torch.tensor(1.0), torch.zeros(5, 2), torch.zeros(7))) == 5


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_loss_of_one_number_is_a_scalar_with_its_gradient(shape: tuple[int, ...]) -> None:
    x = torch.tensor(3.0, requires_grad=True)
    loss = mean_loss(lambda batch: (batch.mean() * x**2).reshape(shape), torch.full((4,), 2.0))
    loss.backward()
    assert (loss.shape, loss.item()) == ((), 18.0)
    assert x.grad == 12.0


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"^parts\b.* 10 .* 4 "):
        split(torch.zeros(10), 4)
    with pytest.raises(ValueError, match=r"^parts\b"):
        split(torch.zeros(10), 0)
    with pytest.raises(ValueError, match="0 examples"):
        batch_size_of(torch.zeros(0, 3))
    with pytest.raises(TypeError, match=r"\btensor\b.*got str"):
        batch_size_of("text")
    with pytest.raises(ValueError, match=r" 3 .* 4\b"):
        split((torch.zeros(4), torch.zeros(3)), 2)
    with pytest.raises(TypeError, match=r"\bset\b"):
        split((torch.zeros(4), {1}), 2)


def swapped() -> dict[str, Callable[[Any, Any, Any], object]]:
    batch: Any = data(4)
    several: Any = [batch, data(4, 2)]
    return {
        "measure_noise": lambda model, _, loss: svag.measure_noise(model, several, loss),
        "compare": lambda model, optimizer, loss: svag.NoiseProbe(model, optimizer, batch_size=4).compare(
            several, loss
        ),
        "throughput": lambda model, optimizer, loss: svag.measure_throughput(model, optimizer, batch, loss, [2]),
        "invariance": lambda model, _, loss: svag.scale_invariance_error(model, batch, loss),
        "step": lambda model, optimizer, loss: svag.SVAG(model, optimizer, ell=2).__enter__().step(iter(several), loss),
        "substep": lambda model, optimizer, loss: (
            svag.SVAG(model, optimizer, ell=2).__enter__().substep(batch, loss, batch)
        ),
        "noisy gd": lambda model, optimizer, loss: svag.NoisyGD(
            model, optimizer, batch_size=2, dataset_size=4, generator=torch.Generator()
        ).step(several, loss),
    }


@pytest.mark.parametrize("where", swapped())
def test_a_loss_and_a_batch_in_the_wrong_order_are_noticed_everywhere(where: str) -> None:
    model = net()
    with pytest.raises(TypeError, match="swap the two"):
        swapped()[where](model, sgd(model), loss_of(model))
