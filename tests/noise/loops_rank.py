"""One of two gloo processes: what probes refuse, weight and choose together."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.noise.nets import Pair, data, loss_of, net, sgd
from tests.two_ranks import one_of_two
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from svag import NoiseProbe
from svag.noise import cadence
from svag.noise.batches import split
from svag.noise.loss_check import NotAMean


def probes() -> list[tuple[nn.Module, NoiseProbe]]:
    """Wrapped, and with ranks of one's own."""
    wrapped, own = DistributedDataParallel(net("batch", dropout=True)), net("batch", dropout=True)
    return [
        (wrapped, NoiseProbe(wrapped, sgd(wrapped), batch_size=32)),
        (own, NoiseProbe(own, sgd(own), batch_size=32, process_group=dist.group.WORLD)),
    ]


def outcome(probe: NoiseProbe, loss_fn: Callable[[Pair], Tensor], batch: Pair, parts: int = 4) -> Any:
    try:
        probe.backward(loss_fn, batch, parts)
    except NotAMean as error:
        return error.found.kind
    return "mean"


def checked(rank: int) -> list[list[Any]]:
    """A mean on both ranks; one rank whose loss is none; both, where rank 0 has one part; and then a mean again."""
    found = []
    for model, probe in probes():

        def ignoring(batch: Pair, model: nn.Module = model) -> Tensor:
            return cross_entropy(model(batch[0]), batch[1], ignore_index=1)

        batch, results = split(data(32), 2)[rank], []
        results.append(outcome(probe, ignoring if rank else loss_of(model), batch))
        model.zero_grad()
        if isinstance(model, DistributedDataParallel):
            results.append(results[0])
        else:  # shares of 8 and 24 examples, cut into parts of 8
            (x, y), mine = data(32), slice(8, 32) if rank else slice(0, 8)
            results.append(outcome(probe, ignoring, (x[mine], y[mine]), 3 if rank else 1))
            model.zero_grad()
        results.append(outcome(probe, loss_of(model), batch))
        results.append(len(probe.readings) == 1)
        found.append(results)
        probe.close()
    return found


def weighted(rank: int) -> dict[str, Any]:
    """Token means under DistributedDataParallel: the gradient and the reading of a step."""
    model = DistributedDataParallel(net())
    x, y = split(data(32), 2)[rank]
    probe = NoiseProbe(model, sgd(model), batch_size=32)
    tokens = (y != 1).to(torch.float64)
    probe.backward(lambda b: cross_entropy(model(b[0]), b[1], ignore_index=1), (x, y), parts=2, weights=tokens)
    (reading,) = probe.readings
    gradient = [number for p in model.parameters() if p.grad is not None for number in p.grad.reshape(-1).tolist()]
    return {"gradient": gradient, "numbers": [reading.grad_sq, reading.noise_trace, reading.weights_sq]}


def auto(rank: int) -> list[dict[str, Any]]:
    """The clock of rank 0 finds measured steps 1.4 times as long, that of rank 1 3 times."""
    now = [0.0]
    vars(cadence)["perf_counter"] = lambda: now[0]
    found = []
    batch = split(data(32), 2)[rank]
    sharded = net()
    fully_shard(sharded)
    wrapped, own = DistributedDataParallel(net()), net()
    groups: list[tuple[nn.Module, Any]] = [(wrapped, None), (own, dist.group.WORLD), (sharded, None)]
    for model, group in groups:
        probe = NoiseProbe(model, sgd(model), batch_size=32, every="auto", process_group=group)
        for _ in range(210):
            now[0] += (3.0 if rank else 1.4) if probe.measuring else 1.0
            model.zero_grad()
            probe.backward(loss_of(model), batch, parts=2)
        steps = [reading.step for reading in probe.readings]
        found.append({"steps": steps, "chosen": probe.state_dict()["cadence"]["every"]})
        probe.close()
    return found


def main(rank: int, folder: Path) -> None:
    with one_of_two(rank, folder):
        found: dict[str, Any] = {"checked": checked(rank), "weighted": weighted(rank), "auto": auto(rank)}
        found["own"] = cadence.chosen(1.0, 3.0 if rank else 1.4)
        (folder / f"{rank}.json").write_text(json.dumps(found))
    os._exit(0)  # fully_shard keeps its groups after they are destroyed: see ranks_worker.py


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
