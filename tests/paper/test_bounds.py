"""The looser forms of the bound on κ, beside the sharp one."""

import numpy as np
import pytest

from svag.paper.bounds import plotted_max_kappa, printed_max_kappa
from svag.theory import max_kappa


def test_the_three_forms() -> None:
    assert max_kappa(18.75) == 2 + 18.75
    assert printed_max_kappa(18.75) == 2 * 19.75
    assert plotted_max_kappa(18.75) == 2 * 18.75


@pytest.mark.parametrize("rho", np.logspace(-3, 3, 7))
@pytest.mark.parametrize("c2", [1.1, 2.0, 10.0])
def test_sharp_is_never_looser_than_printed(rho: float, c2: float) -> None:
    assert max_kappa(rho, c2) <= printed_max_kappa(rho, c2)


@pytest.mark.parametrize("bound", [printed_max_kappa, plotted_max_kappa])
def test_a_closeness_below_one_is_refused(bound: type) -> None:
    with pytest.raises(ValueError, match="c2"):
        bound(10.0, 1.0)
