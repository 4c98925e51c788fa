"""The checks of the gain rule notice a wrong identity, a wrong bound and wrong factors."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from svag.paper.verify import gain_rule
from svag.paper.verify.check import Check, Claim, claims
from svag.theory.gain import Factors, balanced_gain, gain, least_spread, norm_ratio
from svag.theory.optimizers import Rule

right = Factors.at
Exact = Callable[[Claim, Claim], Iterator[Check]]


def failed(checks: Exact) -> list[Check]:
    """The claims that do not hold; what is exact needs no draws."""
    return [check for check in checks(*claims("ours:gain_rule")) if not check.passed and not check.control]


@pytest.mark.parametrize(
    ("name", "wrong", "checks"),
    [
        ("norm_ratio", lambda *args, **kwargs: 1.01 * norm_ratio(*args, **kwargs), gain_rule._quadratics),
        ("norm_ratio", lambda *args, **kwargs: 1.01 * norm_ratio(*args, **kwargs), gain_rule._adaptive_moving),
        ("least_spread", lambda *args: 1.05 * least_spread(*args), gain_rule._both_sides),
        ("least_spread", lambda *args: least_spread(*args) ** 0.9, gain_rule._both_sides),
        ("balanced_gain", lambda *args: 1.001 * balanced_gain(*args), gain_rule._both_sides),
        ("gain", lambda *args: 0.99 * gain(*args), gain_rule._stability),
        ("balanced_gain", lambda rho, kappa, lr_wd: balanced_gain(rho, kappa), gain_rule._both_sides),
    ],
)
def test_a_wrong_formula_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., float], checks: Exact
) -> None:
    assert failed(checks) == []
    monkeypatch.setattr(gain_rule, name, wrong)
    assert failed(checks)


@pytest.mark.parametrize("change", [{"lr": 1.0}, {"eps": 1.0}])
def test_a_factor_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    def wrong(gain: float, rule: Rule, decoupled: bool = False) -> Factors:
        return replace(right(gain, rule, decoupled), **change)

    monkeypatch.setattr(Factors, "at", wrong)
    assert failed(gain_rule._adaptive_steps)
