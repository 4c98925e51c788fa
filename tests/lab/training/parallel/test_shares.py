"""Shares, their weights, and what cannot be shared: without starting a second process."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import small

from svag.lab.data.load import load_data
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec
from svag.lab.training.ranks import ALONE, RankLost, Ranks, kind_of, launched, ranks_answer
from svag.lab.training.state import CheckpointError, refuse_other_number
from svag.lab.training.streams import BatchStream, own_randomness
from svag.lab.training.training import Training, note_on_batch_norm, prepare, refuse_small_shares
from svag.noise.group import LostMessage

CONV = {"arch": "preresnet8", "norm": "group", "width": 0.25}
BATCH_NORM = {**CONV, "norm": "batch"}


def on_rank(spec: RunSpec, rank: int, size: int) -> Training:
    return prepare(spec, load_data("npz", path=spec.data.path), Ranks(rank, size))


@pytest.mark.parametrize(("count", "size"), [(8, 1), (8, 2), (9, 2), (8, 3), (3, 3), (2, 5)])
def test_shares_are_consecutive_and_complete(count: int, size: int) -> None:
    ranks = [Ranks(rank, size) for rank in range(size)]
    assert [row for rank in ranks for row in range(count)[rank.share(count)]] == list(range(count))
    assert max(rank.count(count) for rank in ranks) - min(rank.count(count) for rank in ranks) <= 1
    assert sum(rank.weight(count) for rank in ranks) == pytest.approx(size, rel=1e-14)


def gradient(training: Training, *, weighted: bool = True) -> torch.Tensor:
    batch = BatchStream(training.data, training.spec, "batches", 8).draw()
    loss = training.shared_loss(batch) if weighted else training.loss(training.share(batch))
    loss.backward()
    return torch.cat([p.grad.reshape(-1).double() for p in training.model.parameters() if p.grad is not None])


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_mean_over_ranks_is_the_gradient_of_the_whole_batch(npz: Path, size: int) -> None:
    """To rounding (float32), and without the weights of unequal shares it is not."""
    spec = small(npz, {"model": CONV, "data.augment": {"pad": 1, "flip": True}})
    whole = gradient(on_rank(spec, 0, 1))
    mean = torch.stack([gradient(on_rank(spec, rank, size)) for rank in range(size)]).mean(dim=0)
    assert (mean - whole).norm() <= 1e-6 * whole.norm()
    plain = torch.stack([gradient(on_rank(spec, rank, size), weighted=False) for rank in range(size)]).mean(dim=0)
    assert ((plain - whole).norm() > 1e-3 * whole.norm()) == (8 % size > 0)


@pytest.mark.parametrize(
    ("edits", "size", "sentence"),
    [
        ({}, 9, r"^batch_size: 9 .* 8 "),
        ({"process": {"kind": "svag", "ell": 2, "split": 4}}, 3, r"^batch_size: 3 .* 2 "),
        ({"process": {"kind": "glsr", "parts": 4}}, 3, r"^batch_size: 3 .* 2 "),
        ({"process": {"kind": "gd"}}, 65, r"^batch_size: 65 .* 64 "),
        ({"model": BATCH_NORM}, 5, r"^model\.norm: .* 5 "),
        ({"probe": {"kind": "in_run", "parts": 2}}, 3, r"^probe\.parts: 3 .* 2 "),
    ],
)
def test_what_cannot_be_shared_is_refused(npz: Path, edits: dict[str, Any], size: int, sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        refuse_small_shares(on_rank(small(npz, edits), 0, size))


@pytest.mark.parametrize(
    ("edits", "size"),
    [
        ({}, 8),
        ({"process": {"kind": "gd"}}, 64),
        ({"model": BATCH_NORM}, 4),
        ({"probe": {"kind": "in_run", "parts": 2}, "process": {"kind": "svag", "ell": 2}}, 3),  # its pairs are not cut
    ],
)
def test_what_can_be_shared_is_not_refused(npz: Path, edits: dict[str, Any], size: int) -> None:
    refuse_small_shares(on_rank(small(npz, edits), 0, size))


def test_batch_norm_goes_on_with_its_number_of_processes_only(npz: Path) -> None:
    local, group = (on_rank(small(npz, {"model": model}), 0, 2) for model in (BATCH_NORM, CONV))
    with pytest.raises(CheckpointError, match=r"\bBatchNorm .* 1\b"):
        refuse_other_number(Path("checkpoint.pt"), 1, local.ranks, local.model)
    refuse_other_number(Path("checkpoint.pt"), 2, local.ranks, local.model)
    refuse_other_number(Path("checkpoint.pt"), 1, group.ranks, group.model)
    assert "each of the 2 processes" in note_on_batch_norm(local)
    assert note_on_batch_norm(group) == ""
    assert note_on_batch_norm(on_rank(small(npz, {"model": BATCH_NORM}), 0, 1)) == ""
    synchronised = torch.nn.SyncBatchNorm.convert_sync_batchnorm(local.model)
    refuse_other_number(Path("checkpoint.pt"), 1, local.ranks, synchronised)
    assert note_on_batch_norm(local) == "", "converted in place"


def test_synchronised_batch_norm_needs_equally_many_parts_in_each_process(npz: Path) -> None:
    edits = {"model": BATCH_NORM, "batch_size": 12, "probe": {"kind": "in_run", "parts": 3}}
    local = on_rank(small(npz, edits), 0, 2)
    refuse_small_shares(local)
    torch.nn.SyncBatchNorm.convert_sync_batchnorm(local.model)  # what is below the network, in place
    with pytest.raises(SpecError, match=r"^probe\.parts: SyncBatchNorm .*got 3\b"):
        refuse_small_shares(local)
    even = on_rank(small(npz, edits | {"probe.parts": 4}), 0, 2)
    torch.nn.SyncBatchNorm.convert_sync_batchnorm(even.model)
    refuse_small_shares(even)


def test_torchrun_is_recognised_by_what_it_sets() -> None:
    sets = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    assert launched(sets)
    assert not launched(sets | {"WORLD_SIZE": "1"})
    assert not launched({})


def test_a_message_that_did_not_get_through_is_a_lost_rank() -> None:
    with pytest.raises(RankLost), ranks_answer():
        raise LostMessage("[pair.cc:547] Connection closed by peer [127.0.0.1]:1234")
    with pytest.raises(ZeroDivisionError), ranks_answer():  # an error of this rank stays what it is
        raise ZeroDivisionError


def test_an_error_is_told_to_others_by_a_class_that_they_know() -> None:
    class OwnError(SpecError):
        pass

    OwnError.__module__ = "users_package"
    assert kind_of(OwnError("lr", "no")) is SpecError
    assert kind_of(ZeroDivisionError()) is ZeroDivisionError


def test_layers_draw_differently_on_every_rank_and_occasion() -> None:
    def drawn(rank: int, occasion: str) -> float:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            own_randomness(rank, 7, occasion)
            return torch.rand(()).item()

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ordinary = torch.rand(()).item()
    assert drawn(0, "step 1") == drawn(0, "step 2") == ordinary, "rank 0 follows the stream of an ordinary run"
    assert drawn(1, "step 1") == drawn(1, "step 1")
    assert len({ordinary, drawn(1, "step 1"), drawn(1, "step 2"), drawn(2, "step 1")}) == 4


def test_alone_says_everything_itself() -> None:
    said: list[str] = []
    ALONE.say("a sentence", said.append)
    ALONE.say(None, said.append)
    assert said == ["a sentence"]
    number = torch.ones(())
    assert ALONE.total(number) is ALONE.mean(number) is number
    assert ALONE.first(lambda: 3) == 3
