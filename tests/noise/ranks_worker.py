"""One of two gloo processes: trains, measures, tries what must be refused, and writes down what it saw."""

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.noise.nets import Pair, batches, data, loss_of, net
from tests.two_ranks import one_of_two, refusal
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW, Optimizer

from svag import SVAG, NoiseProbe, Reading, load_readings, measure_noise
from svag.noise.batches import split
from svag.noise.group import Group

STEPS, BATCH = 3, 16


def train(
    rank: int, model: nn.Module, parts: int, style: str, parameters_of: nn.Module | None = None, every: int = 1
) -> list[Reading]:
    """Each rank sees its half of every batch, whole or accumulated in parts."""
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.5)
    chosen = None if parameters_of is None else [p for p in parameters_of.parameters() if p.ndim > 1]
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, population=1000, parameters=chosen, every=every)
    for batch in batches(STEPS, BATCH):
        optimizer.zero_grad(set_to_none=style != "zeroed")
        mine = split(batch, 2)[rank]
        if style == "backward":
            probe.backward(loss_of(model), mine, parts=parts)
        elif style == "alone":
            accumulate(model, mine, parts, scale=1.0)
            probe.close_step()
        else:
            if style == "accumulate":
                accumulate(model, mine, parts)
                probe.micro_batch(scale=8.0)
            else:
                weights = [0.375, 0.125] if style == "weights" else None
                in_micro_batches(model, probe, mine, parts, weights, reduce_all=style == "reduced")
            probe.close_step()
            for parameter in model.parameters():
                if parameter.grad is not None:  # as that of an unused one
                    parameter.grad /= 8.0
        optimizer.step()
    return list(probe.readings)


def accumulate(model: nn.Module, batch: Pair, parts: int, scale: float = 8.0) -> None:
    assert isinstance(model, DistributedDataParallel)
    *early, last = split(batch, parts)
    for piece in early:
        with model.no_sync():
            (scale * loss_of(model)(piece) / parts).backward()
    (scale * loss_of(model)(last) / parts).backward()


def in_micro_batches(
    model: nn.Module, probe: NoiseProbe, batch: Pair, parts: int, weights: list[float] | None, reduce_all: bool
) -> None:
    """Every backward pass is a micro-batch; with weights, of six and two examples."""
    assert isinstance(model, DistributedDataParallel)
    sizes = [len(batch[0]) // parts] * parts if weights is None else [6, 2]
    for number, piece in enumerate(zip(batch[0].split(sizes), batch[1].split(sizes), strict=True), start=1):
        with nullcontext() if reduce_all or number == len(sizes) else model.no_sync():
            # DistributedDataParallel takes the mean over the two ranks
            share = 1 / parts if weights is None else 2 * weights[number - 1]
            (8.0 * share * loss_of(model)(piece)).backward()
        probe.micro_batch(8.0, None if weights is None else weights[number - 1])


def made(model: nn.Module, adamw: bool) -> Optimizer:
    """The optimizer of both sides of a comparison."""
    return AdamW(model.parameters(), lr=0.01) if adamw else SGD(model.parameters(), lr=0.1, momentum=0.5)


def sharded(rank: int, shape: tuple[int, ...], style: str) -> dict[str, Any]:
    """Train a model that fully_shard spreads over the two ranks, or copies to both."""
    names = ("copies", "shards")[2 - len(shape) :]
    model = net()
    for layer in (model[0], model):  # type: ignore[index]
        fully_shard(layer, mesh=init_device_mesh("cpu", shape, mesh_dim_names=names))
    optimizer = made(model, style == "adamw")
    chosen = [p for p in model.parameters() if p.ndim > 1] if style == "parameters" else None
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, population=1000, parameters=chosen)
    for batch in batches(STEPS, BATCH):
        optimizer.zero_grad(set_to_none=style != "accumulate")
        mine = split(batch, 2)[rank]
        if style == "accumulate":
            for part in split(mine, 4):
                (8.0 * loss_of(model)(part) / 4).backward()
                probe.micro_batch(scale=8.0)
            probe.close_step()
            for parameter in model.parameters():
                assert parameter.grad is not None
                parameter.grad /= 8.0
        else:
            probe.backward(loss_of(model), mine, parts=4)
        optimizer.step()
    weights = [number for p in model.parameters() for number in full(p).reshape(-1).tolist()]
    return {"readings": [r.to_dict() for r in probe.readings], "weights": weights}


