from pathlib import Path

import pytest
import torch.distributed as dist
from tests.noise.nets import net
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.optim import SGD

from svag import NoiseProbe
from svag.noise.parameters import batch_norms


def test_only_batch_norms_that_use_the_batch_count() -> None:
    model = net("batch")
    assert len(batch_norms(model)) == 1
    assert not batch_norms(model, synchronised_only=True)
    assert not batch_norms(model.eval())
    assert batch_norms(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False)).eval())
    assert batch_norms(nn.Sequential(nn.SyncBatchNorm(3)), synchronised_only=True)


def test_sharded_models_are_refused(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = net()
        fully_shard(model)
        with pytest.raises(TypeError, match="FSDP shards the gradients"):
            NoiseProbe(model, SGD(model.parameters()), batch_size=16)
    finally:
        dist.destroy_process_group()
