"""One of two ranks that share every batch by `process_group=`; started by test_process_group.py."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.two_ranks import one_of_two, refusal
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import svag
from svag.dynamics import svag as stepper

BATCH, N = 8, 9
CASES: dict[str, dict[str, Any]] = {
    "svag": {"ell": 3},
    "tracked": {"ell": 3, "track_noise": True, "check_finite": True},
    "split": {"ell": 3, "split": 2, "population": 100, "track_noise": True},
    "chunks": {"ell": 2, "chunks": 2},
    "sgd": {"ell": 1},
    "momentum": {"ell": 2, "momentum_limit": "underdamped"},
    "adamw": {"ell": 3},
}
# Which examples are whose: unequal shares, and divisible ones where the case cuts them.
SHARES = {"chunks": [slice(0, 2), slice(2, 8)]}
PASSES = {"ngd": (3, 1), "sde": (3, 2), "gd": (math.inf, 1)}


def share(case: str, rank: int) -> slice:
    return SHARES.get(case, [slice(0, 3), slice(3, 8)])[rank]


def fresh(momentum: float = 0.0) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, weight_decay=0.01)


def data(*shape: int) -> Tensor:
    return torch.randn(*shape, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def end(model: nn.Module) -> list[float]:
    return [number for p in model.parameters() for number in p.detach().reshape(-1).tolist()]


def go(case: str, mine: slice, group: Any) -> dict[str, Any]:
    """Two effective steps of SVAG on these examples of every batch."""
    settings = CASES[case]
    model, optimizer = fresh(0.5 if case == "momentum" else 0.0)
    if case == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, eps=1e-3)
    pairs = data(2 * settings["ell"], 2, BATCH)[:, :, mine]
    with svag.SVAG(model, optimizer, process_group=group, **settings) as sim:
        batches = iter([(first, second) for first, second in pairs])
        losses = [sim.step(lambda x: model(x).square().mean(), batches).item() for _ in range(2)]
        readings = [reading.to_dict() for reading in sim.noise]
    return {"end": end(model), "losses": losses, "readings": readings}


def pass_over(case: str, mine: slice, group: Any) -> dict[str, Any]:
    """Four passes of noisy gradient descent over these examples."""
    batch_size, refine = PASSES[case]
    model, optimizer = fresh()
    generator = torch.Generator().manual_seed(5)
    ngd = svag.NoisyGD(
        model,
        optimizer,
        batch_size=batch_size,
        dataset_size=N,
        generator=generator,
        refine=refine,
        process_group=group,
    )
    chunks = list(data(N)[mine].split(2))
    losses = [ngd.step(lambda x: model(x).square().squeeze(1), chunks).item() for _ in range(4)]
    return {"end": end(model), "losses": losses}


def refusals(rank: int) -> dict[str, str]:
    """What ranks refuse, all of them in the same way."""
    world = dist.group.WORLD
    model, optimizer = fresh()
    wrapped = DistributedDataParallel(model)

    def ngd(seed: int, n: int, process_group: Any = world) -> svag.NoisyGD:
        generator = torch.Generator().manual_seed(seed)
        return svag.NoisyGD(
            model, optimizer, batch_size=3, dataset_size=n, generator=generator, process_group=process_group
        )

    def losses(x: Tensor) -> Tensor:
        found: Tensor = model(x)
        return found.square().squeeze(1)

    def step(seed: int, n: int, chunks: Any) -> str:
        return refusal(lambda: ngd(seed, n).step(losses, chunks))

    before = end(model)
    mine = [data(N)[:4] if rank == 0 else data(N)[4:]]
    said = {
        "wrapped": refusal(lambda: svag.SVAG(wrapped, optimizer, ell=2, process_group=world)),
        "wrapped ngd": refusal(
            lambda: svag.NoisyGD(wrapped, optimizer, batch_size=3, dataset_size=N, generator=torch.Generator())
        ),
        "kind": refusal(lambda: svag.SVAG(model, optimizer, ell=2, process_group="gloo")),  # type: ignore[arg-type]
        "generators": step(rank, N, mine),
        "all to all": step(0, N, [data(N)]),
        "once": step(0, N, iter(mine)),
    }
    spoilt = data(2, BATCH)[:, share("svag", rank)] * (math.nan if rank == 0 else 1.0)
    with svag.SVAG(model, optimizer, ell=2, check_finite=True, process_group=world) as sim:
        said["not finite"] = refusal(lambda: sim.substep(lambda x: model(x).square().mean(), *spoilt))
    assert end(model) == before
    return said


def main(rank: int, folder: Path) -> None:
    with one_of_two(rank, folder):
        world, vectors, reduce = dist.group.WORLD, [0], dist.all_reduce

        def counted(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            vectors[0] += tensor.numel() > 1
            return reduce(tensor, *args, **kwargs)

        setattr(dist, "all_reduce", counted)  # noqa: B010
        found: dict[str, Any] = {"messages": {}}
        for case in CASES:
            vectors[0] = 0
            found[case] = go(case, share(case, rank), world)
            found["messages"][case] = vectors[0]
        for case in PASSES:
            vectors[0] = 0
            found[case] = pass_over(case, slice(0, 2) if rank == 0 else slice(2, N), world)
            found["messages"][case] = vectors[0]
        found["refusals"] = refusals(rank)
        # the negative control: every rank counts the same, whatever its share
        setattr(stepper, "batch_size_of", lambda batch: 1)  # noqa: B010
        found["unweighted"] = go("svag", share("svag", rank), world)
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
