"""Gain, price and training loss of the runs of a gain ladder, against the time of their baseline."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import altair as alt

from svag.lab.experiments.gain_finding import GainFinding, GainRow
from svag.lab.report import look

Drawn = Literal["gain", "price", "train_loss"]
TITLES: dict[Drawn, str] = {
    "gain": "gain: baseline steps of one update",
    "price": "price so far: examples over the baseline's",
    "train_loss": "train loss (nats)",
}


@dataclass(frozen=True)
class GainTable:
    """One quantity of all runs of a panel.

    Attributes:
        drawn: which one.
        baseline: the smallest batch size, whose steps are the time.
        rows: one for every point of the training loss, of the first `SEEDS` seeds of every batch size.
        seeds: how many seeds the batch size with the most of them has.
    """

    drawn: Drawn
    baseline: int
    rows: tuple[GainRow, ...]
    seeds: int


# So many lines of one batch size can be told apart; the others are in the answer, which is about all of them.
SEEDS = 10


def table(found: GainFinding, drawn: Drawn) -> GainTable:
    """The rows of a finding, without gain and price of the baseline itself, which are 1, and without cut last gains."""
    seeds: dict[int, set[int]] = {}
    for row in found.rows:
        seeds.setdefault(row.batch_size, set()).add(row.seed)
    first = {size: set(sorted(there)[:SEEDS]) for size, there in seeds.items()}
    rows = [row for row in found.rows if drawn == "train_loss" or row.batch_size != found.baseline]
    if drawn == "gain":
        end = max((row.baseline_time for row in rows), default=0.0)
        rows = [row for row in rows if row.baseline_time < end]
    rows = [row for row in rows if row.seed in first[row.batch_size]]
    return GainTable(drawn, found.baseline, tuple(rows), max(map(len, seeds.values()), default=0))


def chart(found: GainTable) -> look.Picture:
    """One line a seed, in the colour and the dash of its batch size."""
    rows = [{"series": f"B = {row.batch_size}", **asdict(row)} for row in found.rows]
    series = _series(found.rows)
    picked = look.shown("series", series)
    x = alt.X("baseline_time:Q", title=f"time in steps at batch size {found.baseline}", scale=alt.Scale(nice=False))
    y = alt.Y(f"{found.drawn}:Q", title=TITLES[found.drawn], scale=alt.Scale(zero=False))
    lines = (
        alt.Chart(look.data(rows))
        .transform_filter(picked)
        .mark_line()
        .encode(
            x=x.axis(tickCount=8, format=",d"),
            y=y,
            color=look.colour("series", series),
            strokeDash=look.dash("series", series),
            detail="seed:N",
            tooltip=[
                "series:N",
                "seed:O",
                alt.Tooltip("baseline_time:Q", title="baseline step", format=",.1f"),
                alt.Tooltip("gain:Q", format=".3g"),
                alt.Tooltip("price:Q", format=".3g"),
                alt.Tooltip("train_loss:Q", title="train loss", format=".4g"),
                alt.Tooltip("examples:Q", format=",d"),
            ],
        )
    )
    return alt.layer(lines).add_params(picked, look.zoom()).properties(width=look.WIDTH, height=look.HEIGHT)


def sentence(found: GainTable) -> str:
    """What the lines are."""
    lines = "One line a seed" if found.seeds <= SEEDS else f"One line a seed, the first {SEEDS} of {found.seeds}"
    return f"{lines}. Time is counted in steps of the baseline, batch size {found.baseline}."


def _series(rows: Sequence[GainRow]) -> list[str]:
    return [f"B = {size}" for size in sorted({row.batch_size for row in rows})]
