"""One of two ranks that train by the gain rule; started by test_gain_rule_ranks.py."""

import json
import os
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.noise.nets import Pair, data, loss_of, net
from tests.two_ranks import one_of_two
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, AdamW, Optimizer

import svag.noise.group
import svag.noise.recorders
from svag import GainRule, NoiseProbe
from svag.noise.batches import split
from svag.noise.parameters import gradient_sums

STEPS, BATCH, BASE = 6, 16, 4


def learnable(size: int, seed: int) -> Pair:
    """Classes that the network can tell, so that there is a signal."""
    x, _ = data(size, seed)
    return x, x[:, :3].argmax(dim=1)


def batches() -> list[Pair]:
    return [learnable(BATCH, seed) for seed in range(STEPS)]


def made(model: nn.Module, adamw: bool) -> Optimizer:
    return AdamW(model.parameters(), lr=0.01) if adamw else SGD(model.parameters(), lr=0.1, momentum=0.5)


def train(
    model: nn.Module, probe: NoiseProbe, optimizer: Optimizer, all_: list[Pair], parts: int, accumulate: bool = False
) -> dict[str, Any]:
    """The gains, the time and the last weights of a run by the rule."""
    rule, gains = GainRule(probe, base_batch_size=BASE, base_steps=100), []
    for batch in all_:
        optimizer.zero_grad()
        if accumulate:
            pieces = split(batch, parts)
            for number, piece in enumerate(pieces, start=1):
                with wait(model, number < len(pieces)):
                    (loss_of(model)(piece) / parts).backward()
                probe.micro_batch()
            probe.close_step()
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a short batch
                probe.backward(loss_of(model), batch, parts=parts)
        optimizer.step()
        gains.append(rule.gain)
    end = [number for p in model.parameters() for number in full(p).reshape(-1).tolist()]
    return {"gains": gains, "time": rule.time, "price": rule.price, "due": rule.due, "end": end}


def wait(model: nn.Module, early: bool) -> Any:
    return model.no_sync() if early and isinstance(model, DistributedDataParallel) else nullcontext()


def full(parameter: Tensor) -> Tensor:
    whole: Tensor = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
    return whole.detach()


def case(name: str, rank: int) -> dict[str, Any]:
    adamw, mine = "adamw" in name, [split(batch, 2)[rank] for batch in batches()]
    model, group = net(), None
    if name.startswith("sharded"):
        for layer in (model[0], model):  # type: ignore[index]
            fully_shard(layer, mesh=init_device_mesh("cpu", (2,)))
    elif name.startswith("shared"):
        group = dist.group.WORLD
    else:
        model = DistributedDataParallel(model)
    optimizer = made(model, adamw)
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, population=1000, process_group=group)
    if name == "wrapped short":
        mine = [*mine[:3], learnable(5 if rank else 3, seed=rank), *mine[3:]]
    if name.endswith("rounding") and rank:
        return one_bit_off(lambda: train(model, probe, optimizer, mine, 2))
    return train(model, probe, optimizer, mine, 4 if "sharded" in name else 2, accumulate="accumulate" in name)


def one_bit_off(run: Any) -> dict[str, Any]:
    """Let |g|² on this rank differ in its last bit, as where it is added up in another order."""
    modules = (svag.noise.group, svag.noise.recorders)
    plain = gradient_sums

    def other_order(parameters: Any, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        square, weights_sq, product = plain(parameters, scale)
        return torch.nextafter(square, square + 1), weights_sq, product

    for module in modules:
        module.gradient_sums = other_order  # type: ignore[attr-defined]
    try:
        found: dict[str, Any] = run()
    finally:
        for module in modules:
            module.gradient_sums = plain  # type: ignore[attr-defined]
    return found


CASES = [
    "wrapped",
    "wrapped adamw",
    "wrapped accumulate",
    "wrapped short",
    "wrapped rounding",
    "shared",
    "shared accumulate",
    "shared rounding",
    "sharded",
    "sharded adamw accumulate",
]


def main(rank: int, folder: Path) -> None:
    with one_of_two(rank, folder):
        (folder / f"{rank}.json").write_text(json.dumps({name: case(name, rank) for name in CASES}))
    os._exit(0)  # fully_shard keeps its groups after they are destroyed: see tests/noise/ranks_worker.py


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