def full(parameter: Tensor) -> Tensor:
    assert isinstance(parameter, DTensor)
    whole: Tensor = parameter.full_tensor()
    return whole.detach()


def sharded_refusals(rank: int) -> dict[str, str]:
    mesh = init_device_mesh("cpu", (2,))
    model = net()
    fully_shard(model, mesh=mesh)
    optimizer, mine = SGD(model.parameters(), lr=0.1), split(data(BATCH), 2)[rank]
    probe = NoiseProbe(model, optimizer, batch_size=BATCH)
    said = {
        "one part": refusal(lambda: probe.backward(loss_of(model), mine, parts=1)),
        "size": refusal(lambda: probe.backward(loss_of(model), data(BATCH))),
        "second": refusal(lambda: NoiseProbe(model, optimizer, batch_size=BATCH)),
        "group": refusal(lambda: NoiseProbe(model, optimizer, batch_size=BATCH, process_group=dist.group.WORLD)),
        "svag": refusal(lambda: SVAG(model, optimizer, ell=2, track_noise=True)),
    }

    def micro_batches() -> None:
        for part in split(mine, 2):
            (loss_of(model)(part) / 2).backward()
            probe.micro_batch()
        probe.close_step()

    for set_to_none in (True, False):
        model.zero_grad(set_to_none=set_to_none)
        micro_batches()
        loss_of(model)(mine).backward()  # of another loss, before gradients are zeroed
    said["stale"] = refusal(micro_batches)
    probe.skip_step()
    model.zero_grad()
    assert isinstance(model, FSDPModule)
    model.set_requires_gradient_sync(False)
    loss_of(model)(mine).backward()
    said["unreduced"] = refusal(probe.micro_batch)
    for name, placement in (("replicate", Replicate()), ("partial", Partial())):
        linear = nn.Linear(2, 2)
        fully_shard(linear, mesh=mesh)
        linear.bias = nn.Parameter(DTensor.from_local(torch.zeros(2), mesh, [placement]))
        said[name] = refusal(lambda: NoiseProbe(linear, SGD(linear.parameters(), lr=0.1), batch_size=4))  # noqa: B023
    return said


def saved(rank: int, folder: Path) -> int:
    """How many readings are in a file that both ranks were told to write."""
    model = DistributedDataParallel(net())
    with NoiseProbe(model, SGD(model.parameters(), lr=0.1), batch_size=BATCH, save_to=folder / "shared.jsonl") as probe:
        probe.backward(loss_of(model), split(data(BATCH), 2)[rank], parts=1)
    dist.barrier()
    return len(load_readings(folder / "shared.jsonl"))


def refusals(rank: int) -> dict[str, str]:
    said = {}
    hooked = DistributedDataParallel(net())
    hooked.register_comm_hook(None, allreduce_hook)
    beside = NoiseProbe(hooked, SGD(hooked.parameters()), batch_size=BATCH)
    beside.backward(loss_of(hooked), split(data(BATCH), 2)[rank], parts=1)
    said["hook"] = json.dumps(beside.readings[0].to_dict())
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
    model.zero_grad()
    for number in range(3):  # two backward passes in the second micro-batch
        with model.no_sync():
            loss_of(model)(mine).backward()
        if number == 0:
            probe.micro_batch()
    said["pass"] = refusal(probe.micro_batch)
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
    model.zero_grad()
    again = NoiseProbe(model, SGD(model.parameters(), lr=0.1), batch_size=BATCH)
    again.backward(loss_of(model), mine, parts=1)
    said["again"] = json.dumps(again.readings[0].to_dict())
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
        with NoiseProbe(model, optimizer, batch_size=BATCH, process_group=world) as probe:
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


