"""What would a larger batch cost? A small network on the embedded images, 20 seconds on one core.

python examples/price_list.py [STEPS]
"""

import sys

import torch
from torch import Tensor, nn

import svag
import svag.lab
from svag.lab.data.load import load_data

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
BATCH = 32


def main() -> None:
    """Train as usual with a probe in the loop, then print the price list, first in data and then in time."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = load_data("fashion-small")  # 10,000 images of 14×14
    model = nn.Sequential(nn.Flatten(), nn.Linear(196, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_fn(batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(model(images), labels)

    probe = svag.NoiseProbe(model, optimizer, batch_size=BATCH, population=len(data.train_x))
    for _ in range(STEPS):
        batch = data.batch(torch.randperm(len(data.train_x))[:BATCH])
        optimizer.zero_grad()
        probe.backward(loss_fn, batch, parts=4)  # instead of loss_fn(batch).backward()
        optimizer.step()

    found = probe.price_list()
    print(found)
    sizes = [BATCH * 2**k for k in range(6)]
    speeds = svag.measure_throughput(model, optimizer, loss_fn, batch, sizes)
    print(f"\nWith the speed of a training step on this machine:\n{found.prices(throughput=speeds)}")


if __name__ == "__main__":
    main()
