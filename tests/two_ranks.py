"""Start a module on two ranks that talk by gloo, and read what each of them wrote."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # before a group is open, which it would keep: see svag.lab.training.ranks

ROOT = Path(__file__).parents[1]


def two_ranks(module: str, folder: Path) -> list[Any]:
    """Run `python -m module RANK FOLDER` twice at the same time; return the JSON files that the ranks left there."""
    started = [
        subprocess.Popen([sys.executable, "-m", module, str(rank), str(folder)], cwd=ROOT, stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    try:
        errors = [one.communicate(timeout=600)[1].decode() for one in started]
        assert all(one.returncode == 0 for one in started), "\n".join(errors)
    finally:
        for one in started:
            one.kill()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@contextmanager
def one_of_two(rank: int, folder: Path) -> Iterator[None]:
    """One of the ranks, while the context is open."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=timedelta(seconds=300)
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def refusal(call: Callable[[], object]) -> str:
    """What an error says; empty if there is none."""
    try:
        call()
    except (FloatingPointError, RuntimeError, TypeError, ValueError) as error:
        return str(error)
    return ""
