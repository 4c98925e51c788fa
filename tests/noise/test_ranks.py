"""Two gloo ranks against one rank with the same examples."""

import json
from typing import Any

import pytest
import torch
from tests.noise.nets import batches, data, gradient, loss_of, net
from tests.noise.ranks_worker import BATCH, STEPS, WithUnused, made
from tests.two_ranks import two_ranks
from torch.optim import SGD

from svag import NoiseProbe, Reading


# Which examples of a batch of 16 are a part, where both ranks cut their eight into so many consecutive pieces.
def pieces(parts: int) -> list[list[int]]:
    """The parts of both ranks, one after the other."""
    size = BATCH // 2 // parts
    return [list(range(start, start + size)) for start in range(0, BATCH, size)]


def both(parts: int) -> list[list[int]]:
    """The parts that the ranks have at the same time, together."""
    own = pieces(parts)
    return [own[number] + own[number + parts] for number in range(parts)]


def one_process(
    cut: list[list[int]],
    parameters: bool = False,
    weighted: bool = False,
    every: int = 1,
    unused: bool = False,
    adamw: bool = False,
) -> tuple[list[Reading], list[float]]:
    """The same parts on one rank."""
    model = WithUnused() if unused else net()
    optimizer = made(model, adamw)
    chosen = [p for p in model.parameters() if p.ndim > 1] if parameters else None
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, population=1000, parameters=chosen, every=every)
    for x, y in batches(STEPS, BATCH):
        optimizer.zero_grad()
        for rows in cut:
            (loss_of(model)((x[rows], y[rows])) * len(rows) / BATCH).backward()
            probe.micro_batch(weight=len(rows) / BATCH if weighted else None)
        probe.close_step()
        optimizer.step()
    return list(probe.readings), [number for p in model.parameters() for number in p.detach().reshape(-1).tolist()]


def test_the_parts_of_two_ranks() -> None:
    assert pieces(1) == [list(range(8)), list(range(8, 16))]
    assert both(4)[1] == [2, 3, 10, 11]


def halves(parameters: bool = False) -> list[Reading]:
    model = net()
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.5)
    chosen = [p for p in model.parameters() if p.ndim > 1] if parameters else None
    probe = NoiseProbe(model, optimizer, batch_size=BATCH, population=1000, parameters=chosen)
    for batch in batches(STEPS, BATCH):
        optimizer.zero_grad()
        probe.backward(loss_of(model), batch, parts=2)
        optimizer.step()
    return list(probe.readings)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, object]]]:
    return two_ranks("tests.noise.ranks_worker", tmp_path_factory.mktemp("ranks"))


def numbers(reading: Reading) -> dict[str, float]:
    return {name: value for name, value in reading.to_dict().items() if isinstance(value, float | int)}


@pytest.mark.parametrize("style", ["backward", "accumulate", "alone", "static", "parameters"])
def test_two_processes_read_what_one_does(ranks: list[dict[str, dict[str, object]]], style: str) -> None:
    compare(ranks, style, halves(parameters=style == "parameters"))


@pytest.mark.parametrize(
    ("style", "parts"), [("backward parts", 2), ("micro-batches", 4), ("zeroed", 4), ("reduced", 4)]
)
def test_micro_batches_of_all_ranks_are_the_parts(ranks: list[dict[str, Any]], style: str, parts: int) -> None:
    readings, _ = one_process(pieces(parts))
    compare(ranks, style, readings)
    assert readings[0].n == 2 * parts


def test_weights_are_shares_of_the_step_of_all_ranks(ranks: list[dict[str, Any]]) -> None:
    cut = [list(range(6)), [6, 7], list(range(8, 14)), [14, 15]]
    compare(ranks, "weights", one_process(cut, weighted=True)[0])


def test_steps_in_between_are_trained_without_a_reading(ranks: list[dict[str, Any]]) -> None:
    readings, _ = one_process(pieces(2))
    compare(ranks, "every second", [readings[0], readings[2]])


def test_unused_parameters_count_as_0(ranks: list[dict[str, Any]]) -> None:
    torch.manual_seed(0)
    readings, _ = one_process(pieces(2), unused=True)
    found = [(Reading(**one).grad_sq, Reading(**one).noise_trace) for one in ranks[0]["results"]["unused"]]
    for mine, theirs in zip(found, readings, strict=True):
        assert mine == pytest.approx((theirs.grad_sq, theirs.noise_trace), rel=1e-9)


