"""One of two ranks of a Lightning run: python -m tests.integrations.lightning_rank RANK FOLDER."""

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from tests.integrations.loops import SHARES, Decaying, Module, loader, trainer
from torch.utils.data import DataLoader

from svag.integrations.lightning import GainCallback, NoiseCallback


def fitted(rank: int, callback: NoiseCallback, module: Module | None = None, **options: Any) -> Module:
    module = module or Module()
    # a distributed sampler would shuffle
    run = trainer(callback, devices=2, strategy="ddp", use_distributed_sampler=False, **options)
    run.fit(module, DataLoader(loader().dataset, batch_sampler=SHARES[rank::2]))
    return module


def weights(module: Module) -> list[Any]:
    return [parameter.tolist() for parameter in module.parameters()]


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ |= {"LOCAL_RANK": str(rank), "MASTER_PORT": (folder / "port").read_text(), "MASTER_ADDR": "127.0.0.1"}
    found: dict[Any, Any] = {}
    for accumulated in (1, 3):
        noise = NoiseCallback(every=1, population=48)
        module = fitted(rank, noise, accumulate_grad_batches=accumulated, gradient_clip_val=0.1)
        found[accumulated] = {"readings": [reading.to_dict() for reading in noise.readings], "weights": weights(module)}
    gain = GainCallback(4, population=48)
    module = fitted(rank, gain, Decaying(), accumulate_grad_batches=2, epochs=None, max_steps=40)
    assert gain.rule is not None
    found["gain"] = {"time": gain.rule.time, "price": gain.rule.price, "weights": weights(module)}
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
