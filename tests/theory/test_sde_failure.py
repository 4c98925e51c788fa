import math

import pytest
from scipy.optimize import linprog

from svag.theory.bounds import max_lr_of_sde, max_lr_of_second_order_sde, sgd_refutes_sde


def closeness_possible(rho: float, c2: float) -> bool:
    """Is there an SDE within C of an SGD run with G = 1, N = ρ, 2λR/η = 1 + ρ? Its balance is 2λR̄/η = N̄/η."""
    c = math.sqrt(c2)
    return bool(linprog([0, 0], A_eq=[[1 + rho, -rho]], b_eq=[0], bounds=[(1 / c, c)] * 2).success)


@pytest.mark.parametrize("c2", [1.5, 2.0, 5.0])
def test_condition_ii_is_where_no_sde_can_be_close(c2: float) -> None:
    edge = 1 / (c2 - 1)
    assert closeness_possible(edge * 1.0001, c2)
    assert not sgd_refutes_sde(edge * 1.0001, c2)
    assert not closeness_possible(edge * 0.9999, c2)
    assert sgd_refutes_sde(edge * 0.9999, c2)


@pytest.mark.parametrize("c2", [1.5, 2.0, 5.0])
def test_condition_i_is_where_no_sgd_can_be_close(c2: float) -> None:
    """SDE with Ḡ = 1, N̄ = n and 2λR̄ = n; SGD ratios r, g, s: r·n = ηg + s·n."""
    n, c = 0.7, math.sqrt(c2)

    def possible(lr: float) -> bool:
        return bool(linprog([0, 0, 0], A_eq=[[n, -lr, -n]], b_eq=[0], bounds=[(1 / c, c)] * 3).success)

    edge = max_lr_of_sde(n, c2)
    assert possible(edge * 0.9999)
    assert not possible(edge * 1.0001)


@pytest.mark.parametrize("lr_wd", [0.0, 0.3])
def test_first_and_second_order(lr_wd: float) -> None:
    """(2 + ηλ)λR′ = ηG′ + N̄′ with ratios r, g, s to an SDE with Ḡ = 1, N̄ = n: (1 + ηλ/2)r·n = ηg + s·n."""
    n, c = 0.7, math.sqrt(2)

    def possible(lr: float) -> bool:
        return bool(
            linprog([0, 0, 0], A_eq=[[(1 + lr_wd / 2) * n, -lr, -n]], b_eq=[0], bounds=[(1 / c, c)] * 3).success
        )

    edge = max_lr_of_second_order_sde(n, 2.0, lr_wd)
    assert possible(edge * 0.9999)
    assert not possible(edge * 1.0001)


def test_domains() -> None:
    with pytest.raises(ValueError, match="c2"):
        sgd_refutes_sde(1.0, c2=1.0)
    with pytest.raises(ValueError, match="noise_to_signal"):
        max_lr_of_sde(-1.0)
    with pytest.raises(ValueError, match="weight_decay"):
        max_lr_of_second_order_sde(1.0, lr_wd=2.5)
