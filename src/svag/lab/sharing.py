"""What cannot be shared among processes, what differs when it is, and how all ranks begin at the same place.

What cannot be shared among processes, refused before anything is computed, and what differs when it is.

All ranks begin where rank 0 is: at the first weights, or at the checkpoint that only it has read.
"""

import io
from pathlib import Path

import torch
from torch import nn

from svag.lab.ranks import Ranks
from svag.lab.state import CheckpointError, Run
from svag.lab.training import Training
from svag.noise.measured import batch_norms
from svag.records.fields import SpecError
from svag.records.parts import FULL_PASS, InRunProbe
from svag.records.spec import cuts_batches, smallest_batch


def refuse_small_shares(training: Training) -> None:
    """Refuse more processes than there are examples, or parts of a measured batch, to share."""
    spec, ranks = training.spec, training.ranks
    size = training.examples if isinstance(spec.process, FULL_PASS) else smallest_batch(spec)
    if size < ranks.size:
        raise SpecError(
            "batch_size", f"{ranks.size} processes cannot share a batch of {size} examples: start at most {size}"
        )
    if local_batch_norms(training.model) and size < 2 * ranks.size:
        raise SpecError(
            "model.norm",
            f"batch norm needs two examples in each of {ranks.size} processes, and a batch has {size}: start at most "
            f"{size // 2}, or use group",
        )
    if isinstance(spec.probe, InRunProbe) and cuts_batches(spec):
        _refuse_parts(spec.probe.parts, ranks, training.model)


def refuse_other_number(path: Path, before: int, ranks: Ranks, model: nn.Module) -> None:
    """Refuse to go on with another number of processes where that changes what is computed."""
    if before != ranks.size and local_batch_norms(model):
        raise CheckpointError(
            f"{path} was made by {_processes(before)}, and BatchNorm normalises by the share of each: continue with "
            f"{before}, or remove it to start the run anew with {ranks.size}"
        )


def note_on_batch_norm(training: Training) -> str:
    """What to tell a user whose network has BatchNorm; empty for others."""
    ranks = training.ranks
    if ranks.size == 1 or not local_batch_norms(training.model):
        return ""
    return (
        f"Note: BatchNorm normalises by the examples of each of the {ranks.size} processes, not by the whole batch, so "
        "this is not the run of one process: see docs/data_parallel.md for synchronised statistics."
    )


def local_batch_norms(model: nn.Module) -> list[nn.Module]:
    """BatchNorm modules whose statistics are those of one process."""
    return [module for module in batch_norms(model) if not isinstance(module, nn.SyncBatchNorm)]


def _refuse_parts(parts: int, ranks: Ranks, model: nn.Module) -> None:
    if parts < ranks.size:
        raise SpecError(
            "probe.parts",
            f"{ranks.size} processes cannot share {parts} parts: start at most {parts}, or measure more parts",
        )
    # its processes meet in every forward pass: one with a part more would wait for the others for ever
    if parts % ranks.size and any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
        raise SpecError(
            "probe.parts",
            f"SyncBatchNorm needs equally many parts in each of {ranks.size} processes, got {parts} in all: use a "
            f"multiple of {ranks.size}",
        )


def _processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"


def start_together(run: Run, ranks: Ranks) -> None:
    """Hand the state of rank 0 to all ranks; like a checkpoint, it is loaded as tensors and nothing else."""
    if ranks.size == 1:
        return
    content = b""
    if ranks.rank == 0:
        buffer = io.BytesIO()
        torch.save(run.state_dict(), buffer)
        content = buffer.getvalue()
    content = ranks.first(lambda: content)
    if ranks.rank:
        run.load_state_dict(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
