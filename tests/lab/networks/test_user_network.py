"""A user's own network: found, identified by its source, built with the same flags and checked as ours are."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from svag.lab.networks.build import build_model
from svag.lab.networks.own import check_network


class Odd(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.scale = kind, nn.Parameter(torch.ones(()))
        self.constant = torch.eye(16)[:, :10]  # a plain attribute: .double() does not reach it

    def forward(self, x: torch.Tensor) -> object:
        logits = self.scale * (x.flatten(1) @ self.constant)
        if self.kind == "raises":
            raise NameError("undefined")
        return (logits, logits) if self.kind == "tuple" else logits


@pytest.mark.parametrize(("kind", "message"), [("tuple", "got tuple"), ("raises", "NameError")])
def test_a_forward_that_goes_wrong_is_one_sentence(kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_network(Odd(kind), torch.rand(4, 1, 4, 4), 10, scale_invariant=False)


def test_images_that_cannot_tell_are_named() -> None:
    network = build_model(
        "mlp", norm="layer", scale_invariant=True, in_channels=1, num_classes=3, image_size=(4, 4), width=1 / 16
    )
    with pytest.raises(ValueError, match=r"\bfirst 4 "):
        check_network(network, torch.zeros(4, 1, 4, 4), 3, scale_invariant=True)


def test_constants_in_single_precision_are_no_obstacle() -> None:
    check_network(Odd("fine"), torch.rand(4, 1, 4, 4), 10, scale_invariant=False)
    with pytest.raises(ValueError, match=r" 3 .*%"):
        check_network(Odd("fine"), torch.rand(4, 1, 4, 4), 10, scale_invariant=True)


NETS = """
import torch
from torch import nn

def build(in_channels, num_classes, width=1):
    hidden = int(8 * width)
    return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * 16, hidden), nn.Linear(hidden, num_classes))

def fixed():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 10))

def invariant(num_classes):
    last = nn.Linear(8, num_classes).requires_grad_(False)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8, bias=False), nn.LayerNorm(8, elementwise_affine=False), last)

def frozen():
    return fixed().requires_grad_(False)

def unbounded():
    network = fixed()
    nn.init.constant_(network[1].weight, float("nan"))
    return network

def swallows(**flags):
    assert set(flags) == {"norm", "width", "in_channels", "num_classes", "scale_invariant", "image_size"}, flags
    return fixed()

def needs(colour):
    return fixed()

def fails():
    raise KeyError("no such layer")

def wrong():
    return 3

LIMIT = 4
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package in the current folder, under a name of its own so that no import is cached."""
    name = f"nets_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_it_is_built_with_the_flags_that_it_names(nets: str) -> None:
    network = build_model(f"{nets}:build", width=2, in_channels=1, num_classes=3)
    assert network(torch.zeros(5, 1, 4, 4)).shape == (5, 3)
    assert next(p.shape for p in network.parameters()) == (16, 16)
    assert isinstance(build_model(f"{nets}:swallows"), nn.Module)


def test_the_first_weights_come_from_the_generator_alone(nets: str) -> None:
    state = torch.get_rng_state()
    weights = [
        next(build_model(f"{nets}:fixed", generator=torch.Generator().manual_seed(seed)).parameters())
        for seed in (0, 0, 1)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere_at_all:build", "nowhere_at_all: ModuleNotFoundError"),
        ("{nets}:absent", "'absent'"),
        ("{nets}:LIMIT", "'LIMIT'"),
        ("{nets}:", r"package\.module:callable"),
        ("../{nets}:build", r"package\.module:callable"),
        ("{nets}:needs", r"\bcolour: .*norm, width, in_channels"),
        ("{nets}:fails", "KeyError: "),
        ("{nets}:wrong", r"torch\.nn\.Module, got int"),
    ],
)
def test_what_cannot_be_built_is_one_sentence(nets: str, path: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_model(path.format(nets=nets))


def test_a_flag_that_it_does_not_take_is_refused(nets: str) -> None:
    with pytest.raises(ValueError, match=r"'width'.*width=2\b"):
        build_model(f"{nets}:fixed", width=2)
    with pytest.raises(ValueError, match=r"'norm'.*norm='group'"):
        build_model(f"{nets}:fixed", norm="group")


@pytest.mark.parametrize(
    ("name", "scale_invariant", "message"),
    [
        ("fixed", False, None),
        ("invariant", True, None),
        ("fixed", True, r" 3 .*%"),
        ("frozen", False, "requires_grad"),
        ("unbounded", False, r"\bfinite\b"),
    ],
)
def test_the_checks(nets: str, name: str, scale_invariant: bool, message: str | None) -> None:
    network = build_model(f"{nets}:{name}", scale_invariant=scale_invariant)
    images = torch.randn(6, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    if message is None:
        check_network(network, images, 10, scale_invariant=scale_invariant)
    else:
        with pytest.raises(ValueError, match=message):
            check_network(network, images, 10, scale_invariant=scale_invariant)


def test_wrong_shapes_are_named(nets: str) -> None:
    network = build_model(f"{nets}:fixed")
    with pytest.raises(ValueError, match=r" 7 .*\(6, 10\) .* 6 "):
        check_network(network, torch.zeros(6, 1, 4, 4), 7, scale_invariant=False)
    with pytest.raises(ValueError, match=r" 1×5×5: RuntimeError: "):
        check_network(network, torch.zeros(6, 1, 5, 5), 10, scale_invariant=False)


@pytest.mark.parametrize("norm", ["batch", "group", "layer"])
def test_our_networks_pass_and_are_left_as_they_were(norm: str) -> None:
    network = build_model("preresnet8", norm, 0.5, 1, scale_invariant=True)  # type: ignore[arg-type]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    check_network(network, torch.randn(8, 1, 14, 14, generator=torch.Generator()), 10, scale_invariant=True)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
