"""Subset, pooling and normalisation against plain numpy."""

import numpy as np
import pytest
import torch

from svag.lab.data.formats import Arrays
from svag.lab.data.load import channel_moments, to_dataset
from svag.lab.specs.fields import SpecError

RNG = np.random.default_rng(0)
BYTES = Arrays(
    RNG.integers(256, size=(50, 3, 6, 8), dtype=np.uint8),
    np.arange(50) % 5,
    RNG.integers(256, size=(20, 3, 6, 8), dtype=np.uint8),
    np.arange(20) % 5,
    5,
)
FLOATS = Arrays(
    (BYTES.train_x / 100).astype(np.float32),
    BYTES.train_y,
    (BYTES.test_x / 100).astype(np.float32),
    BYTES.test_y,
    5,
)


@pytest.mark.parametrize("pool", [1, 2])
@pytest.mark.parametrize(("arrays", "scale"), [(BYTES, 255), (FLOATS, 1)])
def test_pooled_and_normalised_by_the_training_images(arrays: Arrays, scale: int, pool: int) -> None:
    data = to_dataset(arrays, "mine", pool=pool)
    train = arrays.train_x.astype(np.float64) / scale
    mean, std = train.mean((0, 2, 3)), train.std((0, 2, 3))
    blocks = arrays.test_x.astype(np.float64).reshape(20, 3, 6 // pool, pool, 8 // pool, pool).mean((3, 5)) / scale
    expected = (blocks - mean[:, None, None]) / std[:, None, None]
    torch.testing.assert_close(data.test_x.double(), torch.from_numpy(expected), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(data.black.double(), torch.from_numpy(-mean / std), rtol=1e-6, atol=0)
    assert data.train_x.dtype == torch.float32
    assert data.train_y.dtype == torch.int64
    assert (data.in_channels, data.image_size, data.num_classes) == (3, (6 // pool, 8 // pool), 5)
    assert torch.equal(data.train_y, torch.arange(50) % 5)


def test_given_moments_are_used() -> None:
    data = to_dataset(BYTES, "mine", mean=(0.5, 0.25, 0.0), std=(0.5, 0.5, 0.25))
    raw = to_dataset(BYTES, "mine", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    shift = torch.tensor([0.5, 0.25, 0.0]).view(3, 1, 1)
    torch.testing.assert_close(data.train_x, (raw.train_x - shift) / torch.tensor([0.5, 0.5, 0.25]).view(3, 1, 1))
    assert torch.equal(raw.train_x, torch.from_numpy(BYTES.train_x) / 255)
    assert not raw.black.any()


def test_the_moments_of_bytes_are_exact_and_a_constant_channel_is_left_alone() -> None:
    x = np.zeros((2, 2, 1, 2), np.uint8)
    x[:, 0] = [[[0, 255]], [[255, 0]]]
    assert channel_moments(x) == ([0.5, 0.0], [0.5, 1.0])


def test_subsets_are_nested_and_blind_to_labels() -> None:
    small, large = to_dataset(BYTES, "mine", subset=10), to_dataset(BYTES, "mine", subset=30)
    rows = {tuple(row) for row in large.train_x.flatten(1).tolist()}
    assert {tuple(row) for row in small.train_x.flatten(1).tolist()} < rows
    assert len(small.train_x) == len(small.train_y) == 10
    assert len(small.test_x) == 20
    whole = to_dataset(BYTES, "mine")
    where = [int((whole.train_x == image).flatten(1).all(1).nonzero()) for image in small.train_x]
    assert torch.equal(whole.train_y[where], small.train_y), "labels stay with their images"
    relabelled = Arrays(BYTES.train_x, BYTES.train_y * 0, BYTES.test_x, BYTES.test_y, 5)
    assert torch.equal(to_dataset(relabelled, "mine", subset=10).train_x, small.train_x)
    assert torch.equal(to_dataset(BYTES, "mine", subset=10).train_x, small.train_x)


def test_the_subset_does_not_change_the_normalisation() -> None:
    assert torch.equal(to_dataset(BYTES, "mine", subset=5).test_x, to_dataset(BYTES, "mine").test_x)


@pytest.mark.parametrize("subset", [0, -1, 51])
def test_a_subset_that_does_not_exist_is_refused(subset: int) -> None:
    with pytest.raises(SpecError, match=rf"^data\.subset: .* 50 .*got {subset}"):
        to_dataset(BYTES, "mine", subset=subset)


@pytest.mark.parametrize("pool", [0, 3, 4])
def test_a_pool_that_does_not_divide_is_refused(pool: int) -> None:
    with pytest.raises(SpecError, match=rf"^data\.pool: .* 6×8, got {pool}"):
        to_dataset(BYTES, "mine", pool=pool)


@pytest.mark.parametrize(
    "arrays", [BYTES, Arrays(BYTES.train_x[:, :1], BYTES.train_y, BYTES.test_x[:, :1], BYTES.test_y, 5)]
)
def test_another_layout_holds_the_same_images(arrays: Arrays) -> None:
    data = to_dataset(arrays, "mine")
    last = data.laid_out(torch.channels_last)
    assert data.laid_out(torch.contiguous_format) is data
    rows = torch.tensor([3, 1, 3, 40])
    for one, other in ((data, last), (last, last.laid_out(torch.contiguous_format))):
        assert torch.equal(one.train_x, other.train_x)
        assert torch.equal(one.test_x, other.test_x)
        images, labels = other.batch(rows)
        assert torch.equal(images, data.train_x[rows])
        assert torch.equal(labels, data.train_y[rows])
        assert images.stride() == other.train_x.stride()
    channels = last.in_channels
    assert last.train_x.stride() == (48 * channels, 1, 8 * channels, channels)
    assert last.to("cpu").layout is torch.channels_last
