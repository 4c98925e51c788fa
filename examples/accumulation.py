"""The same question in a loop that accumulates gradients and clips them: two calls are added, nothing else changes.

python examples/accumulation.py [STEPS]
"""

import sys
from typing import Any

import torch
from torch import nn

import svag

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
MICRO_BATCHES, MICRO_BATCH_SIZE = 4, 8


def main() -> None:
    """Train a network with LayerNorm on noisy labels, measure only the weights that decay, predict."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(2000, 20)
    y = (x[:, :3].sum(dim=1) + torch.randn(2000) > 0).long()
    model = nn.Sequential(nn.Linear(20, 32, bias=False), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 2))
    decayed, *rest = model.parameters()
    groups: list[dict[str, Any]] = [{"params": [decayed], "weight_decay": 2e-3}, {"params": rest}]
    optimizer = torch.optim.SGD(groups, lr=0.5)
    probe = svag.NoiseProbe(
        model, optimizer, batch_size=MICRO_BATCHES * MICRO_BATCH_SIZE, population=len(x), parameters=[decayed]
    )
    for _ in range(STEPS):
        optimizer.zero_grad()
        chosen = torch.randperm(len(x))[: MICRO_BATCHES * MICRO_BATCH_SIZE]
        for part in chosen.split(MICRO_BATCH_SIZE):
            loss = nn.functional.cross_entropy(model(x[part]), y[part])
            (loss / MICRO_BATCHES).backward()
            probe.micro_batch()  # after each backward
        probe.close_step()  # before clipping and the step
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
    print(probe.price_list(window=(0.5, 1.0)))


if __name__ == "__main__":
    main()
