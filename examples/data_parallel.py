"""The same question under DistributedDataParallel: the ranks are the parts, and one call is added.

torchrun --nproc-per-node 2 examples/data_parallel.py [STEPS]
"""

import sys

import torch
import torch.distributed as dist

# Imported while a group is open, as by the first optimizer, it keeps that group for good, whose threads may then abort
# the process at its end.
import torch.distributed.nn.functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import svag

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
BATCH = 32  # examples of one step, over all ranks


def main() -> None:
    """Train on every rank, predict on the first."""
    dist.init_process_group("gloo")
    readings = train(dist.get_rank(), dist.get_world_size())
    # The wrapped model is gone by now. Where it outlives the group, torch now and then waits for ever at the end.
    dist.destroy_process_group()
    if readings:
        print(svag.price_list(readings, window=(0.5, 1.0)))


def train(rank: int, ranks: int) -> list[svag.Reading]:
    """Return the readings of all ranks together, on the first of them."""
    torch.manual_seed(0)  # the same data and weights everywhere
    torch.set_num_threads(1)
    x = torch.randn(2000, 20)
    y = (x[:, :3].sum(dim=1) + torch.randn(2000) > 0).long()
    module = nn.Sequential(
        nn.Linear(20, 32, bias=False),
        nn.LayerNorm(32, eps=1e-12, elementwise_affine=False),
        nn.ReLU(),
        nn.Linear(32, 2).requires_grad_(False),
    )
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, weight_decay=2e-3)
    probe = svag.NoiseProbe(model, optimizer, batch_size=BATCH, population=len(x))  # the wrapped model
    for _ in range(STEPS):
        mine = torch.randperm(len(x))[:BATCH].chunk(ranks)[rank]  # the same draw everywhere, another part of it
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[mine]), y[mine]).backward()
        probe.close_step()  # before optimizer.step()
        optimizer.step()
    return list(probe.readings) if rank == 0 else []


if __name__ == "__main__":
    main()
