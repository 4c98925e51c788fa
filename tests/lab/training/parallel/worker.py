"""Many runs in one start of torchrun: `python -m tests.lab.training.parallel.worker ORDER`, on every rank.

ORDER is a JSON file of runs, each a spec, a folder and, perhaps, an effective step at which all ranks are interrupted.
Rank 0 writes how many vectors were averaged in each run next to it, and which threads are left after the last.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import Tensor

from svag.lab.specs.spec import RunSpec
from svag.lab.training.loop import Loop
from svag.lab.training.ranks import joined
from svag.lab.training.run import run

take_step, all_reduce = Loop._take_step, dist.all_reduce
vectors: list[int] = []


def counting(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
    if tensor.numel() > 2:  # a gradient: the sums of a measured step are two numbers
        vectors[-1] += 1
    return all_reduce(tensor, *args, **kwargs)


def interrupted_at(step: int | None) -> Any:
    def take(self: Loop) -> None:
        if self._run.progress.step == step:
            raise KeyboardInterrupt
        take_step(self)

    return take


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text())
    setattr(dist, "all_reduce", counting)  # noqa: B010
    with joined("cpu") as ranks:
        for one in order:
            vectors.append(0)
            Loop._take_step = interrupted_at(one["interrupt"])  # type: ignore[method-assign]
            spec = RunSpec.from_dict(one["spec"])
            try:
                run(
                    spec,
                    one["folder"],
                    device="cpu",
                    progress=False,
                    save_seconds=60 if one["interrupt"] is None else 0,
                    process_group=ranks.group.process_group,
                )
            except KeyboardInterrupt:
                assert one["interrupt"] is not None
        if ranks.rank == 0:
            Path(sys.argv[1]).with_suffix(".counts").write_text(json.dumps(vectors))
    if ranks.rank == 0 and (threads := Path("/proc/self/task")).exists():
        names = [(thread / "comm").read_text().strip() for thread in threads.iterdir()]
        Path(sys.argv[1]).with_suffix(".threads").write_text(json.dumps(names))


if __name__ == "__main__":
    main()
