"""A network of the user's own, with dropout, whose masks come from torch's global generator, and BatchNorm."""

from torch import nn


def build(in_channels: int, num_classes: int, image_size: tuple[int, int]) -> nn.Module:
    pixels = in_channels * image_size[0] * image_size[1]
    return nn.Sequential(
        nn.Flatten(), nn.Linear(pixels, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, num_classes)
    )
