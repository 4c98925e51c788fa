"""Do two groups fail equally often? Fisher's exact test, for a handful of runs."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from svag.stats.curves import smallest_p


@dataclass(frozen=True)
class RateTest:
    """Result of Fisher's test.

    Attributes:
        p_value: two-sided.
        smallest_p: what p would be if all of one group failed and none of the other: the best these sizes can do.
    """

    p_value: float
    smallest_p: float


def compare_rates(failed_one: int, of_one: int, failed_other: int, of_other: int) -> RateTest:
    """Compare `failed_one` failures of `of_one` runs with `failed_other` of `of_other`.

    >>> compare_rates(3, 3, 0, 3)  # three against three can never reach 5%
    RateTest(p_value=0.1..., smallest_p=0.1)
    """
    for failed, of in ((failed_one, of_one), (failed_other, of_other)):
        if not 0 <= failed <= of or of < 1:
            raise ValueError(f"failures must be counted among at least one run, got {failed} of {of}")
    table = np.array([[failed_one, of_one - failed_one], [failed_other, of_other - failed_other]])
    return RateTest(float(stats.fisher_exact(table).pvalue), smallest_p(of_one, of_other))
