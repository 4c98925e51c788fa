"""C-closeness says whether it was measured at equilibrium."""

import pytest

from svag.lab.experiments.closeness import Closeness


@pytest.mark.parametrize(
    ("sgd", "svag", "where"),
    [
        (1.05, 0.95, "at equilibrium"),
        (0.25, 1.0, "before equilibrium"),
        (1.0, 1.2, "before equilibrium"),
        (None, 0.5, "before equilibrium"),
        (None, 1.0, "(equilibrium not tested)"),
        (None, None, "(equilibrium not tested)"),
    ],
)
def test_where_it_was_measured(sgd: float | None, svag: float | None, where: str) -> None:
    found = Closeness(4, (), 1.5, 1.2, sgd, svag, (10, 10))
    assert found.where == where
    assert f"SGD over SVAG ell=4 {where}: " in dict(found.rows("SGD"))["C-closeness"]
