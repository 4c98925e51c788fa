"""SVAG under Lightning's manual optimization: one sub-step for each pair of batches.

python examples/integrations/lightning_svag.py [STEPS]
"""

import sys
from typing import Any

import lightning
import torch
from lightning.pytorch.utilities import CombinedLoader
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import svag

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 150


class Regression(lightning.LightningModule):
    """A small network, trained by SVAG."""

    def __init__(self) -> None:
        """Turn automatic optimization off: SVAG steps the optimizer."""
        super().__init__()
        self.automatic_optimization = False
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.2, weight_decay=1e-3)

    def configure_optimizers(self) -> Any:
        """The optimizer of SGD: SVAG refines its settings itself."""
        return [self.optimizer], [torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [2 * STEPS // 3])]

    def loss(self, batch: list[Tensor]) -> Tensor:
        """The mean loss of a batch."""
        return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def training_step(self, pair: list[list[Tensor]]) -> None:
        """One sub-step, from two independent batches."""
        self.log("loss", self.sim.substep(self.loss, *pair))
        if self.sim.boundary:  # an effective step has ended
            self.lr_schedulers().step()


def main(ell: int) -> None:
    """Train for STEPS effective steps; ell=1 is SGD."""
    torch.manual_seed(0)
    x = torch.randn(512, 8)
    data = TensorDataset(x, torch.sin(3 * x[:, :1]) + 0.5 * torch.randn(512, 1))
    samplers = [svag.BatchSampler(512, 16, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    pairs = CombinedLoader([DataLoader(data, batch_sampler=sampler) for sampler in samplers], "min_size")
    module = Regression()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=1, limit_train_batches=ell * STEPS, logger=False, enable_checkpointing=False
    )
    with svag.SVAG(module, module.optimizer, ell=ell) as module.sim:
        trainer.fit(module, pairs)
    final = module.loss([*data.tensors]).item()
    print(f"ell = {ell}   training loss after {module.sim.effective_step} effective steps: {final:.4f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for ell in (1, 4):
        main(ell)
