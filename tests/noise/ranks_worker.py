"""One of two gloo processes: trains, measures, tries what must be refused, and writes down what it saw."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from tests.noise.nets import Pair, batches, data, loss_of, net
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from svag import NoiseProbe, Reading, measure_noise
from svag.noise.batches import split

STEPS, BATCH = 3, 16


def train(rank: int, model: nn.Module, parts: int, style: str, parameters_of: nn.Module | None = None) -> list[Reading]:
    """Each rank sees its half of every batch, whole or accumulated in parts."""
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.5)
    chosen = None if parameters_of is None else [p for p in parameters_of.parameters() if p.ndim > 1]
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, population=1000, parameters=chosen)
    for batch in batches(STEPS, BATCH):
        optimizer.zero_grad()
        mine = split(batch, 2)[rank]
        if style == "backward":
            probe.backward(loss_of(model), mine, parts=parts)
        else:
            accumulate(model, mine, parts)
            probe.micro_batch(scale=8.0)
            probe.close_step()
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad /= 8.0
        optimizer.step()
    return probe.readings


def accumulate(model: nn.Module, batch: Pair, parts: int) -> None:
    assert isinstance(model, DistributedDataParallel)
    *early, last = split(batch, parts)
    for piece in early:
        with model.no_sync():
            (8.0 * loss_of(model)(piece) / parts).backward()
    (8.0 * loss_of(model)(last) / parts).backward()


def refusals(rank: int) -> dict[str, str]:
    said = {}

    def sentence(name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except (RuntimeError, TypeError, ValueError) as error:
            said[name] = str(error)

    hooked = DistributedDataParallel(net())
    hooked.register_comm_hook(None, fp16_compress_hook)
    sentence("hook", lambda: NoiseProbe(hooked, SGD(hooked.parameters()), batch_size=BATCH))
    model = DistributedDataParallel(net())
    probe = NoiseProbe(model, SGD(model.parameters(), lr=0.1), batch_size=BATCH)
    mine = split(data(BATCH), 2)[rank]
    sentence("size", lambda: probe.backward(loss_of(model), data(BATCH)))
    with model.no_sync():
        loss_of(model)(mine).backward()
    sentence("never", probe.close_step)
    model.zero_grad()
    for _ in range(2):
        loss_of(model)(mine).backward()
    sentence("twice", probe.close_step)
    for _ in range(3):  # steps that nobody closes do no harm
        model.zero_grad()
        loss_of(model)(mine).backward()
    probe.close_step()
    measure_noise(model, loss_of(model), batches(2, 4))  # a frozen reading on each rank, without synchronisation
    sentence("second", lambda: NoiseProbe(model, SGD(model.parameters()), batch_size=BATCH))
    probe.close()
    sentence("closed", probe.close_step)
    model.zero_grad()
    loss_of(model)(mine).backward()
    said["readings"] = "\n".join(json.dumps(reading.to_dict()) for reading in probe.readings)
    return said


def after_a_frozen_reading(rank: int) -> list[float]:
    """Running means after a step on each rank's own data, a frozen reading, and a forward pass on the same data."""
    model = DistributedDataParallel(net("batch"))
    loss_of(model)(split(data(BATCH), 2)[rank]).backward()
    measure_noise(model, loss_of(model), batches(2, 4, seed=rank))
    model(data(BATCH)[0])  # rank 0 sends its buffers first, as it does in every step
    means: list[float] = model.module[1].running_mean.tolist()
    return means


def worker(rank: int, port: int, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        buffers = after_a_frozen_reading(rank)
        plain = net()
        results = {
            style: [r.to_dict() for r in train(rank, DistributedDataParallel(net()), parts, style.split()[0])]
            for style, parts in [("backward", 1), ("accumulate", 4), ("backward parts", 2)]
        }
        wrapped = DistributedDataParallel(plain, gradient_as_bucket_view=True, bucket_cap_mb=1e-4)
        results["parameters"] = [r.to_dict() for r in train(rank, wrapped, 1, "backward", parameters_of=plain)]
        normed = [train(rank, DistributedDataParallel(net("batch")), parts, "backward")[0] for parts in (1, 2)]
        results["batch norm"] = [r.to_dict() for r in normed]
        found = {"results": results, "refusals": refusals(rank), "buffers": buffers}
        Path(out, f"{rank}.json").write_text(json.dumps(found))
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    worker(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
