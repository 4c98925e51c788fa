"""SVAG under Accelerate: the optimizer as prepared, and pairs of batches from the prepared loader.

python examples/integrations/accelerate_svag.py [STEPS]
"""

import sys

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import svag

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 150


def final_loss(ell: int) -> float:
    """Train a small network for STEPS effective steps; ell=1 is SGD."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(512, 8, generator=generator)
    y = torch.sin(3 * x[:, :1]) + 0.5 * torch.randn(512, 1, generator=generator)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, weight_decay=1e-3)
    sampler = svag.BatchSampler(512, 16, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(TensorDataset(x, y), batch_sampler=sampler)
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    def loss_fn(batch: list[Tensor]) -> Tensor:
        with accelerator.autocast():
            return nn.functional.mse_loss(model(batch[0]), batch[1])

    pairs = svag.independent_pairs(loader)  # batches, two by two
    with svag.SVAG(model, optimizer, ell=ell) as sim:  # it looks through the wrapper of the optimizer
        for _ in range(STEPS):
            sim.step(loss_fn, pairs)  # instead of backward, optimizer.step and zero_grad
    with torch.no_grad():
        return loss_fn([x, y]).item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for ell in (1, 4):
        print(f"ell = {ell}   training loss after {STEPS} effective steps: {final_loss(ell):.4f}")
