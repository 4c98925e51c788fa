"""One of two ranks of a Trainer: python -m tests.integrations.huggingface_rank RANK FOLDER."""

import json
import os
import sys
import warnings
from pathlib import Path

import torch
from tests.integrations.texts import Recording, arguments, texts, tiny_gpt2

from svag.integrations.huggingface import attach


def main(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": (folder / "port").read_text(),
    }
    options = {"gradient_accumulation_steps": 2, "ddp_backend": "gloo", "ddp_find_unused_parameters": False}
    trainer = Recording(tiny_gpt2(), arguments(folder, learning_rate=1e-2, **options), train_dataset=texts())
    noise = attach(trainer, every=1)
    trainer.train()
    torch.save(trainer.seen, folder / f"seen{rank}.pt")
    gained = Recording(
        tiny_gpt2(), arguments(folder, learning_rate=1e-2, max_steps=30, **options), train_dataset=texts()
    )
    gain = attach(gained, base_batch_size=4)
    gained.train()
    assert gain.rule is not None
    found = {
        "readings": [reading.to_dict() for reading in noise.readings],
        "gain": {
            "time": gain.rule.time,
            "steps": gained.state.global_step,
            "scheduled": gained.lr_scheduler.last_epoch,
            "weights": [parameter.tolist() for parameter in gained.model.parameters()],
        },
    }
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
