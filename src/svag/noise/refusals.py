"""What the in-run probe cannot measure, refused before the run starts, and what it measures only approximately."""

from collections.abc import Iterable

import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def refuse_sharded(model: nn.Module) -> None:
    """Refuse models whose parameters are spread over processes: no rank ever holds its own whole gradient."""
    if not dist.is_available():
        return
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor

    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()) or any(
        isinstance(parameter, DTensor) for parameter in model.parameters()
    ):
        raise TypeError(
            "FSDP shards the gradients before a rank can see its own: measure under DistributedDataParallel, or with "
            "svag.measure_noise on an unsharded copy"
        )


def refuse_sparse(model: nn.Module, parameters: Iterable[nn.Parameter]) -> None:
    """Refuse embeddings with sparse gradients, before one of them arrives in the middle of a backward pass."""
    measured = {id(parameter) for parameter in parameters}
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse and id(module.weight) in measured:
            raise TypeError(
                f"{name or 'the model'} has sparse gradients, which cannot be measured: build it with sparse=False, or "
                "leave it out of parameters="
            )


def batch_norms(model: nn.Module, synchronised_only: bool = False) -> list[nn.Module]:
    """BatchNorm modules that normalise by the batch at hand: their parts see other statistics than the whole batch.

    Under data parallelism each rank has its own statistics anyway, so there only a SyncBatchNorm couples the parts.
    """
    kind = nn.SyncBatchNorm if synchronised_only else _BatchNorm
    return [
        module
        for module in model.modules()
        if isinstance(module, kind) and (module.training or not module.track_running_stats)
    ]
