"""Pairs of independent batches, which every SVAG step needs (eq:svag_iter)."""

import warnings
from collections.abc import Iterable, Iterator

from torch.utils.data import BatchSampler as TorchBatchSampler
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, WeightedRandomSampler

from svag.dynamics.batch import Batch
from svag.dynamics.sampler import BatchSampler

REMEDY = "use DataLoader(dataset, batch_sampler=svag.BatchSampler(len(dataset), batch_size, generator=generator))"


def independent_pairs(loader: Iterable[Batch], *, allow_shuffle: bool = False) -> Iterator[tuple[Batch, Batch]]:
    """Consecutive batches of a loader whose batches are independent, two by two, each used once.

    A loader that ends is started again; an iterator that ends, ends. A `DataLoader` that goes through the data in
    epochs is refused: its batches are disjoint, hence dependent, and over an epoch SGD's noise cancels while SVAG's
    unequal weights restore it. Other iterables are taken at their word.

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
        return True  # it draws for itself: nothing to see from here
    sampler = loader.batch_sampler
    if isinstance(sampler, BatchSampler):
        return _independent(sampler)
    if isinstance(sampler, TorchBatchSampler):
        return isinstance(sampler.sampler, RandomSampler | WeightedRandomSampler) and bool(sampler.sampler.replacement)
    return False
