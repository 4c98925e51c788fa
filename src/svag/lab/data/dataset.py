"""The one thing that the loop needs to know of data: four tensors on a device."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class DataSet:
    """Training and test examples, normalised, on one device.

    Attributes:
        name: what the data set is called in specs and records.
        train_x: float32 images (n, channels, height, width); vectors are images of one pixel.
        train_y: int64 labels (n,).
        test_x: like `train_x`.
        test_y: like `train_y`.
        num_classes: labels are 0 … num_classes − 1.
        black: the normalised value of a zero, per channel; augmentation pads with it.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    num_classes: int
    black: Tensor

    @property
    def in_channels(self) -> int:
        """Channels of an image, or features of a vector."""
        return self.train_x.shape[1]

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of an image."""
        return self.train_x.shape[2], self.train_x.shape[3]

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.train_x.device

    def to(self, device: torch.device | str) -> "DataSet":
        """Return the same data on another device."""
        return DataSet(
            self.name,
            self.train_x.to(device),
            self.train_y.to(device),
            self.test_x.to(device),
            self.test_y.to(device),
            self.num_classes,
            self.black.to(device),
        )

    def __str__(self) -> str:
        shape = "×".join(map(str, self.train_x.shape[1:]))
        return (
            f"{self.name}: {len(self.train_x)} training and {len(self.test_x)} test examples of {shape}, "
            f"{self.num_classes} classes"
        )
