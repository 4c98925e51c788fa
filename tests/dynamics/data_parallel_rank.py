"""One of two data-parallel ranks; run by test_data_parallel.py, which compares what it saves with one process."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tests.two_ranks import one_of_two
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import svag


def results_of(rank: int) -> dict[str, Any]:
    talks = {"quiet": 0, "tracked": 0, "sgd": 0}
    results: dict[str, Any] = {"talks": talks}
    data = torch.randn(2, 6, 4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)[rank]

    # torch insists on this annotation, which it does not export to type checkers
    def count(kind: str, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
        talks[kind] += 1
        future: torch.futures.Future[Tensor] = (
            dist.all_reduce(bucket.buffer() / 2, async_op=True).get_future().then(lambda done: done.value()[0])
        )
        return future

    for kind, ell, tracked in (("quiet", 3, False), ("tracked", 3, True), ("sgd", 1, False)):
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Linear(3, 1).double())
        model.register_comm_hook(kind, count)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def loss_fn(x: Tensor, model: nn.Module = model) -> Tensor:
            output: Tensor = model(x)
            return output.square().mean()

        with svag.SVAG(model, optimizer, ell=ell, track_noise=tracked, check_finite=True) as sim:
            sim.step(loss_fn, iter([(data[2 * k], data[2 * k + 1]) for k in range(ell)]))
            results[kind] = model.module.weight.tolist()
            if tracked:
                results["readings"] = [reading.to_dict() for reading in sim.noise]
            if kind == "quiet":  # what one rank must refuse, both refuse
                spoilt = data[0] * torch.nan if rank == 0 else data[0]
                hooked = dict(talks)
                try:
                    sim.substep(loss_fn, spoilt, data[1])
                except FloatingPointError as error:
                    results["refused"] = str(error).split(" in ")[0]
                assert results[kind] == model.module.weight.tolist()
                talks.update(hooked)
    return results


def main(rank: int, folder: Path) -> None:
    with one_of_two(rank, folder):
        (folder / f"{rank}.json").write_text(json.dumps(results_of(rank)))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
