"""The statements about scale invariance on a network, with a bias that breaks them."""

import pytest

from svag.paper.verify.network import network_checks


@pytest.mark.parametrize("seed", range(5))
def test_the_network_labels_hold_and_fail_on_the_control(seed: int) -> None:
    checks = network_checks(seed)
    labels = ["lem:sc", "lem:sc", "cor:sc", "lem:2nd_sde_hessian"]
    assert [(check.label, check.control) for check in checks] == [(label, c) for c in (False, True) for label in labels]
    assert all(check.passed for check in checks)
