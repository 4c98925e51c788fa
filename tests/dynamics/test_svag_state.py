"""A run continued from its state is the run that was never interrupted, bit for bit."""

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import svag

Batch = list[Tensor]


class Run:
    """Everything a training script holds."""

    def __init__(self, momentum_limit: Any, sampling: Any = "without_replacement") -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
        momentum = 0.9 if momentum_limit else 0.0
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=momentum, weight_decay=1e-3)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.8)
        x = torch.randn(40, 3)
        self.sampler = svag.BatchSampler(40, 8, sampling=sampling, generator=torch.Generator().manual_seed(5))
        loader = DataLoader(TensorDataset(x, x.sum(1)), batch_sampler=self.sampler)
        self.pairs = svag.independent_pairs(loader, allow_shuffle=True)
        self.sim = svag.SVAG(self.model, self.optimizer, ell=3, momentum_limit=momentum_limit)
        self.losses: list[float] = []

    def loss_fn(self, batch: Batch) -> Tensor:
        output: Tensor = self.model(batch[0])
        return (output.squeeze(1) - batch[1]).square().mean()

    def substeps(self, count: int) -> None:
        with self.sim:
            for _ in range(count):
                first, second = next(self.pairs)
                self.losses.append(self.sim.substep(self.loss_fn, first, second).item())
                if self.sim.boundary:
                    self.scheduler.step()

    @property
    def parts(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "sampler": self.sampler,
            "sim": self.sim,
        }


@pytest.mark.parametrize("momentum_limit", [None, "underdamped", "overdamped"])
@pytest.mark.parametrize("interrupted_after", [0, 4, 6])
def test_a_continued_run_is_bit_identical(momentum_limit: Any, interrupted_after: int) -> None:
    whole = Run(momentum_limit)
    whole.substeps(11)

    early = Run(momentum_limit)
    early.substeps(interrupted_after)
    file = io.BytesIO()
    torch.save({name: part.state_dict() for name, part in early.parts.items()}, file)
    file.seek(0)
    late = Run(momentum_limit)
    for name, state in torch.load(file, weights_only=True).items():
        late.parts[name].load_state_dict(state)
    late.substeps(11 - interrupted_after)

    assert early.losses + late.losses == whole.losses
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, late.model.state_dict()[name]), name
    assert (late.sim.effective_step, late.sim.time) == (whole.sim.effective_step, whole.sim.time)
    assert str(late.sim) == f"SVAG(ell=3, split=1, effective_step=3, time={whole.sim.time:g})"


def test_the_rate_held_in_the_middle_of_an_effective_step_is_saved() -> None:
    run = Run(None)
    run.substeps(1)
    other = Run(None)
    other.sim.load_state_dict(run.sim.state_dict())
    other.optimizer.param_groups[0]["lr"] = 123.0
    other.substeps(2)
    assert other.sim.time == 0.1


def test_a_state_of_another_kind_of_run_is_refused() -> None:
    run = Run(None)
    other = svag.SVAG(run.model, run.optimizer, ell=4)
    with pytest.raises(ValueError, match=r"ell=3.*ell=4"):
        other.load_state_dict(run.sim.state_dict())
