"""Endless batches of indices from a generator whose position can be saved, and independent pairs (eq:svag_iter)."""

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import torch
from torch import Generator
from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, WeightedRandomSampler

from svag.dynamics.gradient_pass import Batch
from svag.theory import domain
from svag.theory.weights import Sampling


class BatchSampler:
    """Batches of indices for `DataLoader(dataset, batch_sampler=…)`, without end.

    - "without_replacement" (the default): the examples of a batch are different, and every batch is drawn
      independently of all others. Both arms of a comparison of SGD and SVAG should use it.
    - "with_replacement": every example is drawn independently.
    - "shuffle": the usual epochs. Batches of one epoch are not independent of each other, which SVAG needs; the
      examples left over at the end of an epoch are dropped.

    >>> sampler = BatchSampler(10, 4, generator=Generator().manual_seed(0))
    >>> batch = next(iter(sampler))
    >>> len(set(batch))
    4

    Args:
        n: number of examples.
        batch_size: B.
        sampling: how batches are drawn.
        generator: where the randomness comes from, on the CPU.

    A DataLoader with workers draws batches ahead of time, so the saved state is ahead as well: save when no batch has
    been fetched in advance, or load in the main process.
    """

    def __init__(
        self, n: int, batch_size: int, *, sampling: Sampling = "without_replacement", generator: Generator
    ) -> None:
        self.n = domain.whole("n", n)
        self.batch_size = domain.whole("batch_size", batch_size)
        domain.one_of("sampling", sampling, get_args(Sampling))
        if sampling != "with_replacement" and batch_size > n:
            raise ValueError(f"batch_size={batch_size} exceeds the n={n} examples: draw with_replacement or fewer")
        if not isinstance(generator, Generator):
            given = domain.shown(generator)
            raise TypeError(f"generator must be a torch.Generator, got {given}: give torch.Generator().manual_seed(0)")
        if generator.device.type != "cpu":
            raise ValueError(f"generator is on {generator.device}, but indices are drawn on the CPU: give a CPU one")
        self.sampling = sampling
        self._generator = generator
        self._epoch: list[int] = []
        self._epoch_began = generator.get_state()
        self._position = 0

    def __iter__(self) -> Iterator[list[int]]:
        while True:
            yield self.draw()

    def draw(self) -> list[int]:
        """The next batch."""
        if self.sampling == "with_replacement":
            return self._indices(self.batch_size)
        if self.sampling == "without_replacement":
            return self._different()
        if self._position + self.batch_size > len(self._epoch):
            self._epoch_began, self._position = self._generator.get_state(), 0
            self._epoch = self._permutation()
        self._position += self.batch_size
        return self._epoch[self._position - self.batch_size : self._position]

    def state_dict(self) -> dict[str, Any]:
        """Where the sampler is, its generator included."""
        return {
            "n": self.n,
            "batch_size": self.batch_size,
            "sampling": self.sampling,
            "generator": self._generator.get_state(),
            "epoch_began": self._epoch_began,
            "position": self._position,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        for name, mine in (("n", self.n), ("batch_size", self.batch_size), ("sampling", self.sampling)):
            if state[name] != mine:
                raise ValueError(f"the state was saved with {name}={state[name]}, but this sampler has {name}={mine}")
        self._epoch_began, self._position = state["epoch_began"], state["position"]
        if self._position:
            self._generator.set_state(self._epoch_began)
            self._epoch = self._permutation()
        else:
            self._epoch = []
        self._generator.set_state(state["generator"])

    def __repr__(self) -> str:
        return f"BatchSampler({self.n}, {self.batch_size}, sampling={self.sampling!r})"

    def _different(self) -> list[int]:
        """B different indices: draw one after the other and skip repetitions, unless most of the data is asked for."""
        if 2 * self.batch_size > self.n:
            return self._permutation()[: self.batch_size]
        drawn: dict[int, None] = {}
        while len(drawn) < self.batch_size:
            drawn.update(dict.fromkeys(self._indices(self.batch_size)))
        return list(drawn)[: self.batch_size]

    def _indices(self, count: int) -> list[int]:
        found: list[int] = torch.randint(self.n, (count,), generator=self._generator).tolist()
        return found

    def _permutation(self) -> list[int]:
        order: list[int] = torch.randperm(self.n, generator=self._generator).tolist()
        return order


REMEDY = "use DataLoader(dataset, batch_sampler=svag.BatchSampler(len(dataset), batch_size, generator=generator))"


def independent_pairs(loader: Iterable[Batch], *, allow_shuffle: bool = False) -> Iterator[tuple[Batch, Batch]]:
    """Consecutive batches of a loader whose batches are independent, two by two, each used once.

    A loader that ends is started again; an iterator that ends is not. A `DataLoader` that goes through the data in
    epochs is refused: its batches are disjoint, hence dependent, and over an epoch SGD's noise cancels while SVAG's
    unequal weights restore it. Other iterables are assumed to yield independent batches.

    >>> next(independent_pairs(iter([1, 2, 3])))
    (1, 2)

    Args:
        loader: a `DataLoader` over a `svag.BatchSampler`, or any iterable of independent batches.
        allow_shuffle: accept dependent batches, with a warning.
    """
    if not _independent(loader):
        if not allow_shuffle:
            raise ValueError(
                f"this {type(loader).__name__} draws its batches in epochs, so they are not independent: {REMEDY}"
            )
        warnings.warn(
            "batches of a shuffled epoch are not independent: a comparison over ell now mixes sampling with "
            f"discretisation; {REMEDY}",
            stacklevel=2,
        )
    return _pairs(loader)


def _pairs(loader: Iterable[Batch]) -> Iterator[tuple[Batch, Batch]]:
    batches = _endless(loader)
    while True:
        try:
            first, second = next(batches), next(batches)
        except StopIteration:
            return
        yield first, second


def _endless(loader: Iterable[Batch]) -> Iterator[Batch]:
    """All batches, again and again unless the loader is an iterator, which cannot start again."""
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
        if empty or iter(loader) is loader:
            return


def _independent(loader: Iterable[Batch]) -> bool:
    if isinstance(loader, BatchSampler):
        return loader.sampling != "shuffle"
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return True  # it draws batches by itself, which cannot be inspected
    sampler = loader.batch_sampler
    if isinstance(sampler, BatchSampler):
        return _independent(sampler)
    if isinstance(sampler, TorchBatchSampler):
        return isinstance(sampler.sampler, RandomSampler | WeightedRandomSampler) and bool(sampler.sampler.replacement)
    return False
