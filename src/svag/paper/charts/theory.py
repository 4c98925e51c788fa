"""The pictures of the theory: SVAG and its SDE, noise that is not Gaussian, and the weight norm.

- Weak errors, sample paths and learning rates: thm:sde_svag, fig:proof_concept and fig:app_exotic_lr.
- Laws under Poisson gradients, and N where tails may be heavy: sec:counterexample and sec:app_heayvtailed.
- The diagram of limits and the idea of the proof: fig:diagram and fig:app_proof_overview.
- The balance at equilibrium, and E|x|² on its way there: thm:eq_sde_sgd with eq:RGN_sgd and eq:RGN_sde; eq:norm_sgd_wd
  and eq:norm_sde_wd.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict

import altair as alt

from svag.lab.report import look
from svag.paper.illustrations.curves import REFERENCE, CdfPoint, LawDistance, LearningRate, SamplePaths, WeakError
from svag.paper.illustrations.drawings import PLACES, SVAG, Diagram, HybridPoint
from svag.paper.illustrations.heavy_tails import TracePoint
from svag.paper.illustrations.weight_norm import OTHER, OWN, BalanceRatio, NormPoint


def weak_error_chart(rows: Sequence[WeakError]) -> look.Picture:
    """One panel a degree, both axes logarithmic: what converges at order 1 runs parallel to the reference."""
    series = look.DrawnSeries("series", [row.series for row in rows if row.series != REFERENCE], grey=[REFERENCE])
    y = alt.Y("error:Q", title="weak error, maximum over steps", scale=look.log_scale())
    base = alt.Chart().encode(
        x=alt.X("ell:Q", title="ell (refinement)", scale=look.log_scale(2)),
        y=y.axis(format=".0e", tickCount=5),
        color=series.colour,
        tooltip=look.tips("series", "degree", ell="d", error=".3g"),
    )
    lines = base.mark_line().encode(strokeDash=series.dash(quiet=True))
    points = base.mark_point(filled=True, size=40).encode(shape=series.shape)
    points = points.transform_filter(alt.datum.series != REFERENCE)
    names = alt.Header(title=None, labelExpr="'degree ' + datum.value")
    drawn = alt.layer(lines, points, data=look.data(rows))
    return drawn.properties(width=185, height=240).facet(column=alt.Column("degree:O", header=names))


def sample_path_chart(samples: SamplePaths) -> look.Picture:
    """One panel a process, the same ellipses under all of them."""
    processes = list(dict.fromkeys(row.process for row in samples.paths))
    paths = look.data([{**asdict(row), "one": f"path {row.path + 1}"} for row in samples.paths])
    levels = look.data(samples.levels)
    names = [f"path {row.path + 1}" for row in samples.paths]
    x, y = (alt.X("x:Q", title="first weight"), alt.Y("y:Q", title="second weight"))

    def panel(process: str) -> look.Picture:
        ellipses = (
            alt.Chart(levels)
            .mark_line(style="backdrop")
            .encode(x=x, y=y, order="order:Q", detail="level:N", tooltip=[alt.Tooltip("level:Q", format=".0%")])
        )
        lines = (
            alt.Chart(paths)
            .mark_line(strokeWidth=1.2, point=alt.OverlayMarkDef(size=20) if process == "SGD" else False)
            .encode(x=x, y=y, order="order:Q", color=look.DrawnSeries("one", names).colour.legend(None))
            .transform_filter(alt.datum.process == process)
        )
        return alt.layer(ellipses, lines, title=process).properties(width=250, height=250)

    drawn: alt.HConcatChart = alt.hconcat(*map(panel, processes)).resolve_scale(x="shared", y="shared")
    return drawn


def learning_rate_chart(rows: Sequence[LearningRate]) -> look.Picture:
    """One column a schedule: above the rate η of the run, the same for every ell; below what each update applies."""
    rows_of = look.data([{**asdict(row), "series": f"ell = {row.ell}"} for row in rows])
    series = look.DrawnSeries("series", [f"ell = {row.ell}" for row in rows])
    schedules = list(dict.fromkeys(row.schedule for row in rows))

    def panel(schedule: str, field: str, title: str) -> alt.Chart:
        drawn: alt.Chart = (
            alt.Chart(rows_of, title=f"{schedule}: {title}")
            .mark_line(strokeWidth=2)
            .encode(
                x=alt.X("effective_step:Q", title="effective steps (updates / ell)"),
                y=alt.Y(f"{field}:Q", title="learning rate"),
                color=series.colour,
                strokeDash=series.dash(),
                tooltip=look.tips("series", effective_step=",.0f", lr="g", applied="g"),
            )
            .transform_filter(alt.datum.schedule == schedule)
            .properties(width=300, height=180)
        )
        return drawn

    return alt.hconcat(
        *(
            alt.vconcat(panel(schedule, "lr", "η"), panel(schedule, "applied", "applied, η/ell"))
            for schedule in schedules
        )
    )


def cdf_chart(rows: Sequence[CdfPoint]) -> look.Picture:
    """The distribution functions: the steps of SGD stay, SVAG's become the smooth curve of the SDE."""
    series = look.DrawnSeries("law", [row.law for row in rows])
    x = alt.X("x:Q", title="weight after T examples", scale=alt.Scale(zero=False, nice=False))
    y = alt.Y("probability:Q", title="probability of a smaller weight", scale=alt.Scale(domain=[0, 1]))
    base = series.base(rows, x, look.tips(x=".3f", probability=".4f"))
    steps = base.mark_line(interpolate="step-after", strokeWidth=1.8)
    return series.layered(steps.encode(y=y, strokeDash=series.dash()))


