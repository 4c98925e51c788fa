"""The three samplings, their independence, and their state."""

import math
from collections import Counter
from itertools import permutations, product
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, TensorDataset

import svag
from svag.theory.weights import Sampling

SAMPLINGS: list[Sampling] = ["without_replacement", "with_replacement", "shuffle"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("n", "batch_size", "sampling"),
    [(5, 2, "without_replacement"), (3, 2, "without_replacement"), (4, 2, "with_replacement"), (4, 2, "shuffle")],
)
def test_every_ordered_batch_is_equally_likely(n: int, batch_size: int, sampling: Sampling) -> None:
    """Both ways of drawing without replacement are covered: skipping repetitions (n=5) and permuting (n=3).

    20,000 draws: a cell of probability 1/20 has a standard error of 3%; 5.6 of them is α = 1e-6 over at most 20 cells.
    """
    draws = 20_000
    sampler = svag.BatchSampler(n, batch_size, sampling=sampling, generator=seeded())
    counts = Counter(tuple(sampler.draw()) for _ in range(draws))
    cells = product(range(n), repeat=2) if sampling == "with_replacement" else permutations(range(n), batch_size)
    expected = list(cells)
    assert set(counts) == set(expected)
    p = 1 / len(expected)
    for cell in expected:
        assert abs(counts[cell] - draws * p) < 5.6 * math.sqrt(draws * p * (1 - p)), cell


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_only_shuffled_batches_depend_on_each_other(sampling: Sampling) -> None:
    """How often two consecutive batches are the same pair of 4 examples: 1/6, or never inside a shuffled epoch.

    6,000 pairs: the standard error of 1/6 is 0.0048, 4.9 of them is α = 1e-6. With replacement the probability is
    P(the two sets agree) = 4·(1/16)² + 6·(2/16)² = 7/64.
    """
    pairs = 6_000
    sampler = svag.BatchSampler(4, 2, sampling=sampling, generator=seeded(1))
    same = sum(sorted(sampler.draw()) == sorted(sampler.draw()) for _ in range(pairs)) / pairs
    expected = {"without_replacement": 1 / 6, "with_replacement": 7 / 64, "shuffle": 0.0}[sampling]
    assert abs(same - expected) <= 4.9 * math.sqrt(expected * (1 - expected) / pairs)


def test_shuffle_goes_through_epochs_and_drops_what_is_left() -> None:
    sampler = svag.BatchSampler(7, 3, sampling="shuffle", generator=seeded())
    for _ in range(5):
        epoch = sampler.draw() + sampler.draw()
        assert len(set(epoch)) == 6


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("drawn", [0, 1, 2, 3])
def test_a_loaded_state_continues_the_sequence(sampling: Sampling, drawn: int) -> None:
    sampler = svag.BatchSampler(7, 3, sampling=sampling, generator=seeded())
    for _ in range(drawn):
        sampler.draw()
    state = sampler.state_dict()
    future = [sampler.draw() for _ in range(5)]
    other = svag.BatchSampler(7, 3, sampling=sampling, generator=seeded(99))
    other.draw()
    other.load_state_dict(state)
    assert [other.draw() for _ in range(5)] == future


def test_it_drives_a_data_loader_without_end() -> None:
    sampler = svag.BatchSampler(7, 3, generator=seeded())
    loader = DataLoader(TensorDataset(torch.arange(7)), batch_sampler=sampler)
    pairs = svag.independent_pairs(loader)
    expected = svag.BatchSampler(7, 3, generator=seeded())
    for _ in range(20):
        (first,), (second,) = next(pairs)
        assert first.tolist() == expected.draw()
        assert second.tolist() == expected.draw()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"n": 0, "batch_size": 1}, r"^n\b"),
        ({"n": 4, "batch_size": 5}, r"^batch_size\b.*n=4"),
        ({"n": 4, "batch_size": 5, "sampling": "shuffle"}, r"^batch_size\b.*n=4"),
        ({"n": 4, "batch_size": 2, "sampling": "bootstrap"}, r"^sampling\b"),
        ({"n": 4, "batch_size": 2, "generator": None}, r"^generator\b"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=sentence):
        svag.BatchSampler(**{"generator": seeded()} | arguments)


def test_a_state_of_another_sampler_is_refused() -> None:
    state = svag.BatchSampler(7, 3, generator=seeded()).state_dict()
    with pytest.raises(ValueError, match=r"batch_size=3.*batch_size=2"):
        svag.BatchSampler(7, 2, generator=seeded()).load_state_dict(state)


def test_pairs_take_consecutive_batches_and_use_none_twice() -> None:
    assert list(svag.independent_pairs(iter(range(5)))) == [(0, 1), (2, 3)]
    again = svag.independent_pairs([0, 1, 2])
    assert [next(again) for _ in range(3)] == [(0, 1), (2, 0), (1, 2)]
    assert list(svag.independent_pairs([])) == []


def test_loaders_known_to_be_independent_pass_and_shuffled_ones_do_not() -> None:
    data = TensorDataset(torch.arange(8))
    drawn_singly = DataLoader(data, 2, sampler=RandomSampler(data, replacement=True, generator=seeded()))
    assert next(svag.independent_pairs(drawn_singly))

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(8))

    assert next(svag.independent_pairs(DataLoader(Stream(), 2)))
    shuffled = svag.BatchSampler(8, 2, sampling="shuffle", generator=seeded())
    with pytest.raises(ValueError, match=r"svag\.BatchSampler"):
        svag.independent_pairs(DataLoader(data, batch_sampler=shuffled))
    with pytest.raises(ValueError, match=r"\bBatchSampler\b.*svag\.BatchSampler"):
        svag.independent_pairs(shuffled)
    assert next(svag.independent_pairs(svag.BatchSampler(8, 2, generator=seeded())))
    with pytest.raises(ValueError, match=r"svag\.BatchSampler"):
        svag.independent_pairs(DataLoader(data, batch_sampler=[[0, 1], [2, 3]]))
