"""The question of the batch in a loop of Accelerate that accumulates gradients and clips them: three lines are added.

python examples/integrations/accelerate_loop.py [EPOCHS]
"""

import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import svag

EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 60
MICRO_BATCHES, MICRO_BATCH_SIZE = 4, 8


def main() -> None:
    """Train on noisy labels, predict."""
    torch.manual_seed(0)
    x = torch.randn(1600, 20)
    y = (x[:, :3].sum(dim=1) + torch.randn(1600) > 0).long()
    loader = DataLoader(TensorDataset(x, y), batch_size=MICRO_BATCH_SIZE, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=MICRO_BATCHES)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    size = MICRO_BATCHES * MICRO_BATCH_SIZE * accelerator.num_processes
    probe = svag.NoiseProbe(model, optimizer, batch_size=size, population=len(x))  # the optimizer as prepared
    for _ in range(EPOCHS):
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                probe.micro_batch(accelerator.scaler.get_scale() if accelerator.scaler else 1.0)  # after each backward
                if accelerator.sync_gradients:
                    probe.close_step()  # before clipping and the step
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    accelerator.print(probe.price_list())


if __name__ == "__main__":
    main()
