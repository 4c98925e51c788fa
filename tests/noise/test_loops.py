"""What people put into a training loop: each row trains the same weights with a probe as without, and reads right.

The rows are those of the table in docs/integrations.md.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.noise.nets import Pair, batches, loss_of, net
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adafactor, AdamW, Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.checkpoint import checkpoint

from svag import NoiseProbe, price_list
from svag.noise.batches import split
from svag.prices.reasons import Code

PAGE = Path(__file__).parents[2] / "docs/integrations.md"
PARTS, SIZE = 4, 16


@dataclass
class Loop:
    """A model in training.

    Attributes:
        model: what the probe is given.
        optimizer: takes the steps.
        loss_fn: mean loss of a batch.
        between: what the loop does between the gradient and the step.
        after: what the loop does after a step.
        watched: further modules whose weights the loop moves.
    """

    model: nn.Module
    optimizer: Optimizer
    loss_fn: Callable[[Pair], Tensor]
    between: Callable[[Pair], None] = lambda batch: None
    after: Callable[[], None] = lambda: None
    watched: list[nn.Module] = field(default_factory=list)


def plain(model: nn.Module, optimizer: Optimizer | None = None) -> Loop:
    return Loop(model, optimizer or SGD(model.parameters(), lr=0.1), loss_of(model))


def compiled() -> Loop:
    model = net("group")
    fast: Any = torch.compile(model, backend="aot_eager")
    return replace(plain(model), model=fast, loss_fn=loss_of(fast))


class Adapter(nn.Module):
    """A frozen layer and a trained product of two thin ones, as LoRA has it."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=base.weight.dtype)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=base.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base(x) + self.up(self.down(x))
        return found


def adapted() -> Loop:
    model = net()
    assert isinstance(model, nn.Sequential)
    for number in (0, 4):
        base = model[number]
        assert isinstance(base, nn.Linear)
        model[number] = Adapter(base)
    return plain(model, AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01))


def averaged() -> Loop:
    model = net("batch")
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    return replace(plain(model), after=lambda: ema.update_parameters(model), watched=[ema])


def sharpness_aware() -> Loop:
    """The gradient of the probe leads to the point whose gradient is stepped with."""
    loop = plain(net())

    def ascend(batch: Pair) -> None:
        moved = [(p.data, 0.05 * p.grad) for p in loop.model.parameters() if p.grad is not None]
        for weights, climb in moved:
            weights.add_(climb)
        loop.optimizer.zero_grad()
        loop.loss_fn(batch).backward()
        for weights, climb in moved:
            weights.sub_(climb)

    return replace(loop, between=ascend)


class Lion(Optimizer):
    """The sign of an average of the gradient."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                average = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p.sub_(average.lerp(p.grad, 0.1).sign(), alpha=group["lr"])
                average.lerp_(p.grad, 0.01)


class AdamW8bit(Optimizer):
    """Stands in for that of bitsandbytes: the same name, settings and kind of state, two averages in whole bytes."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                for name, number in (("state1", p.grad), ("state2", p.grad**2)):
                    scale = number.abs().max().clamp(min=1e-30)
                    self.state[p][name], self.state[p][f"absmax{name[-1]}"] = (
                        (number / scale * 127).to(torch.int8),
                        scale,
                    )
                first, second = (self.state[p][f"state{k}"].to(p) * self.state[p][f"absmax{k}"] / 127 for k in (1, 2))
                p.sub_(first / (second.sqrt() + group["eps"]), alpha=group["lr"])


def autocast() -> Loop:
    model = net("layer", dtype=torch.float32)

    def loss_fn(batch: Pair) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return cross_entropy(model(batch[0].float()), batch[1])

    return replace(plain(model), loss_fn=loss_fn)


