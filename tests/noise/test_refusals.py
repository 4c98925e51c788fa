from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from tests.noise.nets import net
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
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


@pytest.mark.filterwarnings("ignore")  # torch warns that one rank shards nothing
def test_flat_shards_are_refused(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"), use_orig_params=True)
        with pytest.raises(TypeError, match="fully_shard"):
            NoiseProbe(model, SGD(model.parameters(), lr=0.1), batch_size=4)
    finally:
        dist.destroy_process_group()
