"""The data of a spec, and what a spec alone cannot know about it."""

from pathlib import Path

import torch

from svag.lab.data.dataset import DataSet
from svag.lab.data.load import load_data
from svag.records.consistency import check_spec
from svag.records.data_spec import DataSpec
from svag.records.refusal import SpecError
from svag.records.spec import RunSpec


def load_inputs(data: DataSpec, data_dir: str | Path | None, device: torch.device) -> DataSet:
    """Load what a spec names, fetching it when it is not there."""
    return load_data(data.name, path=data.path, data_dir=data_dir, subset=data.subset, pool=data.pool, device=device)


def check_inputs(spec: RunSpec, data: DataSet) -> None:
    """Refuse a spec that does not fit its data: too large a batch, images too small to be shifted."""
    check_spec(spec, len(data.train_x))
    if spec.data.augment is None or not spec.data.augmented:
        return
    side = min(data.image_size)
    if side == 1:
        raise SpecError("data.augment", "shifts and flips images, and this data set has vectors: set it to false")
    if spec.data.augment.pad >= side:
        raise SpecError("data.augment.pad", f"must be smaller than the {side} pixels of an image")
