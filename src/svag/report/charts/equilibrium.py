"""The weight norm: its balance at equilibrium, and E|x|² on its way there.

Of the paper: thm:eq_sde_sgd with eq:RGN_sgd and eq:RGN_sde; eq:norm_sgd_wd and eq:norm_sde_wd.
"""

from collections.abc import Sequence
from dataclasses import asdict

import altair as alt

from svag.findings.weight_norm import OTHER, OWN, BalanceRatio, NormPoint
from svag.report import look


def balance_chart(rows: Sequence[BalanceRatio]) -> look.Picture:
    """Growth over decay with 95% intervals, around the line at 1."""
    kinds = [OWN, OTHER]
    values = [
        {**asdict(row), "held": f"{row.process} in the balance of {row.balance}", "low": row.low, "high": row.high}
        for row in rows
    ]
    base = alt.Chart(look.data(values)).encode(
        y=alt.Y("held:N", title=None, sort=None, axis=alt.Axis(labelLimit=300)),
        color=look.colour("kind", kinds),
        tooltip=["held:N", "kind:N", alt.Tooltip("ratio:Q", format=".4f"), alt.Tooltip("error:Q", format=".2g")],
    )
    x = alt.X("ratio:Q", title="growth / decay of |x|² (1 at equilibrium)", scale=alt.Scale(zero=False)).axis(
        tickCount=8
    )
    one = alt.Chart(look.data([{"one": 1.0}])).mark_rule(style="guide", strokeDash=[4, 3]).encode(x="one:Q")
    bars = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    points = base.mark_point(filled=True, size=80).encode(x=x, shape=look.shape("kind", kinds))
    return alt.layer(one, bars, points).properties(width=look.WIDTH, height=240)


def transient_chart(rows: Sequence[NormPoint]) -> look.Picture:
    """Lines by the recursions, points from the simulation with two standard errors."""
    processes = list(dict.fromkeys(row.process for row in rows))
    values = [{**asdict(row), "low": row.low, "high": row.high} for row in rows]
    base = alt.Chart(look.data(values)).encode(
        x=alt.X("effective_step:Q", title="effective steps"),
        color=look.colour("process", processes),
        tooltip=[
            "process:N",
            "effective_step:Q",
            alt.Tooltip("simulated:Q", format=".4f"),
            alt.Tooltip("predicted:Q", format=".4f"),
        ],
    )
    y = alt.Y("predicted:Q", title="E|x|²  (line: recursion, points: simulation)", scale=alt.Scale(zero=False))
    lines = base.mark_line().encode(y=y, strokeDash=look.dash("process", processes, quiet=True))
    bars = base.mark_rule().encode(y="low:Q", y2="high:Q")
    points = base.mark_point(filled=True, size=28).encode(y="simulated:Q", shape=look.shape("process", processes))
    return alt.layer(lines, bars, points).add_params(look.zoom()).properties(width=look.WIDTH, height=look.HEIGHT)
