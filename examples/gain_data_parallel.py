"""From one process at batch 32 to several, 32 on each, by the gain rule: the ranks are the parts of a step.

torchrun --nproc-per-node 8 examples/gain_data_parallel.py [STEPS]
"""

import sys

import torch
import torch.distributed as dist

# Imported while a group is open, as by the first optimizer, it keeps that group for good, whose threads may then abort
# the process at its end.
import torch.distributed.nn.functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import svag

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 3000  # of the single process
BATCH = 32  # of one process


def train(ranks: int) -> str:
    """Train with the settings of the single process, and say how that went."""
    torch.manual_seed(0)  # the same data and weights everywhere
    torch.set_num_threads(1)
    x = torch.randn(4096, 20)
    y = (x @ torch.randn(20, 4) + torch.randn(4096, 4)).argmax(dim=1)
    module = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4))
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    data = TensorDataset(x, y)
    sampler: DistributedSampler[object] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, drop_last=True)
    probe = svag.NoiseProbe(model, optimizer, batch_size=ranks * BATCH, population=len(x))
    rule = svag.GainRule(probe, base_batch_size=BATCH, base_steps=STEPS)
    while not rule.done:
        sampler.set_epoch(sampler.epoch + 1)
        for inputs, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            probe.close_step()
            optimizer.step()
            for _ in range(rule.due):
                scheduler.step()
            if rule.done:
                break
    loss = nn.functional.cross_entropy(module(x), y)
    return f"training loss {loss:.3f} after {len(probe.readings)} steps, {rule.price:.2f}× the examples"


if __name__ == "__main__":
    dist.init_process_group("gloo")
    found, rank = train(dist.get_world_size()), dist.get_rank()
    dist.destroy_process_group()
    if rank == 0:
        print(found)
