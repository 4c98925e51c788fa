"""Data sets by name: the embedded one, the real ones where they are installed, and what is refused."""

import os
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from tests.docs.tools import load as load_tool

from svag.lab.data import downloads, sources
from svag.lab.data.downloads import data_folder
from svag.lab.data.load import DATA_NAMES, load_data, to_dataset
from svag.lab.data.sources import CIFAR10, FASHION_MNIST, SOURCES
from svag.lab.specs.parts import FACTS, DataName

DEBIAN = Path("/usr/share/datasets")
needs_fashion = pytest.mark.skipif(
    downloads.find(FASHION_MNIST, DEBIAN) is None, reason="the Debian package dataset-fashion-mnist is not installed"
)
needs_cifar = pytest.mark.skipif(
    "SVAG_DATA" not in os.environ or downloads.find(CIFAR10, data_folder()) is None, reason="no CIFAR-10 in $SVAG_DATA"
)


def test_specs_know_every_data_set_and_its_size() -> None:
    assert sorted(get_args(DataName)) == sorted(DATA_NAMES) == sorted([*FACTS, "npz"])
    assert {name: FACTS[name].examples for name in SOURCES} == {name: SOURCES[name].examples[0] for name in SOURCES}


def test_fashion_small_is_embedded() -> None:
    data = load_data("fashion-small")
    assert str(data) == "fashion-small: 10000 training and 10000 test examples of 1×14×14, 10 classes"
    assert torch.equal(data.test_y.bincount(), torch.full((10,), 1000))
    assert data.train_y.bincount().min() > 900
    assert float(data.train_x.mean()) == pytest.approx(0, abs=1e-4)
    assert float(data.train_x.std()) == pytest.approx(1, abs=1e-4)
    assert float(data.black) == float(data.train_x.min())


def test_the_embedded_file_is_small_and_keeps_its_notice() -> None:
    folder = Path(sources.__file__).parent
    assert (folder / "fashion_small.xz").stat().st_size <= 3_000_000
    assert "Zalando SE" in (folder / "fashion_small.LICENSE").read_text()


@needs_fashion
def test_the_embedded_data_is_what_the_tool_makes_of_the_official_files() -> None:
    made = load_tool("make_fashion_small").reduce(downloads.read(FASHION_MNIST, DEBIAN))
    embedded = sources.read_small()
    for name in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(made, name), getattr(embedded, name))


@needs_fashion
def test_the_real_fashion_mnist() -> None:
    data = load_data("fashion-mnist", data_dir=DEBIAN, pool=2)
    assert (data.train_x.shape, data.test_x.shape) == ((60_000, 1, 14, 14), (10_000, 1, 14, 14))
    assert torch.equal(data.train_y.bincount(), torch.full((10,), 6000))
    mean, std = 0.2860, 0.3530  # of all training pixels, as published
    assert float(data.black) == pytest.approx(-mean / std, rel=1e-3)
    coarse, fine = (
        to_dataset(arrays, "as it is", pool=pool, mean=[0.0], std=[1.0])
        for arrays, pool in ((sources.read_small(), 1), (downloads.read(FASHION_MNIST, DEBIAN), 2))
    )
    assert float((coarse.test_x - fine.test_x).abs().max()) <= 0.5001 / 255  # the same images, rounded to bytes


@needs_cifar
def test_the_real_cifar10() -> None:
    data = load_data("cifar10")
    assert (data.train_x.shape, data.test_x.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert torch.equal(data.train_y.bincount(), torch.full((10,), 5000))
    assert data.train_x.mean((0, 2, 3)).abs().max() < 0.01
    assert data.train_x.std((0, 2, 3)) == pytest.approx(torch.tensor([1.22, 1.22, 1.30]), abs=0.02)


def test_a_subset_and_a_pool() -> None:
    data = load_data("fashion-small", subset=100, pool=7)
    assert data.train_x.shape == (100, 1, 2, 2)


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        ("mnist", None, f"'mnist': .*{', '.join(DATA_NAMES)}"),
        ("npz", None, r"^npz\b.*path"),
        ("fashion-small", "mine.npz", r"^fashion-small\b.*path"),
    ],
)
def test_what_is_refused(name: str, path: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_data(name, path=path)


def test_the_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SVAG_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    assert data_folder("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("SVAG_DATA")
    assert data_folder().name == "svag"
