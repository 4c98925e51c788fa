"""The ladder's tables as numbers, its charts as data."""

import json
import math
from dataclasses import replace
from typing import Any

import altair as alt
import pytest
import vl_convert as vlc
from tests.lab.report.charts.drawn import marks, of_kind
from tests.lab.report.conftest import Find

from svag.lab.experiments.ladder_finding import LadderFinding, LadderPanelFinding, drift_headline
from svag.lab.report.charts import ladder_error, signal_to_noise, statistics_drift
from svag.paper.bounds import plotted_max_kappa


def ladder(finding_of: Find, name: str) -> LadderPanelFinding:
    found = finding_of(name)
    assert isinstance(found, LadderFinding)
    return found.panels[0]


def test_the_ladder_s_errors_threshold_and_regions_are_the_finding_s(finding_of: Find) -> None:
    panel = ladder(finding_of, "ladder")
    assert panel.scaling is not None
    found = ladder_error.error_table(panel)
    assert found.threshold == panel.scaling.threshold
    assert [row.error for row in found.rows if row.kind == ladder_error.MEAN] == [rung.error for rung in panel.rungs]
    observed, predicted = found.regions
    assert (observed.low, observed.value, observed.high) == (
        panel.scaling.low, panel.scaling.observed, panel.scaling.high
    )  # fmt: skip
    assert panel.predicted is not None
    assert (predicted.low, predicted.high) == (panel.predicted.smallest, panel.predicted.largest)
    drawn = ladder_error.error_chart(found)
    assert marks(drawn).count("rect") == 2
    thresholds = [
        layer["rows"]
        for layer in of_kind(drawn, "rule")
        if "error" in layer["rows"][0] and "kind" not in layer["rows"][0]
    ]
    assert thresholds == [[{"error": found.threshold}]]
    assert all(
        layer["encoding"]["x"]["scale"] == {"type": "log", "base": 2, "nice": False, "padding": 18}
        for layer in of_kind(drawn, "line")
    )


def test_a_ladder_that_never_fails_has_no_observed_region(finding_of: Find) -> None:
    found = ladder_error.error_table(ladder(finding_of, "ladder_never_fails"))
    assert [region.kind for region in found.regions] == [ladder_error.PREDICTED]


def test_one_seed_decides_nothing_and_shades_nothing(finding_of: Find) -> None:
    found = ladder_error.error_table(ladder(finding_of, "ladder_one_seed"))
    assert found.regions == []
    assert ladder_error.LONE_MEAN in {row.kind for row in found.rows}


def test_diverged_rungs_say_so_and_an_open_region_ends_beyond_the_ladder(finding_of: Find) -> None:
    found = ladder_error.error_table(ladder(finding_of, "ladder_diverged"))
    assert found.diverged == [(512, 2)]
    assert found.regions[0].high == 1024
    words = [layer["rows"][0].get("said") for layer in of_kind(ladder_error.error_chart(found), "text")]
    assert "✕ 2" in words


def test_the_ratio_is_g_over_n_with_its_interval(finding_of: Find) -> None:
    panel = ladder(finding_of, "ladder")
    found = signal_to_noise.table(panel)
    assert [row.signal_to_noise for row in found.rows] == [rung.signal_to_noise for rung in panel.rungs]
    assert found.rows[2].signal_to_noise == pytest.approx(1 / 6, rel=0.1)
    drawn = signal_to_noise.chart(found)
    y = of_kind(drawn, "line")[0]["encoding"]["y"]
    assert y["scale"]["type"] == "log"
    assert [{"signal_to_noise": 2.0, "said": "C² = 2"}] in [layer["rows"] for layer in of_kind(drawn, "rule")]


def test_lines_of_slope_1_end_at_the_threshold_where_the_paper_plots_its_predictions(finding_of: Find) -> None:
    panel = ladder(finding_of, "ladder")
    found = signal_to_noise.table(panel)
    usable = [one for one in panel.predictions if one.usable]
    assert [line.crossing for line in found.lines] == [
        one.batch_size * plotted_max_kappa(one.linear.noise_to_signal.value, panel.c2)
        for one in (usable[0], usable[-1])
    ]
    for line in found.lines:
        assert line.crossing / line.baseline == pytest.approx(panel.c2 / line.signal_to_noise)
    (rows,) = [one["rows"] for one in of_kind(signal_to_noise.chart(found), "line") if "low" not in one["rows"][0]]
    assert [row["signal_to_noise"] for row in rows if row["series"] == found.lines[0].name][-1] == 2.0


def test_a_ratio_without_an_end_runs_to_the_edge_and_an_unresolved_one_is_named(finding_of: Find) -> None:
    panel = ladder(finding_of, "ladder")
    rungs = [replace(panel.rungs[0], signal_to_noise_low=0.0, signal_to_noise_high=math.inf), *panel.rungs[1:]]
    rungs[1] = replace(rungs[1], signal_to_noise=math.nan)
    found = signal_to_noise.table(replace(panel, rungs=tuple(rungs)))
    assert math.isnan(found.rows[0].low)
    assert math.isinf(found.rows[0].high)
    assert found.left_out == [32]
    (bars,) = [layer["rows"] for layer in of_kind(signal_to_noise.chart(found), "rule") if "from" in layer["rows"][0]]
    bottom, top = of_kind(signal_to_noise.chart(found), "line")[0]["encoding"]["y"]["scale"]["domain"]
    assert (bars[0]["from"], bars[0]["to"]) == (bottom, top)


