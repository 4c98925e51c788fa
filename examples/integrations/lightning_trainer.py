"""How far can this run's batch grow? In Lightning one callback is added.

python examples/integrations/lightning_trainer.py [EPOCHS]
"""

import sys

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from svag.integrations.lightning import NoiseCallback

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 100


class Classifier(lightning.LightningModule):
    """A small network."""

    def __init__(self) -> None:
        """With one hidden layer."""
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """The mean loss of a batch."""
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1, weight_decay=1e-2)


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(2000, 20)
    y = (x[:, :3].sum(dim=1) + torch.randn(2000) > 0).long()
    noise = NoiseCallback(every=1)  # a short fit: measure every step, whatever it costs
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", accumulate_grad_batches=4, callbacks=[noise], logger=False
    )
    trainer.fit(Classifier(), DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True))
    print(f"{len(noise.readings)} readings, the last one: {noise.readings[-1]}")
