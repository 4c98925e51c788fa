"""One of two gloo processes: trains, measures, tries what must be refused, and writes down what it saw."""

import json
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
from tests.noise.nets import Pair, batches, data, loss_of, net
from tests.two_ranks import one_of_two, refusal
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from svag import NoiseProbe, Reading, measure_noise
from svag.noise.batches import split
from svag.noise.group import Group

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
    hooked = DistributedDataParallel(net())
    hooked.register_comm_hook(None, fp16_compress_hook)
    said["hook"] = refusal(lambda: NoiseProbe(hooked, SGD(hooked.parameters()), batch_size=BATCH))
    model = DistributedDataParallel(net())
    probe = NoiseProbe(model, SGD(model.parameters(), lr=0.1), batch_size=BATCH)
    mine = split(data(BATCH), 2)[rank]
    said["size"] = refusal(lambda: probe.backward(loss_of(model), data(BATCH)))
    with model.no_sync():
        loss_of(model)(mine).backward()
    said["never"] = refusal(probe.close_step)
    model.zero_grad()
    for _ in range(2):
        loss_of(model)(mine).backward()
    said["twice"] = refusal(probe.close_step)
    for _ in range(3):  # steps that nobody closes do no harm
        model.zero_grad()
        loss_of(model)(mine).backward()
    probe.close_step()
    measure_noise(model, loss_of(model), batches(2, 4))  # a frozen reading on each rank, without synchronisation
    said["second"] = refusal(lambda: NoiseProbe(model, SGD(model.parameters()), batch_size=BATCH))
    probe.close()
    said["closed"] = refusal(probe.close_step)
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


# Rank 0 has one part of four examples, rank 1 three of them.
PARTS, SHARES = (1, 3), (slice(0, 4), slice(4, 16))


def shared(rank: int, style: str, norm: Any = "none") -> dict[str, Any]:
    """Train on unequal shares by `process_group=`: readings, losses and the last weights."""
    model = net(norm)
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.5)
    chosen = [p for p in model.parameters() if p.ndim > 1] if style == "parameters" else None
    probe = NoiseProbe(
        model, optimizer, batch_size=BATCH, population=1000, parameters=chosen, process_group=dist.group.WORLD
    )
    losses = []
    for x, y in batches(STEPS, BATCH):
        optimizer.zero_grad()
        mine = x[SHARES[rank]], y[SHARES[rank]]
        if style == "accumulate":
            for part in split(mine, PARTS[rank]):
                (8.0 * loss_of(model)(part) / PARTS[rank]).backward()
                probe.micro_batch(scale=8.0)
            probe.close_step()
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad /= 8.0
        else:
            losses.append(probe.backward(loss_of(model), mine, PARTS[rank]).item())
        optimizer.step()
    weights = [number for p in model.parameters() for number in p.detach().reshape(-1).tolist()]
    return {"readings": [r.to_dict() for r in probe.readings], "losses": losses, "weights": weights}


def mute(rank: int) -> dict[str, Any]:
    """The negative control: what the ranks measured is not added up."""
    total = Group.total
    Group.total = lambda self, number: number  # type: ignore[method-assign]
    try:
        return shared(rank, "backward")
    finally:
        Group.total = total  # type: ignore[method-assign]


def shared_refusals(rank: int) -> dict[str, str]:
    world, model, wrapped = dist.group.WORLD, net(), DistributedDataParallel(net())
    optimizer = SGD(model.parameters(), lr=0.1)

    def probed(batch: Pair, parts: int) -> NoiseProbe:
        model.zero_grad()
        probe = NoiseProbe(model, optimizer, batch_size=BATCH, process_group=world)
        probe.backward(loss_of(model), batch, parts)
        return probe

    x, y = data(BATCH)
    mine = x[SHARES[rank]], y[SHARES[rank]]
    uneven = probed(mine, (2, 3)[rank])  # of two examples here and four there
    gradient = [p.grad.reshape(-1).tolist() for p in model.parameters() if p.grad is not None]
    said = {
        "gradient": json.dumps(gradient),
        "whole": refusal(lambda: probed((x, y), 4)),
        "sizes": refusal(lambda: uneven.readings),
        "asked again": str(len(uneven.readings)),
        "odd": refusal(lambda: probed((x[:6], y[:6]), 2)) if rank == 0 else "",
        "check": refusal(lambda: NoiseProbe(model, optimizer, batch_size=BATCH, check=[(x, y)], process_group=world)),
        "wrapped": refusal(
            lambda: NoiseProbe(wrapped, SGD(wrapped.parameters()), batch_size=BATCH, process_group=world)
        ),
    }
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, process_group=world)
    model.zero_grad()
    for part in split(mine, PARTS[rank]):
        (loss_of(model)(part) / PARTS[rank]).backward()
        probe.micro_batch()
    probe.skip_step()
    said["skipped"] = json.dumps([p.grad.reshape(-1).tolist() for p in model.parameters() if p.grad is not None])
    assert probe.readings == []
    return said


def worker(rank: int) -> dict[str, Any]:
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
    return {
        "results": results,
        "refusals": refusals(rank),
        "buffers": buffers,
        "shared": {style: shared(rank, style) for style in ("backward", "accumulate", "parameters")},
        "shared batch norm": shared(rank, "backward", "batch"),
        "mute": mute(rank),
        "shared refusals": shared_refusals(rank),
    }


def main(rank: int, folder: Path) -> None:
    with one_of_two(rank, folder):
        (folder / f"{rank}.json").write_text(json.dumps(worker(rank)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
