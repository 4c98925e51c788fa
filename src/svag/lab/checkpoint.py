"""Checkpoints: everything a run needs to go on as if it had never stopped, in one file that is never half-written."""

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from svag.records.files import replace_file

FORMAT = 1


class CheckpointError(Exception):
    """A checkpoint that cannot be used; the message is one sentence with the way out."""


def save_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Replace the checkpoint by `state`, all or nothing."""
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    replace_file(path, buffer.getvalue())


def load_checkpoint(path: Path, identity: str, device: torch.device) -> dict[str, Any] | None:
    """Read a checkpoint of the run with this identity; None if there is none. No pickle but tensors is ever loaded."""
    if not path.exists():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        mine, made_on = state["format"] == FORMAT and state["identity"] == identity, state["device"]
    except (OSError, RuntimeError, EOFError, KeyError, TypeError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{path} cannot be read: remove it to start the run anew") from error
    if not mine:
        raise CheckpointError(f"{path} belongs to another run or version: remove it to start the run anew")
    if made_on != device.type:
        raise CheckpointError(
            f"{path} was made on {made_on}, and the numbers would differ: continue with --device "
            f"{made_on}, or remove it to start the run anew on {device.type}"
        )
    return state
