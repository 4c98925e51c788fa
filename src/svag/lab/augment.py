"""Augmentation of a whole batch on its device: each image is shifted and flipped by draws of its own."""

from functools import lru_cache

import torch
from torch import Tensor


def augment(images: Tensor, *, pad: int, flip: bool, black: Tensor, generator: torch.Generator) -> Tensor:
    """Pad every image, cut out its old size at a random place, and mirror it with probability ½.

    The shift is uniform on {−pad, …, pad}² and, like the mirroring, independent for every image. What was drawn depends
    on the generator and the number of images only.

    >>> image = torch.arange(4.0).reshape(1, 1, 2, 2)
    >>> augment(image, pad=1, flip=True, black=torch.zeros(1), generator=torch.Generator().manual_seed(2)).shape
    torch.Size([1, 1, 2, 2])
    >>> augment(image, pad=0, flip=False, black=torch.zeros(1), generator=torch.Generator()) is image
    True

    Args:
        images: a batch (n, channels, height, width).
        pad: pixels added on each side; 0 for no shift.
        flip: whether to mirror left and right.
        black: the value of padded pixels, per channel (`DataSet.black`).
        generator: where the draws come from; it may live on another device than the images.
    """
    if pad < 0:
        raise ValueError(f"pad must not be negative, got {pad}")
    n, channels, height, width = images.shape
    places, choice = 2 * pad + 1, None
    if pad:
        down, right = torch.randint(places, (2, n), generator=generator, device=generator.device)
        choice = down * places + right
    if flip:
        mirrored = torch.randint(2, (n,), generator=generator, device=generator.device)
        choice = mirrored if choice is None else choice + places**2 * mirrored
    if choice is None:
        return images
    chosen = _sources(height, width, pad, images.device).index_select(0, choice.to(images.device))
    blackened = torch.cat([images.flatten(2), black.view(1, channels, 1).expand(n, channels, 1)], dim=2)
    return blackened.gather(2, chosen.unsqueeze(1).expand(-1, channels, -1)).view_as(images)


@lru_cache(maxsize=4)
def _sources(height: int, width: int, pad: int, device: torch.device) -> Tensor:
    """Where each pixel comes from, one row for every way to mirror (last) and shift: a black one stands at the end."""
    shifts = torch.arange(-pad, pad + 1).view(-1, 1)
    down, right = shifts + torch.arange(height), shifts + torch.arange(width)
    down, right = down.view(-1, 1, height, 1), right.view(1, -1, 1, width)
    inside = (down >= 0) & (down < height) & (right >= 0) & (right < width)
    shifted = torch.where(inside, down * width + right, height * width)
    return torch.stack([shifted, shifted.flip(3)]).view(-1, height * width).to(device)
