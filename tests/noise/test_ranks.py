"""Two gloo ranks against one rank with the same examples."""

import json
from typing import Any

import pytest
import torch
from tests.noise.nets import batches, data, gradient, loss_of, net
from tests.noise.ranks_worker import BATCH, STEPS
from tests.two_ranks import two_ranks
from torch.optim import SGD

from svag import NoiseProbe, Reading


def one_process(parameters: bool = False) -> list[Reading]:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.5)
    chosen = [p for p in model.parameters() if p.ndim > 1] if parameters else None
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, population=1000, parameters=chosen)
    for batch in batches(STEPS, BATCH):
        optimizer.zero_grad()
        probe.backward(loss_of(model), batch, parts=2)
        optimizer.step()
    return probe.readings


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, object]]]:
    return two_ranks("tests.noise.ranks_worker", tmp_path_factory.mktemp("ranks"))


def numbers(reading: Reading) -> dict[str, float]:
    return {name: value for name, value in reading.to_dict().items() if isinstance(value, float | int)}


@pytest.mark.parametrize("style", ["backward", "accumulate", "backward parts", "parameters"])
def test_two_processes_read_what_one_does(ranks: list[dict[str, dict[str, object]]], style: str) -> None:
    reference = one_process(parameters=style == "parameters")
    for rank in ranks:
        found = [Reading(**reading) for reading in rank["results"][style]]  # type: ignore[attr-defined]
        assert len(found) == STEPS
        for mine, theirs in zip(found, reference, strict=True):
            assert mine.optimizer == theirs.optimizer
            assert numbers(mine) == pytest.approx(numbers(theirs), rel=1e-9)


def test_only_a_rank_that_cuts_its_batch_shows_batch_norm_something_else(
    ranks: list[dict[str, dict[str, object]]],
) -> None:
    whole, cut = (Reading(**reading) for reading in ranks[0]["results"]["batch norm"])  # type: ignore[attr-defined]
    assert not whole.approximate
    assert cut.approximate


def test_refusals_are_one_sentence(ranks: list[dict[str, dict[str, object]]]) -> None:
    said = ranks[0]["refusals"]
    assert "already has a communication hook" in str(said["hook"])
    assert "16 examples on each of 2 ranks" in str(said["size"])
    assert "outside no_sync()" in str(said["never"])
    assert "reduced 2 times in one step" in str(said["twice"])


def test_steps_that_nobody_closes_leave_nothing_behind(ranks: list[dict[str, dict[str, object]]]) -> None:
    model = net()
    probe = NoiseProbe(model, SGD(model.parameters(), lr=0.1), batch_size=BATCH)
    probe.backward(loss_of(model), data(BATCH), parts=2)
    (theirs,) = probe.readings
    mine = Reading(**json.loads(str(ranks[0]["refusals"]["readings"])))
    assert (mine.grad_sq, mine.noise_trace) == pytest.approx((theirs.grad_sq, theirs.noise_trace), rel=1e-9)


def test_a_frozen_reading_does_not_stop_the_buffers_from_being_sent(ranks: list[dict[str, dict[str, object]]]) -> None:
    assert ranks[0]["buffers"] == ranks[1]["buffers"]


def test_a_model_takes_one_probe_and_a_closed_probe_refuses(ranks: list[dict[str, dict[str, object]]]) -> None:
    said = ranks[0]["refusals"]
    assert "keep using the first probe" in str(said["second"])
    assert "this probe is closed" in str(said["closed"])


def alone(style: str) -> tuple[list[Reading], list[float], list[float]]:
    """One rank that cuts every batch into the four parts that two ranks have together."""
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.5)
    chosen = [p for p in model.parameters() if p.ndim > 1] if style == "parameters" else None
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, population=1000, parameters=chosen)
    losses = []
    for batch in batches(STEPS, BATCH):
        optimizer.zero_grad()
        losses.append(probe.backward(loss_of(model), batch, parts=4).item())
        optimizer.step()
    weights = [number for p in model.parameters() for number in p.detach().reshape(-1).tolist()]
    return probe.readings, losses, weights


@pytest.mark.parametrize("style", ["backward", "accumulate", "parameters"])
def test_ranks_that_share_a_batch_read_what_one_does(ranks: list[dict[str, Any]], style: str) -> None:
    readings, losses, weights = alone(style)
    for rank in ranks:
        found = rank["shared"][style]
        for mine, theirs in zip(found["readings"], readings, strict=True):
            assert numbers(Reading(**mine)) == pytest.approx(numbers(theirs), rel=1e-9)
            assert mine["n"] == 4
        assert found["weights"] == pytest.approx(weights, rel=1e-11)
        assert found["losses"] == ([] if style == "accumulate" else pytest.approx(losses, rel=1e-12))
    assert ranks[0]["shared"][style]["weights"] == ranks[1]["shared"][style]["weights"]


def test_the_comparison_notices_norms_that_are_not_added_up(ranks: list[dict[str, Any]]) -> None:
    """The negative control: a rank that keeps Σ|g|² to itself trains as before and reads something else."""
    readings, _, weights = alone("backward")
    for rank in ranks:
        assert rank["mute"]["weights"] == pytest.approx(weights, rel=1e-11)
        assert rank["mute"]["readings"][0]["noise_trace"] != pytest.approx(readings[0].noise_trace, rel=1e-2)


def test_parts_of_a_share_show_batch_norm_something_else(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert all(reading["approximate"] for reading in rank["shared batch norm"]["readings"])
        assert not any(reading["approximate"] for reading in rank["shared"]["backward"]["readings"])


def test_what_cannot_be_shared_is_refused(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        said = rank["shared refusals"]
        assert "give every rank its own share of the batch" in said["whole"]
        assert "the ranks had 5 parts in step 0, but batch_size=16 is" in said["sizes"]
        assert said["asked again"] == "0", "reported once"
        assert "check= compares the parts of one process" in said["check"]
        assert "leave out process_group" in said["wrapped"]
    assert "do not divide batch_size=16 into parts of one size" in ranks[0]["shared refusals"]["odd"]


def test_the_gradient_is_that_of_the_batch_even_without_a_reading(ranks: list[dict[str, Any]]) -> None:
    """With parts of different sizes, and in a step that is skipped."""
    expected = gradient(net(), data(BATCH))
    for rank in ranks:
        for name in ("gradient", "skipped"):
            found = torch.tensor([number for row in json.loads(rank["shared refusals"][name]) for number in row])
            torch.testing.assert_close(found, expected.float(), rtol=1e-6, atol=1e-8)
