"""The question of the batch under FSDP2: micro-batches of a sharded model are the parts.

python -m torch.distributed.run --standalone --nproc-per-node 2 examples/integrations/fsdp2_loop.py [STEPS]
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import svag

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
MICRO_BATCHES, MICRO_BATCH_SIZE = 4, 4


def main() -> None:
    """Train on noisy labels, predict."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(2000, 20)
    y = (x[:, :3].sum(dim=1) + torch.randn(2000) > 0).long()
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    size = MICRO_BATCHES * MICRO_BATCH_SIZE * dist.get_world_size()
    probe = svag.NoiseProbe(model, optimizer, batch_size=size, population=len(x))  # after fully_shard
    for _ in range(STEPS):
        mine = torch.randperm(len(x))[:size].chunk(dist.get_world_size())[dist.get_rank()]
        optimizer.zero_grad()
        for part in mine.split(MICRO_BATCH_SIZE):
            (nn.functional.cross_entropy(model(x[part]), y[part]) / MICRO_BATCHES).backward()
            probe.micro_batch()  # gradients are reduced after each backward, as by default
        probe.close_step()  # before clipping and the step
        optimizer.step()
    if dist.get_rank() == 0:
        print(probe.price_list())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
