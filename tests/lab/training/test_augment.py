"""Augmentation: every output is one of the shifted and mirrored copies, all of them equally often, each image alone."""

import itertools

import pytest
import torch
from scipy import stats
from torch import Tensor

from svag.lab.training.streams import augment

BLACK = torch.tensor([-1.0, -2.0, -3.0])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def copies(image: Tensor, pad: int, flip: bool) -> list[Tensor]:
    """All results that are allowed for one image, by slicing."""
    channels, height, width = image.shape
    padded = BLACK[:channels, None, None].expand(channels, height + 2 * pad, width + 2 * pad).clone()
    padded[:, pad : pad + height, pad : pad + width] = image
    shifts = itertools.product(range(2 * pad + 1), repeat=2)
    crops = [padded[:, down : down + height, right : right + width] for down, right in shifts]
    return [*crops, *(crop.flip(2) for crop in crops)] if flip else crops


@pytest.mark.parametrize(("pad", "flip"), [(0, True), (1, False), (1, True), (2, True)])
def test_every_copy_is_drawn_equally_often(pad: int, flip: bool) -> None:
    # 400 images for each of up to 50 copies: the χ² approximation is good, and α = 1e-6 with a fixed seed.
    image = torch.rand(3, 5, 4, generator=generator(1))
    allowed = torch.stack(copies(image, pad, flip))
    n = 400 * len(allowed)
    out = augment(image.expand(n, 3, 5, 4), pad=pad, flip=flip, black=BLACK, generator=generator())
    same = (out[:, None] == allowed[None]).flatten(2).all(2)
    assert same.any(1).all(), "an image that is none of the copies"
    counts = same.double().sum(0).numpy()
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.parametrize(("pad", "flip"), [(0, True), (1, False), (2, True)])
def test_the_draws_are_shifts_down_and_right_then_mirrors(pad: int, flip: bool) -> None:
    """What a generator gives is fixed: recorded runs must come out the same for ever."""
    images, draws = torch.rand(20, 3, 5, 4), generator(2)
    down, right = torch.randint(2 * pad + 1, (2, 20), generator=draws).tolist() if pad else ([0] * 20, [0] * 20)
    mirrored = torch.randint(2, (20,), generator=draws).tolist() if flip else [0] * 20
    out = augment(images, pad=pad, flip=flip, black=BLACK, generator=generator(2))
    for number, image in enumerate(images):
        place = down[number] * (2 * pad + 1) + right[number] + mirrored[number] * (2 * pad + 1) ** 2
        assert torch.equal(out[number], copies(image, pad, flip=True)[place])


def test_images_are_drawn_independently_and_keep_their_order() -> None:
    images = torch.arange(64.0).view(64, 1, 1, 1).expand(64, 3, 6, 6) + 100
    out = augment(images, pad=1, flip=True, black=BLACK, generator=generator())
    assert torch.equal(out[:, 0, 2, 2], images[:, 0, 2, 2])
    rows_from_above = (out[:, 0, 0, 3] == -1).sum()
    assert 0 < rows_from_above < 64


def test_the_draws_depend_on_the_generator_and_the_number_of_images_only() -> None:
    small, large = torch.rand(9, 1, 4, 4), torch.rand(9, 3, 8, 8)
    left, right = generator(), generator()
    augment(small, pad=1, flip=True, black=BLACK[:1], generator=left)
    augment(large, pad=1, flip=True, black=BLACK, generator=right)
    assert torch.equal(left.get_state(), right.get_state())
    assert torch.equal(
        augment(large, pad=1, flip=True, black=BLACK, generator=generator(5)),
        augment(large, pad=1, flip=True, black=BLACK, generator=generator(5)),
    )


def test_the_input_is_left_alone() -> None:
    images = torch.rand(9, 3, 4, 4)
    before = images.clone()
    augment(images, pad=1, flip=True, black=BLACK, generator=generator())
    assert torch.equal(images, before)


def test_no_augmentation_draws_nothing() -> None:
    draws = generator()
    state = draws.get_state()
    images = torch.rand(2, 3, 4, 4)
    assert augment(images, pad=0, flip=False, black=BLACK, generator=draws) is images
    assert torch.equal(draws.get_state(), state)


def test_a_negative_pad_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^pad\b.*got -1"):
        augment(torch.rand(2, 3, 4, 4), pad=-1, flip=False, black=BLACK, generator=generator())
