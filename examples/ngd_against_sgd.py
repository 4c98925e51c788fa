"""Noisy gradient descent against SGD: the same mean and covariance in every step, but Gaussian noise."""

import math

import torch
from torch import Tensor, nn

import svag

N, BATCH, STEPS = 256, 8, 150


def final_loss(batch_size: float, noisy: bool, seed: int = 0) -> float:
    """Train a small network by SGD, by NGD with the covariance of `batch_size`, or by gradient descent (infinite)."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(N, 4, generator=generator)
    y = x[:, 0] * x[:, 1] + 0.3 * torch.randn(N, generator=generator)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def losses_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        output: Tensor = model(batch[0])
        return (output.squeeze(1) - batch[1]).square()

    generator = torch.Generator().manual_seed(seed)
    if noisy:
        chunks = [(x[:128], y[:128]), (x[128:], y[128:])]
        ngd = svag.NoisyGD(model, optimizer, batch_size=batch_size, dataset_size=N, generator=generator)
        for _ in range(STEPS):
            ngd.step(losses_fn, chunks)
    else:
        sampler = svag.BatchSampler(N, int(batch_size), generator=generator)
        for _, batch in zip(range(STEPS), sampler, strict=False):
            optimizer.zero_grad()
            torch.autograd.backward(losses_fn((x[batch], y[batch])).mean())
            optimizer.step()
    with torch.no_grad():
        return losses_fn((x, y)).mean().item()


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"training loss after {STEPS} steps (gap: non-Gaussianity alone, eq:noise_decomposition)")
    for name, batch_size, noisy in (("SGD", BATCH, False), ("NGD", BATCH, True), ("GD", math.inf, True)):
        losses = torch.tensor([final_loss(batch_size, noisy, seed) for seed in range(4)])
        print(f"  {name:4}{losses.mean():.4f} ± {losses.std() / 2:.4f}   (4 seeds)")