def distance_chart(rows: Sequence[LawDistance]) -> look.Picture:
    """Distances from the law of the SDE against ell, on logarithmic axes."""
    series = look.DrawnSeries("process", [row.process for row in rows])
    x = alt.X("ell:Q", title="ell (refinement)", scale=look.log_scale(2))
    y = alt.Y("distance:Q", title="Kolmogorov distance from the SDE", scale=look.log_scale())
    return series.layered(*series.points(series.base(rows, x, look.tips(ell="d", distance=".4f")), y, size=60))


def noise_trace_chart(rows: Sequence[TracePoint]) -> look.Picture:
    """The estimate of N against the number of batches, relative to the first one: flat, or growing with heavy tails."""
    series = look.DrawnSeries("source", [row.source for row in rows])
    x = alt.X("batches:Q", title="batches", scale=look.log_scale(2))
    y = alt.Y("relative:Q", title="estimate of N, first estimate = 1", scale=look.log_scale())
    return series.layered(*series.points(series.base(rows, x, look.tips(batches="d", noise_trace=".4g")), y))


_BESIDE = {("NGD", "SVAG"): 0.035, ("NGD", "LSR"): -0.035}  # two arrows between the same two places
_GAP = 0.14  # from the middle of a name to where an arrow begins or ends


def diagram_chart(limits: Diagram) -> look.Picture:
    """The names in a square, and an arrow for every limit, with the order at which it is reached."""
    lines, heads, words = [], [], []
    for arrow in limits.arrows:
        (left, low), (right, high) = PLACES[arrow.start], PLACES[arrow.end]
        beside, slope = _BESIDE.get((arrow.start, arrow.along), 0.0), (high - low) / (right - left)
        ends = {"x": left + _GAP, "y": low + beside + slope * _GAP}
        ends |= {"x2": right - _GAP, "y2": high + beside - slope * _GAP}
        tilt = math.degrees(math.atan2((high - low) * look.HEIGHT, (right - left) * look.WIDTH))
        above = 0.07 if arrow.along == "SVAG" else -0.07
        lines.append({"along": arrow.along, **ends})
        heads.append({"along": arrow.along, "x": ends["x2"], "y": ends["y2"], "turn": 90 - tilt})
        words.append({"along": arrow.along, "x": (left + right) / 2, "y": (low + high) / 2 + beside + above})
        words[-1] |= {"said": f"{arrow.along}, order {arrow.order:.2f}", "turn": -tilt}
    axes = {
        "x": alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-0.25, 1.25])),
        "y": alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-0.25, 1.25])),
    }
    series = look.DrawnSeries("along", ["SVAG", "LSR"])
    colour, turned = series.colour.legend(None), alt.Angle("turn:Q", scale=None)
    drawn = [
        alt.Chart(look.data(lines))
        .mark_rule(strokeWidth=2)
        .encode(**axes, x2="x2:Q", y2="y2:Q", color=colour, strokeDash=series.dash().legend(None)),
        alt.Chart(look.data(heads))
        .mark_point(shape="triangle-up", filled=True, size=120, opacity=1)
        .encode(**axes, color=colour, angle=turned),
        alt.Chart(look.data(words)).mark_text(fontSize=12).encode(**axes, color=colour, angle=turned, text="said:N"),
    ]
    named = [{"said": name, "x": x, "y": y} for name, (x, y) in PLACES.items()]
    drawn.append(
        alt.Chart(look.data(named))
        .mark_text(fontSize=18, fontWeight=600, style="guide-words")
        .encode(**axes, text="said:N")
    )
    between = [
        {"x": 0.0, "y": 0.5, "said": "↑ Gaussian noise"},
        {"x": 1.0, "y": 0.5, "said": f"≠ (LSR → Itô SDE: order {limits.apart:.2f})"},
    ]
    drawn.append(
        alt.Chart(look.data(between)).mark_text(fontSize=12, style="guide-words").encode(**axes, text="said:N")
    )
    return alt.layer(*drawn).properties(width=look.WIDTH, height=look.HEIGHT)


