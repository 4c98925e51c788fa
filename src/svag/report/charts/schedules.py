"""Learning rates against the effective step, for several ell: they coincide (fig:app_exotic_lr)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import altair as alt

from svag.records.schedules import Constant, Cosine, Steps, Triangle
from svag.report import look

PAPER: Mapping[str, Constant | Steps | Cosine | Triangle] = {
    "cosine": Cosine(floor=0.00125),
    "triangle": Triangle(peaks=(1.0, 0.5), floor=0.00125),
}


@dataclass(frozen=True)
class Row:
    """The learning rate in one update of SVAG: η is held over an effective step, η/ell is applied."""

    schedule: str
    ell: int
    effective_step: float
    lr: float
    applied: float


def table(
    schedules: Mapping[str, Constant | Steps | Cosine | Triangle] = PAPER,
    *,
    lr: float = 0.8,
    steps: int = 62_400,
    ells: Sequence[int] = (1, 4, 16),
    points: int = 81,
) -> list[Row]:
    """η and η/ell at `points` moments of the run, each the update in which it falls."""
    rows = []
    for name, schedule in schedules.items():
        for ell in ells:
            for i in range(points):
                update = min(round(i * (steps * ell) / (points - 1)), steps * ell - 1)
                rate = lr * schedule.multiplier(update // ell, steps)
                rows.append(Row(name, ell, update / ell, rate, rate / ell))
    return rows


def chart(rows: Sequence[Row]) -> look.Picture:
    """Left the rate η of the run in question, the same for every ell; right what is applied in each update."""
    rows_of = look.data([{**asdict(row), "series": f"ell = {row.ell}"} for row in rows])
    series = list(dict.fromkeys(f"ell = {row.ell}" for row in rows))
    schedules = list(dict.fromkeys(row.schedule for row in rows))

    def panel(schedule: str, field: str, title: str) -> alt.Chart:
        drawn: alt.Chart = (
            alt.Chart(rows_of, title=f"{schedule}: {title}")
            .mark_line(strokeWidth=2)
            .encode(
                x=alt.X("effective_step:Q", title="effective steps (updates / ell)"),
                y=alt.Y(f"{field}:Q", title="learning rate"),
                color=look.colour("series", series),
                strokeDash=look.dash("series", series),
                tooltip=["series:N", alt.Tooltip("effective_step:Q", format=",.0f"), "lr:Q", "applied:Q"],
            )
            .transform_filter(alt.datum.schedule == schedule)
            .properties(width=300, height=180)
        )
        return drawn

    return alt.hconcat(
        *(alt.vconcat(panel(one, "lr", "η"), panel(one, "applied", "applied, η/ell")) for one in schedules)
    )


def sentence(rows: Sequence[Row]) -> str:
    """The verdict: against effective steps every ell follows the schedule of SGD."""
    ells = sorted({row.ell for row in rows})
    return (
        f"Against effective steps the learning rate of the run is one curve for ell = {', '.join(map(str, ells))}; "
        "each update applies it divided by ell."
    )
