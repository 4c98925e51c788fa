"""How far can the batch grow? SVAG's pairs measure G and N on the way, and the prediction needs nothing else.

With ell=1 and split=2 a step is one of SGD whose batch comes in two independent halves: the certificate is about SGD.
"""

import torch
from torch import Tensor, nn

import svag

N, BATCH, STEPS, SETTLING = 512, 8, 1000, 200


class Normalised(nn.Module):
    """A network whose loss does not change with the scale of its trained weights, as the theorem asks."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32, bias=False)
        self.norm = nn.LayerNorm(32, eps=1e-12, elementwise_affine=False)
        self.last = nn.Linear(32, 1).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Evaluate the network."""
        output: Tensor = self.last(torch.tanh(self.norm(self.first(x))))
        return output.squeeze(1)


def main() -> None:
    """Train, collect a reading from every step, predict from those at equilibrium."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(N, 8)
    y = torch.sign(x[:, 0]) + 0.5 * torch.randn(N)
    model = Normalised()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5, weight_decay=0.05)

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.mse_loss(model(batch[0]), batch[1])

    sampler = svag.BatchSampler(N, BATCH // 2, sampling="with_replacement", generator=torch.Generator().manual_seed(1))
    pairs = svag.independent_pairs((x[batch], y[batch]) for batch in sampler)
    with svag.SVAG(model, optimizer, ell=1, split=2, track_noise=True) as sim:
        for _ in range(STEPS):
            sim.step(loss_fn, pairs)
    found = svag.price_list(sim.noise, window=(SETTLING, STEPS))
    print(sim)
    print(found)


if __name__ == "__main__":
    main()