def hybrid_chart(rows: Sequence[HybridPoint]) -> look.Picture:
    """SVAG's points, and from each of them the way of the SDE to the end."""
    series = look.DrawnSeries("process", [row.process for row in rows if row.process != SVAG], grey=[SVAG])
    x = alt.X("step:Q", title="steps of η/ell").axis(tickMinStep=1)
    base = series.base(rows, x, look.tips(step="d", mean=".4f")).encode(
        y=alt.Y("mean:Q", title="E x", scale=alt.Scale(zero=False))
    )
    lines = base.mark_line(strokeWidth=2).encode(strokeDash=series.dash(quiet=True))
    points = base.mark_point(filled=True, size=70, opacity=1).transform_filter(alt.datum.process == SVAG)
    return series.layered(lines, points)


def balance_chart(rows: Sequence[BalanceRatio]) -> look.Picture:
    """Growth over decay with 95% intervals, around the line at 1."""
    series = look.DrawnSeries("kind", [OWN, OTHER])
    values = [
        {**asdict(row), "held": f"{row.process} in the balance of {row.balance}", "low": row.low, "high": row.high}
        for row in rows
    ]
    base = alt.Chart(look.data(values)).encode(
        y=alt.Y("held:N", title=None, sort=None, axis=alt.Axis(labelLimit=300)),
        color=series.colour,
        tooltip=look.tips("held", "kind", ratio=".4f", error=".2g"),
    )
    x = alt.X("ratio:Q", title="growth / decay of |x|² (1 at equilibrium)", scale=alt.Scale(zero=False))
    one = alt.Chart(look.data([{"one": 1.0}])).mark_rule(style="guide", strokeDash=[4, 3]).encode(x="one:Q")
    bars = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    points = base.mark_point(filled=True, size=80).encode(x=x.axis(tickCount=8), shape=series.shape)
    return alt.layer(one, bars, points).properties(width=look.WIDTH, height=240)


def transient_chart(rows: Sequence[NormPoint]) -> look.Picture:
    """Lines by the recursions, points from the simulation with two standard errors."""
    series = look.DrawnSeries("process", [row.process for row in rows])
    values = [{**asdict(row), "low": row.low, "high": row.high} for row in rows]
    x = alt.X("effective_step:Q", title="effective steps")
    base = series.base(values, x, look.tips(effective_step=",d", simulated=".4f", predicted=".4f"))
    y = alt.Y("predicted:Q", title="E|x|²  (line: recursion, points: simulation)", scale=alt.Scale(zero=False))
    lines = base.mark_line().encode(y=y, strokeDash=series.dash(quiet=True))
    bars = base.mark_rule().encode(y="low:Q", y2="high:Q")
    points = base.mark_point(filled=True, size=28).encode(y="simulated:Q", shape=series.shape)
    return series.layered(lines, bars, points)
