"""Two ranks that share every batch by `process_group=` are one rank with all examples, to rounding (float64)."""

from typing import Any

import pytest
from tests.dynamics.sharing_rank import CASES, PASSES, go, pass_over
from tests.two_ranks import two_ranks

ROUNDING = 1e-11


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return two_ranks("tests.dynamics.sharing_rank", tmp_path_factory.mktemp("ranks"))


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["end"] == pytest.approx(other["end"], rel=ROUNDING, abs=1e-14)) and bool(
        one["losses"] == pytest.approx(other["losses"], rel=ROUNDING)
    )


@pytest.mark.parametrize("case", CASES)
def test_svag_on_unequal_shares_is_svag_on_the_whole_batches(ranks: list[Any], case: str) -> None:
    alone = go(case, slice(None), None)
    for rank in ranks:
        assert alike(rank[case], alone)
        assert len(rank[case]["readings"]) == len(alone["readings"]) == 6 * bool(CASES[case].get("track_noise"))
        for mine, theirs in zip(rank[case]["readings"], alone["readings"], strict=True):
            assert mine.keys() == theirs.keys()
            assert mine["batch_size"] == theirs["batch_size"] == 8 * CASES[case].get("split", 1)
            numbers = {name: value for name, value in theirs.items() if isinstance(value, float)}
            assert {name: mine[name] for name in numbers} == pytest.approx(numbers, rel=1e-9)
    assert ranks[0][case]["end"] == ranks[1][case]["end"], "bit for bit the same weights on both"


@pytest.mark.parametrize("case", PASSES)
def test_noisy_gradient_descent_draws_the_noise_of_all_examples_on_every_rank(ranks: list[Any], case: str) -> None:
    alone = pass_over(case, slice(None), None)
    for rank in ranks:
        assert alike(rank[case], alone)
    assert ranks[0][case]["end"] == ranks[1][case]["end"]


def test_one_message_a_sub_step_and_two_when_its_pair_is_measured(ranks: list[Any]) -> None:
    assert ranks[0]["messages"] == {
        "svag": 6, "tracked": 12, "split": 12, "chunks": 4, "sgd": 2, "momentum": 4, "adamw": 6,
        "ngd": 4, "sde": 4, "gd": 4,
    }  # fmt: skip


def test_the_comparison_notices_shares_that_are_not_weighted(ranks: list[Any]) -> None:
    """The negative control: the plain mean over the ranks is another run."""
    alone = go("svag", slice(None), None)
    for rank in ranks:
        assert not alike(rank["unweighted"], alone)
        assert rank["unweighted"]["end"] != pytest.approx(alone["end"], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "about"),
    [
        ("wrapped", "DistributedDataParallel"),
        ("wrapped ngd", "process_group"),
        ("kind", "'gloo'"),
        ("generators", "generators"),
        ("all to all", "9 + 9 examples, not dataset_size=9"),
        ("once", "DataLoader"),
        ("not finite", "step 0"),
    ],
)
def test_what_is_refused_is_refused_by_every_rank(ranks: list[Any], name: str, about: str) -> None:
    for rank in ranks:
        assert about in rank["refusals"][name]
        assert "\n" not in rank["refusals"][name]
