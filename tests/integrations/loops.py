"""What the tests of the integrations share: a small regression, as a plain loop with a NoiseProbe and in Lightning."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from svag import GainRule, NoiseProbe, Reading

# The micro-batches of two ranks by turns, four examples each.
SHARES = [list(range(8 * batch + rank, 8 * batch + 8, 2)) for batch in range(6) for rank in range(2)]


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def loader(examples: int = 48, batch_size: int = 4) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(examples, 4, generator=generator, dtype=torch.float64)
    y = x.sum(dim=1, keepdim=True) + torch.randn(examples, 1, generator=generator, dtype=torch.float64)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size)


def examples(count: int = 48) -> list[dict[str, Tensor]]:
    """The same data as the rows of a Hugging Face Trainer."""
    return [{"x": x[0], "labels": y[0]} for x, y in loader(count, 1)]


def mse(model: nn.Module, batch: list[Tensor]) -> Tensor:
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def plain_loop(
    micro_batches: int,
    *,
    epochs: int = 2,
    batches: DataLoader[Any] | None = None,
    clip: float | None = None,
    clip_first: bool = False,
) -> tuple[nn.Module, Sequence[Reading]]:
    """The same training without a framework; what an epoch cuts short is stepped and not measured."""
    model, batches = net(), batches or loader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    probe = NoiseProbe(model, optimizer, batch_size=4 * micro_batches, population=48)
    step = 0
    for _ in range(epochs):
        left = list(batches)
        while left:
            taken, left = left[:micro_batches], left[micro_batches:]
            optimizer.zero_grad()
            for batch in taken:
                (mse(model, batch) / micro_batches).backward()
                if clip_first and clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), clip)
                probe.micro_batch()
            if len(taken) == micro_batches:
                probe.close_step(step=step)
            else:
                probe.skip_step()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            step += 1
    return model, probe.readings


class Module(lightning.LightningModule):
    """The same regression; with `micro_batches`, optimized by hand."""

    def __init__(self, micro_batches: int | None = None) -> None:
        super().__init__()
        self.net = net()
        self.automatic_optimization = micro_batches is None
        self.micro_batches = micro_batches or 1
        self.losses: list[float] = []

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = mse(self.net, batch) / self.micro_batches
        self.losses.append(float(loss.detach()))
        self.log("loss", loss)
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            self.manual_backward(loss)
            if (batch_idx + 1) % self.micro_batches == 0:
                optimizer.step()
                optimizer.zero_grad()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, weight_decay=0.01)


class Decaying(Module):
    """The rate decays at every step, or at every epoch, of the baseline."""

    def __init__(self, **schedule: Any) -> None:
        super().__init__()
        self.schedule = {"interval": "step"} | schedule

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, **self.schedule}}


def trainer(*callbacks: Any, epochs: int | None = 2, **options: Any) -> Any:
    quiet = {"logger": False, "enable_checkpointing": False} | options
    return lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=list(callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        **{"devices": 1, **quiet},
    )


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@dataclass(frozen=True)
class GainedRun:
    """What a plain loop with a GainRule ends with."""

    model: nn.Module
    gains: list[float]
    rates: list[float]
    time: float


def gained_loop(
    *,
    base: int,
    base_steps: int,
    micro_batches: int = 1,
    size: int = 16,
    epoch: int = 1,
    every: int = 1,
    examples: int = 48,
    accumulated: bool = True,
    batches: DataLoader[Any] | None = None,
) -> GainedRun:
    """Train by the gain rule without a framework; the rate decays at multiples of `epoch` baseline steps."""
    model, batches = net(), batches or loader(examples, size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
    probe = NoiseProbe(model, optimizer, batch_size=size * micro_batches, population=examples, every=every)
    rule = GainRule(probe, base, base_steps)
    gains, rates = [], []
    while not rule.done:
        left = list(batches)
        while left and not rule.done:
            taken, left = left[:micro_batches], left[micro_batches:]
            optimizer.zero_grad()
            if accumulated:
                for batch in taken:
                    (mse(model, batch) / micro_batches).backward()
                    probe.micro_batch()
                probe.close_step()
            else:
                probe.backward(lambda batch: mse(model, batch), taken[0])
            optimizer.step()
            for _ in range(rule.passed(epoch)):
                scheduler.step()
            gains.append(rule.gain or 0.0)
            rates.append(optimizer.param_groups[0]["lr"])
    return GainedRun(model, gains, rates, rule.time)
