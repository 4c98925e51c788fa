"""Two gloo ranks by the gain rule: the same gain on both to the last bit, and that of one process to rounding."""

from typing import Any

import pytest
import torch
from tests.dynamics.gain_rank import BATCH, CASES, STEPS, batches, made, train
from tests.noise.nets import Pair, net
from tests.two_ranks import two_ranks

from svag import NoiseProbe


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return two_ranks("tests.dynamics.gain_rank", tmp_path_factory.mktemp("ranks"))


def interleaved(batch: Pair) -> Pair:
    """The parts of a sharded model are the micro-batches that both ranks have at the same time, together."""
    rows = torch.arange(BATCH).reshape(2, 4, 2).transpose(0, 1).reshape(-1)
    return batch[0][rows], batch[1][rows]


def alone(name: str) -> dict[str, Any]:
    """One process with the same parts."""
    model = net()
    optimizer = made(model, "adamw" in name)
    all_ = batches()
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, population=1000)
    return train(model, probe, optimizer, [interleaved(b) for b in all_] if "sharded" in name else all_, 4)


@pytest.mark.parametrize("name", CASES)
def test_both_ranks_have_the_same_gain_to_the_last_bit(ranks: list[Any], name: str) -> None:
    assert ranks[0][name] == ranks[1][name]
    assert len(set(ranks[0][name]["gains"])) > 2


@pytest.mark.parametrize("name", [name for name in CASES if "short" not in name])
def test_two_ranks_train_as_one_process_does(ranks: list[Any], name: str) -> None:
    reference = alone(name)
    for key in ("gains", "time", "price", "end"):
        assert ranks[0][name][key] == pytest.approx(reference[key], rel=1e-8, abs=1e-12)


def test_a_short_batch_of_several_ranks_holds_the_gain(ranks: list[Any]) -> None:
    gains = ranks[0]["wrapped short"]["gains"]
    assert gains[3] == gains[2]
    assert len(gains) == STEPS + 1
