"""One of two ranks of a Lightning run: python -m tests.integrations.lightning_rank RANK FOLDER."""

import json
import os
import sys
import warnings
from pathlib import Path

import torch
from tests.integrations.loops import SHARES, Module, loader, trainer
from torch.utils.data import DataLoader

from svag.integrations.lightning import NoiseCallback


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ |= {"LOCAL_RANK": str(rank), "MASTER_PORT": (folder / "port").read_text(), "MASTER_ADDR": "127.0.0.1"}
    found = {}
    for accumulated in (1, 3):
        noise = NoiseCallback(population=48)
        module = Module()
        run = trainer(
            noise,
            devices=2,
            strategy="ddp",
            accumulate_grad_batches=accumulated,
            gradient_clip_val=0.1,
            use_distributed_sampler=False,  # which would shuffle
        )
        run.fit(module, DataLoader(loader().dataset, batch_sampler=SHARES[rank::2]))
        found[accumulated] = {
            "readings": [reading.to_dict() for reading in noise.readings],
            "weights": [parameter.tolist() for parameter in module.parameters()],
        }
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