def noticed(rank: int, wrapped: bool) -> dict[str, Any]:
    """Readings under a factor whose squares overflow, a gradient left behind, and a parameter that is frozen."""
    said: dict[str, Any] = {}
    mine = split(data(BATCH, dtype=torch.float32), 2)[rank]
    for scale in (1.0, 2.0**66):
        plain = net(dtype=torch.float32)
        model = DistributedDataParallel(plain) if wrapped else plain
        probe = NoiseProbe(
            model,
            SGD(model.parameters(), lr=0.1),
            batch_size=BATCH,
            process_group=None if wrapped else dist.group.WORLD,
        )

        def micro_batches(model: nn.Module = model, probe: NoiseProbe = probe, scale: float = scale) -> None:
            for part in split(mine, 2):
                (scale * loss_of(model)(part) / 2).backward()
                probe.micro_batch(scale)

        for _ in range(2):
            model.zero_grad()
            micro_batches()
            probe.close_step()
        said[f"{scale:g}"] = probe.readings[-1].to_dict()
        said[f"{scale:g} skipped"] = probe.scalars().get("skipped", 0)
    said["stale"] = refusal(micro_batches)
    probe.skip_step()
    model.zero_grad()
    plain[4].bias.requires_grad_(False)  # type: ignore[index]
    if wrapped:
        said["frozen"] = refusal(lambda: probe.backward(loss_of(model), mine, parts=2))
    return said


class WithUnused(nn.Module):
    """A network with a layer that no loss depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = net(), nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.used(x)
        return logits


def worker(rank: int, folder: Path) -> dict[str, Any]:
    buffers = after_a_frozen_reading(rank)
    plain = net()
    results = {
        style: [r.to_dict() for r in train(rank, DistributedDataParallel(net()), parts, style.split()[0])]
        for style, parts in [
            ("backward", 1),
            ("accumulate", 4),
            ("alone", 4),
            ("backward parts", 2),
            ("micro-batches", 4),
            ("zeroed", 4),
            ("reduced", 4),
            ("weights", 2),
        ]
    }
    third = train(rank, DistributedDataParallel(net()), 2, "micro-batches", every=2)
    results["every second"] = [r.to_dict() for r in third]
    static = DistributedDataParallel(net(), static_graph=True)
    results["static"] = [r.to_dict() for r in train(rank, static, 1, "backward")]
    unused = DistributedDataParallel(WithUnused(), find_unused_parameters=True)
    results["unused"] = [r.to_dict() for r in train(rank, unused, 2, "micro-batches")]
    wrapped = DistributedDataParallel(plain, gradient_as_bucket_view=True, bucket_cap_mb=1e-4)
    results["parameters"] = [r.to_dict() for r in train(rank, wrapped, 1, "backward", parameters_of=plain)]
    normed = [train(rank, DistributedDataParallel(net("batch")), parts, "backward")[0] for parts in (1, 2)]
    results["batch norm"] = [r.to_dict() for r in normed]
    return {
        "results": results,
        "noticed": [noticed(rank, wrapped) for wrapped in (True, False)],
        "sharded": {
            name: sharded(rank, shape, style)
            for name, shape, style in [
                ("shards", (2,), "backward"),
                ("accumulate", (2,), "accumulate"),
                ("parameters", (2,), "parameters"),
                ("adamw", (2,), "adamw"),
                ("copies and a shard", (2, 1), "backward"),
                ("a copy and shards", (1, 2), "backward"),
            ]
        },
        "sharded refusals": sharded_refusals(rank),
        "saved": saved(rank, folder),
        "refusals": refusals(rank),
        "buffers": buffers,
        "shared": {style: shared(rank, style) for style in ("backward", "accumulate", "parameters")},
        "shared batch norm": shared(rank, "backward", "batch"),
        "mute": mute(rank),
        "shared refusals": shared_refusals(rank),
    }


def main(rank: int, folder: Path) -> None:
    with one_of_two(rank, folder):
        (folder / f"{rank}.json").write_text(json.dumps(worker(rank, folder)))
    # fully_shard keeps its groups after they are destroyed, also without a probe, and their threads now and then
    # abort the interpreter at its end: leave without one
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