def test_drift_is_drawn_as_predicted_lines_and_measured_points(finding_of: Find) -> None:
    panel = ladder(finding_of, "ladder")
    found = statistics_drift.table(panel)
    assert found is not None
    assert panel.drift is not None
    measured = [row for row in found.rows if row.kind == statistics_drift.MEASURED]
    pairs = [pair for pair in panel.drift.pairs if pair.baseline <= 256]  # those of baselines that predict
    assert [(row.series, row.factor) for row in measured] == [(f"from {p.baseline}", p.spread.value) for p in pairs]
    curve = [row for row in found.rows if row.kind == statistics_drift.PREDICTED and row.series == "from 16"]
    assert [curve[0].factor, curve[-1].batch_size] == pytest.approx([1.0, 1024.0])
    assert curve[-1].factor == pytest.approx(panel.predictions[0].linear.distortion(1024).value)
    drawn = statistics_drift.chart(found)
    assert {"area", "line", "rule", "point"} <= set(marks(drawn))
    assert [{"factor": 2.0, "said": "C² = 2"}] in [layer["rows"] for layer in of_kind(drawn, "rule")]
    assert statistics_drift.sentence(found).startswith(drift_headline(panel))
    assert statistics_drift.table(replace(panel, drift=None)) is None


@pytest.mark.parametrize("name", ["ladder", "ladder_never_fails"])
def test_the_axes_of_a_ladder_keep_their_titles_with_and_without_an_observed_failure(
    finding_of: Find, name: str
) -> None:
    panel = ladder(finding_of, name)
    found = ladder_error.error_table(panel)
    fails = [region for region in found.regions if region.kind == ladder_error.ERROR_FAILS]
    assert bool(fails) == (name == "ladder")
    assert titles(ladder_error.error_chart(found)) == {"batch size", "final test error"}


def test_the_fields_have_a_legend_outside_the_chart(finding_of: Find) -> None:
    fails = ladder_error.Region(ladder_error.ERROR_FAILS, "test error +20%", 32, 330, 242)
    predicted = ladder_error.Region(ladder_error.PREDICTED, "B* (sharp bound)", 32, 317)
    found = replace(ladder_error.error_table(ladder(finding_of, "ladder")), regions=[fails, predicted])
    chart = ladder_error.error_chart(found)
    compiled = vlc.vegalite_to_vega(json.dumps(chart.to_dict()))
    domains = {scale["name"]: scale["domain"] for scale in compiled["scales"]}
    legends = [legend for legend in compiled["legends"] if "fill" in legend and "stroke" in legend]
    drawn = [domains[legend["fill"]] for legend in legends if legend["fill"] != "color"]
    assert drawn == [[fails.name, predicted.name]]
    assert "text" not in marks(chart)


def titles(chart: alt.TopLevelMixin) -> set[str]:
    """The titles of the axes as they are drawn, after the layers were merged."""
    compiled: dict[str, Any] = vlc.vegalite_to_vega(json.dumps(chart.to_dict()))
    return {str(axis["title"]) for axis in compiled["axes"] if "title" in axis}


def test_of_adam_the_second_moment_stands_beside_the_spread_as_rings(finding_of: Find) -> None:
    panel = ladder(finding_of, "ladder")
    assert panel.drift is not None
    pairs = tuple(replace(pair, second_moment_over_noise=pair.distortion) for pair in panel.drift.pairs)
    adam = replace(panel, drift=replace(panel.drift, compared="V", pairs=pairs))
    found, plain = statistics_drift.table(adam), statistics_drift.table(panel)
    assert found is not None
    assert plain is not None
    rings = [row for row in found.rows if row.kind == statistics_drift.SECOND_MOMENT]
    drawn = {one.batch_size for one, _ in panel.checked}
    assert [row.factor for row in rings] == [pair.distortion.value for pair in pairs if pair.baseline in drawn]
    assert [row for row in found.rows if row not in rings] == plain.rows
    more = marks(statistics_drift.chart(found)).count("point") - marks(statistics_drift.chart(plain)).count("point")
    assert more == 1


def test_the_paper_s_lines_of_linear_scaling_are_not_drawn_for_the_square_root_rule(finding_of: Find) -> None:
    panel = ladder(finding_of, "ladder")
    assert signal_to_noise.table(panel).lines
    adam = [
        replace(one, price_list=replace(one.price_list, linear=replace(one.linear, rule="square_root")))
        for one in panel.predictions
    ]
    assert not signal_to_noise.table(replace(panel, predictions=tuple(adam))).lines