@pytest.mark.parametrize(
    "style", ["shards", "accumulate", "parameters", "adamw", "copies and a shard", "a copy and shards"]
)
def test_a_sharded_model_reads_what_one_process_does(ranks: list[dict[str, Any]], style: str) -> None:
    readings, weights = one_process(both(4), parameters=style == "parameters", adamw=style == "adamw")
    assert [one.second_moment is None for one in readings] == [style != "adamw" or n == 0 for n in range(STEPS)]
    for rank in ranks:
        found = rank["sharded"][style]
        assert found["weights"] == pytest.approx(weights, rel=1e-10)
        for mine, theirs in zip(found["readings"], readings, strict=True):
            assert numbers(Reading(**mine)) == pytest.approx(numbers(theirs), rel=1e-9)
            assert (mine["n"], mine["velocity_sq"] is None) == (4, theirs.velocity_sq is None)


def test_what_cannot_be_measured_of_a_sharded_model(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        said = rank["sharded refusals"]
        assert "parts must be at least 2, got 1" in said["one part"]
        assert "16 examples" in said["size"]
        assert "replace=True" in said["second"]
        assert "process_group" in said["group"]
        assert "FSDP" in said["svag"]
        assert "synchronisation" in said["unreduced"]
        assert "zero_grad()" in said["stale"]
        assert "Replicate()" in said["replicate"]
        assert "Partial(sum)" in said["partial"]


def test_one_rank_saves_the_readings(ranks: list[dict[str, Any]]) -> None:
    assert [rank["saved"] for rank in ranks] == [1, 1]


def compare(ranks: list[dict[str, Any]], style: str, reference: list[Reading]) -> None:
    for rank in ranks:
        found = [Reading(**reading) for reading in rank["results"][style]]
        assert len(found) == len(reference)
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
    assert "a parameter got two gradients in one micro-batch" in str(said["pass"])
    assert "16 examples" in str(said["size"])
    assert "no_sync()" in str(said["never"])
    assert "reduced 2 times in one step" in str(said["twice"])


def test_steps_that_nobody_closes_leave_nothing_behind(ranks: list[dict[str, dict[str, object]]]) -> None:
    model = net()
    probe = NoiseProbe(model, SGD(model.parameters(), lr=0.1), batch_size=BATCH)
    probe.backward(loss_of(model), data(BATCH), parts=2)
    (theirs,) = probe.readings
    # nor do a communication hook of the user's own, and a probe that was closed before
    for name in ("readings", "hook", "again"):
        mine = Reading(**json.loads(str(ranks[0]["refusals"][name])))
        assert (mine.grad_sq, mine.noise_trace) == pytest.approx((theirs.grad_sq, theirs.noise_trace), rel=1e-9)


def test_a_frozen_reading_does_not_stop_the_buffers_from_being_sent(ranks: list[dict[str, dict[str, object]]]) -> None:
    assert ranks[0]["buffers"] == ranks[1]["buffers"]


def test_a_model_takes_one_probe_and_a_closed_probe_refuses(ranks: list[dict[str, dict[str, object]]]) -> None:
    said = ranks[0]["refusals"]
    assert "replace=True" in str(said["second"])
    assert "closed" in str(said["closed"])


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
    return list(probe.readings), losses, weights


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
        assert "share" in said["whole"]
        assert "batch_size=16" in said["sizes"]
        assert said["asked again"] == "0", "reported once"
        assert "check=" in said["check"]
        assert "process_group" in said["wrapped"]
    assert "batch_size=16" in ranks[0]["shared refusals"]["odd"]


def test_the_gradient_is_that_of_the_batch_even_without_a_reading(ranks: list[dict[str, Any]]) -> None:
    """With parts of different sizes, and in a step that is skipped."""
    expected = gradient(net(), data(BATCH))
    for rank in ranks:
        for name in ("gradient", "skipped"):
            found = torch.tensor([number for row in json.loads(rank["shared refusals"][name]) for number in row])
            torch.testing.assert_close(found, expected.float(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("wrapped", [True, False])
def test_what_would_be_read_wrongly_is_noticed(ranks: list[dict[str, Any]], wrapped: bool) -> None:
    """Hooks learn of a large factor after the first step, which is skipped; from then on it is divided out."""
    for rank in ranks:
        said = rank["noticed"][0 if wrapped else 1]
        large = f"{2.0**66:g}"
        assert (said["1 skipped"], said[f"{large} skipped"]) == (0, 1 if wrapped else 0)
        for name in ("grad_sq", "noise_trace", "param_sq", "param_dot_grad"):
            assert said[large][name] == pytest.approx(said["1"][name], rel=1e-6)
        assert "optimizer.zero_grad()" in said["stale"]
        if wrapped:
            assert "wrap" in said["frozen"]
