"""Test error against batch size along the linear scaling rule (fig:lsr_acc_gnr)."""

import math
from dataclasses import asdict, dataclass

import altair as alt

from svag.experiments.ladder_answer import error_headline
from svag.experiments.ladder_finding import LadderPanelFinding
from svag.experiments.wording import count
from svag.report import look
from svag.report.charts.ladder_regions import Region, batch_axis, draw, names, regions, said

SEED, MEAN, SDE = "one seed", "mean with 95% interval", "SDE limit"
LONE_MEAN = "mean of the seeds"


@dataclass(frozen=True)
class ErrorRow:
    """A test error at a batch size.

    Attributes:
        kind: one seed, the mean (with intervals if any rung has one), or the SDE limit.
        batch_size: B.
        lr: η there.
        error: a fraction.
        low: lower 95% limit; None for one seed, or without spread.
        high: upper limit.
        seed: of one seed.
    """

    kind: str
    batch_size: int
    lr: float
    error: float
    low: float | None = None
    high: float | None = None
    seed: int | None = None


@dataclass(frozen=True)
class ErrorTable:
    """A ladder's errors.

    Attributes:
        rows: seeds, means and, if SVAG was run, SDE limits.
        threshold: the error above which a rung fails; None without one.
        regions: where test error fails, and the predictions of B*.
        diverged: (batch size, seeds that diverged there), which have no error to show.
        answer: the verdict in words.
    """

    rows: list[ErrorRow]
    threshold: float | None
    regions: list[Region]
    diverged: list[tuple[int, int]]
    answer: str


def table(panel: LadderPanelFinding) -> ErrorTable:
    """The rungs of the finding, as rows."""
    rows = []
    mean = MEAN if any(math.isfinite(rung.error_low) for rung in panel.rungs) else LONE_MEAN
    for rung in panel.rungs:
        size, lr = rung.batch_size, rung.lr
        rows += [ErrorRow(SEED, size, lr, error, seed=seed) for seed, error in rung.errors if math.isfinite(error)]
        if math.isfinite(rung.error):
            known = math.isfinite(rung.error_low)
            low, high = (rung.error_low, rung.error_high) if known else (None, None)
            rows.append(ErrorRow(mean, size, lr, rung.error, low, high))
        if rung.sde is not None:
            rows.append(ErrorRow(SDE, size, lr, rung.sde.value, rung.sde.low, rung.sde.high))
    scaling = panel.scaling
    threshold = None if scaling is None or math.isnan(scaling.threshold) else scaling.threshold
    lost = [(rung.batch_size, rung.diverged) for rung in panel.rungs if rung.diverged]
    return ErrorTable(rows, threshold, regions(panel), lost, error_headline(panel))


def chart(found: ErrorTable) -> look.Picture:
    """Seeds and means over the regions, with the threshold."""
    kinds = [kind for kind in (MEAN, LONE_MEAN, SEED, SDE) if any(row.kind == kind for row in found.rows)]
    picked = look.shown("kind", kinds)
    y = alt.Y("error:Q", title="final test error", scale=alt.Scale(zero=False, padding=10)).axis(
        format="%", tickCount=6
    )
    base = (
        alt.Chart(look.data([asdict(row) for row in found.rows]))
        .transform_filter(picked)
        .encode(
            x=batch_axis(),
            color=look.colour("kind", kinds),
            tooltip=[
                "kind:N",
                alt.Tooltip("batch_size:Q", title="batch size"),
                alt.Tooltip("lr:Q", title="learning rate"),
                "seed:O",
                alt.Tooltip("error:Q", title="test error", format=".2%"),
                alt.Tooltip("low:Q", format=".2%"),
                alt.Tooltip("high:Q", format=".2%"),
            ],
        )
    )
    lines = base.transform_filter(alt.datum.kind != SEED).mark_line()
    pointed = base.encode(y=y, shape=look.shape("kind", kinds))
    layers: list[alt.Chart] = draw(found.regions)
    if found.threshold is not None:
        rule = alt.Chart(look.data([{"error": found.threshold}])).mark_rule(style="guide", strokeDash=[5, 4])
        layers.append(rule.encode(y=y, tooltip=[alt.Tooltip("error:Q", title="fails above", format=".2%")]))
    layers += [
        # a layer that has both axes: the fields have no y to zoom
        lines.encode(y=y, strokeDash=look.dash("kind", kinds, quiet=True)).add_params(look.zoom()),
        pointed.transform_filter(alt.datum.kind != SEED).mark_point(filled=True, size=90, opacity=0.9),
        pointed.transform_filter(alt.datum.kind == SEED).mark_point(filled=True, size=35, opacity=0.9),
    ]
    if any(row.low is not None for row in found.rows):
        bars = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=2)
        layers.append(bars.encode(y=alt.Y("low:Q"), y2="high:Q"))
    sizes = [row.batch_size for row in found.rows]
    layers += names(found.regions, min(sizes), max(sizes))
    if found.diverged:
        values = [{"batch_size": size, "said": f"✕ {many}"} for size, many in found.diverged]
        words = alt.Chart(look.data(values)).mark_text(style="guide-words", baseline="bottom")
        layers.append(words.encode(x=batch_axis(), y=alt.value(look.HEIGHT - 6), text="said:N"))
    return alt.layer(*layers).add_params(picked).properties(width=look.WIDTH, height=look.HEIGHT)


def sentence(found: ErrorTable) -> str:
    """The verdict, and what the fields are."""
    lost = "".join(f" {count(many, 'seed')} diverged at batch size {size:,} (✕)." for size, many in found.diverged)
    bars = " Bars: 95% intervals of the mean." if any(row.kind == MEAN for row in found.rows) else ""
    rule = " Dashed line: the error above which a batch size fails." if found.threshold is not None else ""
    return f"{found.answer}{lost}{bars}{rule}{said(found.regions)}"
