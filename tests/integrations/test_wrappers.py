"""Optimizers as the packages hand them out: the probe and SVAG look through the wrapper."""

import accelerate
import pytest
from lightning.fabric import Fabric
from lightning.pytorch.core.optimizer import LightningOptimizer
from tests.noise.nets import net
from torch.optim import SGD

from svag.noise.optimizer import unwrapped

pytestmark = pytest.mark.filterwarnings("default")  # what the packages warn about is their own affair


def test_accelerate() -> None:
    inner = SGD(net().parameters(), lr=0.1)
    assert unwrapped(accelerate.Accelerator(cpu=True).prepare(inner)) is inner


def test_lightning() -> None:
    inner = SGD(net().parameters(), lr=0.1)
    assert unwrapped(LightningOptimizer(inner)) is inner


def test_fabric() -> None:
    model = net()
    _, wrapped = Fabric(accelerator="cpu", devices=1).setup(model, SGD(model.parameters(), lr=0.1))
    assert type(unwrapped(wrapped)) is SGD
