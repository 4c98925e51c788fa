"""All ranks begin where rank 0 is: at the first weights, or at the checkpoint that only it has read."""

import io

import torch

from svag.lab.parallel.ranks import Ranks
from svag.lab.state import Run


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
