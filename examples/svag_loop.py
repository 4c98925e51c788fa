"""SVAG in a plain training loop with a scheduler: the three lines that differ from SGD are marked."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import svag


def final_loss(ell: int, seed: int = 0, steps: int = 150) -> float:
    """Train a small network for `steps` effective steps; ell=1 is SGD."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(512, 8, generator=generator)
    y = torch.sin(3 * x[:, :1]) + 0.5 * torch.randn(512, 1, generator=generator)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, weight_decay=1e-3)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [100])

    def loss_fn(batch: list[Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    sampler = svag.BatchSampler(512, 16, generator=torch.Generator().manual_seed(seed))
    loader = DataLoader(TensorDataset(x, y), batch_sampler=sampler)
    pairs = svag.independent_pairs(loader)  # batches, two by two
    with svag.SVAG(model, optimizer, ell=ell) as sim:  # around your own optimizer
        for _ in range(steps):
            sim.step(loss_fn, pairs)  # instead of zero_grad, backward, optimizer.step
            scheduler.step()
    with torch.no_grad():
        return loss_fn([x, y]).item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print("training loss after 150 effective steps; towards the SDE as ell grows")
    for ell in (1, 4):
        losses = torch.tensor([final_loss(ell, seed) for seed in range(3)])
        print(f"  ell = {ell}   {losses.mean():.4f} ± {losses.std() / 3**0.5:.4f}   (3 seeds)")
