"""Train at 8 times the batch and end where the small batch ended: one callback in Lightning.

python examples/integrations/lightning_gain.py [STEPS]
"""

import logging
import sys
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from svag.integrations.lightning import GainCallback

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
SMALL, LARGE = 16, 128
torch.manual_seed(0)
X = torch.randn(4000, 20)
Y = (X @ torch.randn(20, 4) + torch.randn(4000, 4)).argmax(dim=1)


class Classifier(lightning.LightningModule):
    """A small network with the optimizer and the schedule of the small batch."""

    def __init__(self) -> None:
        """With one hidden layer."""
        super().__init__()
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))

    def training_step(self, batch: list[Tensor]) -> Tensor:
        """The mean loss of a batch."""
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        """SGD with a cosine over the steps of the small batch."""
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def fit(batch_size: int, **options: Any) -> None:
    """Train and print the final training loss."""
    module = Classifier()
    trainer = lightning.Trainer(
        max_steps=STEPS,  # of the small batch
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )
    trainer.fit(module, DataLoader(TensorDataset(X, Y), batch_size=batch_size, shuffle=True))
    with torch.no_grad():
        loss = module.training_step([X, Y])
    print(f"training loss {loss:.3f} after {trainer.global_step} steps")


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    fit(SMALL)
    fit(LARGE // 4, accumulate_grad_batches=4, callbacks=[GainCallback(base_batch_size=SMALL)])
