"""Non-overlapping blocks long enough that their means are as good as independent."""

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from svag.arrays import FloatArray
from svag.stats.samples import finite_row

MIN_BLOCKS = 20
IACT_PER_BLOCK = 10


@dataclass(frozen=True)
class BlockPlan:
    """How a series of `readings` is cut.

    Attributes:
        readings: length of the series.
        iact: its integrated autocorrelation time, in readings.
        blocks: number of blocks; below 2 nothing can be said about the spread.
        length: readings per block. The first readings − blocks × length readings are left out.
    """

    readings: int
    iact: float
    blocks: int
    length: int

    @property
    def enough(self) -> bool:
        """Whether there are the 20 blocks that the promised coverage was measured with."""
        return self.blocks >= MIN_BLOCKS

    @property
    def status(self) -> str:
        """One sentence: what was cut, or how many readings are missing."""
        cut = f"{self.blocks} blocks of {self.length} readings (autocorrelation time {self.iact:.3g})"
        if self.enough:
            return cut
        return f"series too short: only {cut}; record at least {MIN_BLOCKS * self.length} readings, now {self.readings}"

    def means(self, series: ArrayLike) -> FloatArray:
        """Means of the blocks of one series; the oldest readings that fill no block are left out."""
        row = finite_row("series", series)
        if row.size != self.readings:
            raise ValueError(f"the plan is for {self.readings} readings, got {row.size}")
        kept = row[row.size - self.blocks * self.length :]
        means: FloatArray = kept.reshape(self.blocks, self.length).mean(axis=1)
        return means


def plan_blocks(readings: int, iact: float) -> BlockPlan:
    """Cut `readings` readings into 20 blocks, or into fewer when they would be shorter than 10 autocorrelation times.

    >>> plan_blocks(1000, iact=2.0)
    BlockPlan(readings=1000, iact=2.0, blocks=20, length=50)
    >>> print(plan_blocks(150, iact=1.0).status)
    series too short: only 15 blocks of 10 readings (autocorrelation time 1); record at least 200 readings, now 150
    """
    shortest = math.ceil(IACT_PER_BLOCK * iact)
    if readings // MIN_BLOCKS >= shortest:
        return BlockPlan(readings, iact, MIN_BLOCKS, readings // MIN_BLOCKS)
    return BlockPlan(readings, iact, readings // shortest, shortest)


def independent_blocks(readings: int) -> BlockPlan:
    """Return the plan for readings known to be independent: every reading is a block.

    >>> independent_blocks(30)
    BlockPlan(readings=30, iact=1.0, blocks=30, length=1)
    """
    return BlockPlan(readings, 1.0, readings, 1)
