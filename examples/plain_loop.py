"""How far can this run's batch grow? Measured while it trains: one line of the loop changes.

python examples/plain_loop.py [STEPS]
"""

import sys

import torch
from torch import Tensor, nn

import svag

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
BATCH, LR, WEIGHT_DECAY = 32, 0.5, 2e-3


class Standardise(nn.Module):
    """Normalise without parameters, so that the network is scale invariant."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x with mean 0 and variance 1 along its last dimension."""
        return nn.functional.layer_norm(x, x.shape[1:], eps=1e-12)


def main() -> None:
    """Train on noisy labels, predict."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(2000, 20)
    y = (x[:, :3].sum(dim=1) + torch.randn(2000) > 0).long()
    head = nn.Linear(32, 2).requires_grad_(False)
    model = nn.Sequential(nn.Linear(20, 32, bias=False), Standardise(), nn.ReLU(), head)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(model(inputs), labels)

    print(f"scale invariance error: {svag.scale_invariance_error(model, loss_fn, (x, y)):.1e}")
    probe = svag.NoiseProbe(model, optimizer, batch_size=BATCH, population=len(x))
    for _ in range(STEPS):
        chosen = torch.randperm(len(x))[:BATCH]
        optimizer.zero_grad()
        probe.backward(loss_fn, (x[chosen], y[chosen]), parts=4)  # instead of loss_fn(…).backward()
        optimizer.step()

    found = probe.price_list(window=(0.5, 1.0))
    print(found)
    print(found.linear)
    print("a batch of 1024 by linear scaling is", "ruled out" if found.linear.ruled_out(1024) else "not ruled out")


if __name__ == "__main__":
    main()
