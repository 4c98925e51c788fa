"""Augmentation of a whole batch on its device: each image is shifted and flipped by draws of its own."""

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
    n, _, height, width = images.shape
    here = images.device
    if pad:
        down, right = torch.randint(2 * pad + 1, (2, n), generator=generator, device=generator.device).to(here)
        padded = black.view(1, -1, 1, 1).repeat(n, 1, height + 2 * pad, width + 2 * pad)
        padded[:, :, pad : pad + height, pad : pad + width] = images
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # all crops, as a view
        images = windows[torch.arange(n, device=here), :, down, right]
    if flip:
        mirrored = torch.randint(2, (n,), generator=generator, device=generator.device).to(here)
        images = torch.where(mirrored.bool().view(n, 1, 1, 1), images.flip(3), images)
    return images
