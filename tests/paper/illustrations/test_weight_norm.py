"""Balances and transient of the weight norm, simulated, against the paper's formulas."""

from svag.paper.illustrations.weight_norm import OWN, norm_balances, norm_transient


def test_balances_hold_for_their_own_process_only() -> None:
    # 200 chains over 40 steps leave a standard error of about 3%; the other balances are off by 13% and more.
    found = norm_balances(chains=200, window=40)
    for row in found.rows:
        z = abs(row.ratio - 1) / row.error
        assert (z < 4.9) == (row.kind == OWN) or abs(row.ratio - 1) > 0.05, row
        assert row.low < row.ratio < row.high
    assert [row.process for row in found.rows[::2]] == ["SGD", "NGD", "SVAG(4)", "Itô SDE"]
    assert all((row.process == row.balance) == (row.kind == OWN) for row in found.rows if row.process != "NGD")


def test_the_transient_follows_both_recursions() -> None:
    # 400 chains and 2 × 31 correlated comparisons: 6 standard errors is α below 1e-6 for all of them together.
    found = norm_transient(chains=400, steps=30)
    assert found.worst < 6
    ends = {row.process: row.simulated for row in found.rows}
    assert ends["SGD"] > ends["Itô SDE"] + 0.2  # the discrete steps add η²G
    assert f"at most {found.worst:.1f} standard errors" in str(found)