def checkpointed() -> Loop:
    model = net(dropout=True)

    def loss_fn(batch: Pair) -> Tensor:
        return cross_entropy(checkpoint(model, batch[0], use_reentrant=False), batch[1])

    return replace(plain(model), loss_fn=loss_fn)


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        make: the loop.
        how: what to write, or to know.
        untested: the price list says that nobody has checked it for this optimizer.
    """

    make: Callable[[], Loop]
    how: str
    untested: bool = False


UNTESTED = "yes; the price list says that its rates are those of plain gradient steps"
ROWS = {
    "`torch.compile`": Row(compiled, "yes; the probe takes the compiled model"),
    "LoRA and other adapters": Row(adapted, "yes; frozen weights are left out"),
    "averages of the weights (EMA)": Row(averaged, "yes; update the average after the step, as before"),
    "SAM": Row(sharpness_aware, "yes; `probe.backward` for the first gradient, a plain backward pass for the second"),
    "Lion": Row(lambda: plain(m := net(), Lion(m.parameters(), lr=0.01)), UNTESTED, untested=True),
    "Adafactor": Row(lambda: plain(m := net(), Adafactor(m.parameters(), lr=0.01)), UNTESTED, untested=True),
    "8-bit Adam": Row(
        lambda: plain(m := net(), AdamW8bit(m.parameters(), lr=0.01)),
        "yes, tried with a stand-in; prices as for Adam, but the second moment is not read",
    ),
    "autocast": Row(autocast, "yes; inside `loss_fn`"),
    "activation checkpointing": Row(checkpointed, "yes, with `use_reentrant=False`"),
}


def trained(make: Callable[[], Loop], probed: bool) -> tuple[list[Tensor], list[Any]]:
    """Three steps in parts, with a probe or by hand; all weights and buffers at the end, and the readings."""
    loop, readings = make(), []
    probe = NoiseProbe(loop.model, loop.optimizer, batch_size=SIZE) if probed else None
    torch.manual_seed(5)
    for batch in batches(3, SIZE):
        loop.optimizer.zero_grad()
        if probe is not None:
            probe.backward(loop.loss_fn, batch, PARTS)
        else:
            for part in split(batch, PARTS):
                (loop.loss_fn(part) / PARTS).backward()
        loop.between(batch)
        loop.optimizer.step()
        loop.after()
    if probe is not None:
        readings = list(probe.readings)
    return [value.clone() for one in (loop.model, *loop.watched) for value in one.state_dict().values()], readings


@pytest.mark.parametrize("name", ROWS)
def test_a_probe_changes_no_bit_of_training_and_reads_the_parts(name: str) -> None:
    row = ROWS[name]
    with_probe, readings = trained(row.make, True)
    without, _ = trained(row.make, False)
    assert all(torch.equal(one, other) for one, other in zip(with_probe, without, strict=True))
    loop, first = row.make(), batches(3, SIZE)[0]
    weights = [p for p in loop.model.parameters() if p.requires_grad]
    torch.manual_seed(5)
    found = [torch.autograd.grad(loop.loss_fn(part), weights) for part in split(first, PARTS)]
    gradients = torch.stack([torch.cat([g.reshape(-1) for g in one]).double() for one in found])
    mean = gradients.mean(dim=0)
    noise = float((gradients - mean).square().sum() / (PARTS - 1) / PARTS)
    exact = 1e-10 if weights[0].dtype == torch.float64 else 1e-5
    assert (readings[0].grad_sq, readings[0].noise_trace) == pytest.approx(
        (float(mean @ mean) - noise, noise), rel=exact
    )
    assert readings[0].lr == loop.optimizer.param_groups[0]["lr"]
    many = [
        replace(one, step=step, grad_sq=2.0 + (step // 3 % 2), noise_trace=4.0)
        for step in range(400)
        for one in readings[:1]
    ]
    codes = {reason.code for reason in price_list(many).reasons}
    assert (Code.UNTESTED_OPTIMIZER in codes) is row.untested


def test_sam_is_not_measured_where_it_climbs() -> None:
    """The negative control: the second gradient, at the point to which the first one leads, reads otherwise."""
    loop, (first, *_) = sharpness_aware(), batches(3, SIZE)
    _, readings = trained(sharpness_aware, True)
    there = copy.deepcopy(loop.model)
    loop.loss_fn(first).backward()
    for moved, parameter in zip(there.parameters(), loop.model.parameters(), strict=True):
        assert parameter.grad is not None
        moved.data.add_(0.05 * parameter.grad)
    probe = NoiseProbe(there, SGD(there.parameters(), lr=0.1), batch_size=SIZE)
    probe.backward(loss_of(there), first, PARTS)
    assert probe.readings[0].grad_sq != pytest.approx(readings[0].grad_sq, rel=1e-3)


def test_the_table_of_the_page_has_these_rows() -> None:
    table = [f"| {name} | {row.how} |" for name, row in ROWS.items()]
    page = PAGE.read_text().splitlines()
    start = page.index(table[0])
    assert page[start : start + len(table) + 1] == [*table, ""]
