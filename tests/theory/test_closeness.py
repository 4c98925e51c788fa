import math

import pytest

from svag.theory.bounds import Equilibrium, is_lsi, smallest_c2, smallest_lsi_c2


def test_the_worst_of_three_ratios_decides_in_either_direction() -> None:
    one = Equilibrium(1.0, 1.0, 1.0)
    for other in (Equilibrium(3.0, 1.0, 1.0), Equilibrium(1.0, 1 / 3, 1.0), Equilibrium(1.0, 1.0, 3.0)):
        assert smallest_c2(one, other) == pytest.approx(9.0)
        assert smallest_c2(other, one) == pytest.approx(9.0)


def test_linear_scaling_compares_kappa_times_the_noise() -> None:
    base, scaled = Equilibrium(1.0, 1.0, 8.0), Equilibrium(1.0, 1.0, 1.0)
    assert smallest_lsi_c2(base, scaled, kappa=8) == 1.0
    assert smallest_lsi_c2(base, scaled, kappa=4) == 4.0


def test_invariance_needs_c_below_the_root_of_kappa() -> None:
    one = Equilibrium(1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="C² < κ"):
        is_lsi(one, one, kappa=2.0, c2=2.0)
    assert not is_lsi(one, Equilibrium(2.0, 1.0, 0.25), kappa=4.0, c2=2.0)


@pytest.mark.parametrize("values", [(-1.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, -2.0), (1.0, math.nan, 1.0)])
def test_an_equilibrium_has_positive_values(values: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Equilibrium(*values)
