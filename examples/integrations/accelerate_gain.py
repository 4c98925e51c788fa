"""Train at 8 times the batch and end where the small batch ended, in a loop of Accelerate: four lines are added.

python examples/integrations/accelerate_gain.py [STEPS]
"""

import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import svag

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
SMALL, MICRO_BATCHES, MICRO_BATCH_SIZE = 16, 4, 32


def main() -> None:
    """Train on noisy labels with the optimizer and the schedule of the small batch."""
    torch.manual_seed(0)
    x = torch.randn(4096, 20)
    y = (x @ torch.randn(20, 4) + torch.randn(4096, 4)).argmax(dim=1)
    loader = DataLoader(TensorDataset(x, y), batch_size=MICRO_BATCH_SIZE, shuffle=True)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)  # not prepared: the rule steps it
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=MICRO_BATCHES)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    size = MICRO_BATCHES * MICRO_BATCH_SIZE * accelerator.num_processes
    probe = svag.NoiseProbe(model, optimizer, batch_size=size, population=len(x))
    rule = svag.GainRule(probe, base_batch_size=SMALL, base_steps=STEPS)
    while not rule.done:
        for inputs, labels in loader:
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(inputs), labels))
                probe.micro_batch(accelerator.scaler.get_scale() if accelerator.scaler else 1.0)
                if accelerator.sync_gradients:
                    probe.close_step()
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()  # at the settings of the rule
                optimizer.zero_grad()
            for _ in range(rule.due if accelerator.sync_gradients else 0):
                scheduler.step()
            if rule.done:
                break
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(x), y)
    accelerator.print(f"training loss {loss:.3f} after {len(probe.readings)} steps, {rule.price:.2f}× the examples")


if __name__ == "__main__":
    main()
