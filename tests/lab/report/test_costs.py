"""What larger batches cost, as numbers: data and time of a ladder, and the tables that are drawn of them."""

import io
import math
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean
from typing import get_args

import pytest
from rich.console import Console
from tests.lab.report.charts.drawn import layers
from tests.lab.report.conftest import Build
from tests.lab.report.folders import BASE, CASES, write_run

from svag.lab.experiments import load_experiment
from svag.lab.experiments.data_price import SHARES
from svag.lab.experiments.ladder_finding import LadderFinding, LadderPanelFinding
from svag.lab.experiments.wording import LINES, Answer, Judgement, PaperVerdict
from svag.lab.records.record import RunRecord, load_records
from svag.lab.report.charts import costs as charts
from svag.lab.report.content import Card, Table
from svag.lab.report.costs import COLUMN, LadderCosts, RungCost, cost_table, headline, ladder_costs
from svag.lab.report.figures import cost_figures, ladder_card
from svag.lab.report.render import render_brief, render_markdown, render_page, render_terminal
from svag.lab.report.write import build_report
from svag.lab.specs.spec import plan_of
from svag.noise.reading import Reading
from svag.prices.estimate import Estimate
from svag.prices.price_list import price_list

RESULTS = Path(__file__).parents[3] / "results"
NOTHING = Estimate(math.nan, 0.0, math.inf)


def ladder(folder: Path) -> tuple[LadderPanelFinding, list[RunRecord]]:
    experiment, records = load_experiment(folder), load_records(folder)
    assert experiment is not None
    finding = experiment.find(records)
    assert isinstance(finding, LadderFinding)
    return finding.panels[0], records


@pytest.fixture(scope="module")
def gained() -> tuple[LadderPanelFinding, list[RunRecord]]:
    """Batch sizes 16, 128 and 512 by the gain rule, three seeds each."""
    return ladder(RESULTS / "recipes" / "conv_adamw")


def rung(measured: Estimate = NOTHING, *, at_least: float = 0.0, time: float = 0.5, size: int = 64) -> RungCost:
    predicted = Estimate(1.5, 1.2, 1.8)
    return RungCost(size, 0.1, predicted, True, measured, at_least, time, Estimate(1.0, 0.9, 1.1), 0.2)


def around(value: float) -> Estimate:
    return Estimate(value, 0.9 * value, 1.1 * value)


def costs_of(*rungs: RungCost) -> LadderCosts:
    return LadderCosts(8, 0.05, 1e5, 60.0, 0.21, "test_accuracy", rungs, ())


def test_data_and_time_of_a_gain_ladder_are_those_of_its_records(
    gained: tuple[LadderPanelFinding, list[RunRecord]],
) -> None:
    panel, records = gained
    costs = ladder_costs(panel, records)
    assert panel.gain is not None
    assert (costs.baseline, costs.examples) == (16, 48000)
    seconds = {size: [] for size in (16, 128, 512)}  # type: dict[int, list[float]]
    for record in records:
        assert record.spec is not None
        seconds[record.spec.batch_size].append(record.outcome["seconds"] / record.outcome["examples"])
    for cost, gains in zip(costs.rungs, panel.gain.rungs, strict=True):
        assert gains.examples is not None
        (plan,) = {plan_of(run.spec) for run in records if run.spec and run.spec.batch_size == cost.batch_size}
        assert plan is not None
        over = [
            level.value / plan.price(round(share * 3000))
            for level, share in zip(gains.examples.factors, SHARES, strict=True)
        ]
        factor = gains.price * geometric_mean(over)
        assert cost.measured.value == pytest.approx(factor)
        assert cost.time == pytest.approx(factor * min(seconds[cost.batch_size]) / min(seconds[16])), "fastest seeds"
        assert cost.predicted.value == pytest.approx(gains.price)
        listed = panel.predictions[0].price_list.prices([cost.batch_size])[0].examples
        assert cost.predicted.high / cost.predicted.value == pytest.approx(listed.high / listed.value)
        assert (cost.ranged, cost.reached, cost.outside) == (True, True, False)
        assert cost.loss == gains.loss


def test_a_price_that_was_measured_on_line_is_compared_with_what_had_been_used(tmp_path: Path) -> None:
    """The runs on line are kept without their baseline, which is that of the planned ones."""
    on_line, planned = (RESULTS / "gain" / arm / "gn_cosine" for arm in ("on_line", "planned"))
    (tmp_path / "experiment.json").write_bytes((on_line / "experiment.json").read_bytes())
    for arm in (on_line, planned):
        shutil.copytree(arm / "runs", tmp_path / "runs", dirs_exist_ok=True)
    panel, records = ladder(tmp_path)
    assert panel.gain is not None
    assert panel.gain.measured
    for cost in ladder_costs(panel, records).rungs:
        (gains,) = [one for one in panel.gain.rungs if one.batch_size == cost.batch_size]
        assert gains.examples is not None
        assert cost.ranged
        rows = [row for row in panel.gain.rows if row.batch_size == cost.batch_size]
        over = []
        for level, share in zip(gains.examples.factors, SHARES, strict=True):
            # the bill of the point nearest to that moment, on average over seeds
            near = sorted(rows, key=lambda row: abs(row.baseline_time - share * 15000))[:2]
            over.append(level.value / (sum(row.price for row in near) / 2))
        assert cost.measured.value == pytest.approx(cost.predicted.value * geometric_mean(over), rel=0.03)


def test_moments_are_means_over_seeds_and_their_gain_is_that_of_the_interval(
    gained: tuple[LadderPanelFinding, list[RunRecord]],
) -> None:
    panel, records = gained
    costs = ladder_costs(panel, records)
    assert panel.gain is not None
    for size in (16, 512):
        moments = [moment for moment in costs.moments if moment.batch_size == size]
        rows = [row for row in panel.gain.rows if row.batch_size == size]
        last = max(row.examples for row in rows)
        ended = [row.train_loss for row in rows if row.examples == last]
        assert (moments[-1].examples, moments[-1].seeds) == (last, 3)
        assert moments[-1].loss == pytest.approx(sum(ended) / 3)
        assert (moments[-1].low, moments[-1].high) == (min(ended), max(ended))
        first, end = moments[0], moments[-1]
        updates = [b.examples - a.examples for a, b in pairwise(moments)]
        steps = sum(m.gain * n / size for m, n in zip(moments[1:], updates, strict=True))
        assert steps == pytest.approx(end.baseline_time - first.baseline_time)
    assert all(m.gain == pytest.approx(1.0) for m in costs.moments if m.batch_size == 16 and math.isfinite(m.gain))


def test_runs_that_fall_alike_need_the_same_data_and_take_the_same_time(tmp_path: Path) -> None:
    """Losses of the made-up runs depend on the share of the budget alone, and every run took 12.5 s."""
    panel, records = ladder(CASES["ladder_never_fails"](tmp_path))
    costs = ladder_costs(panel, records)
    for cost in costs.rungs:
        assert cost.measured.value == pytest.approx(1.0, abs=0.01)
        assert cost.time == pytest.approx(1.0, abs=0.01)
        assert cost.predicted == panel.predictions[0].linear.distortion(cost.batch_size)
        assert (cost.ranged, cost.outside) == (False, False), "D has no range that it could leave"
    assert ladder_costs(panel, ()).moments == ()
    assert costs.forecast == "distortion"
    assert COLUMN["distortion"] in cost_table("costs1", costs).columns
    assert {row.kind for row in charts.needed_rows(costs)} == {charts.DISTORTION, charts.MEASURED}
    assert headline(costs) != headline(replace(costs, forecast="price"))


@pytest.mark.parametrize(
    ("cost", "reached", "outside"),
    [
        (rung(around(1.5)), True, False),
        (rung(around(1.81)), True, True),
        (rung(around(1.19)), True, True),
        (replace(rung(around(1.81)), ranged=False), True, False),
        (rung(at_least=1.7), False, False),
        (rung(at_least=1.9), False, True),
        (rung(around(1.5), at_least=1.6), True, False),
        (rung(around(1.5), at_least=1.9), False, True),
        (rung(), False, False),
    ],
)
def test_a_price_is_outside_its_range_only_where_that_is_known(cost: RungCost, reached: bool, outside: bool) -> None:
    assert (cost.reached, cost.outside) == (reached, outside)
    table = cost_table("costs1", costs_of(cost))
    assert table.warned == (frozenset({1}) if outside else frozenset())
    assert ("⚠" in table.rows[1].get("examples measured", "")) == outside
    number = f"{cost.measured.value:.2f}×" if reached else f"> {cost.at_least:.2f}×" if cost.at_least else ""
    assert table.rows[1].get("examples measured", "").removesuffix(" ⚠") == number
    kinds = {row.kind for row in charts.needed_rows(costs_of(cost))}
    assert (charts.OUTSIDE in kinds) == outside
    assert (charts.INSIDE in kinds) == (reached and cost.ranged and not outside)


def test_the_fastest_batch_that_reached_the_loss_is_the_answer() -> None:
    slow, fast = rung(around(1.5), time=0.8), rung(around(3.0), time=0.4, size=128)
    lost = rung(at_least=4.0, time=math.nan, size=256)
    assert costs_of(slow, fast, lost).best is fast
    assert costs_of(replace(slow, time=math.nan), replace(fast, time=math.nan), lost).best == replace(
        fast, time=math.nan
    )
    assert costs_of(lost).best is None


def test_every_headline_renders() -> None:
    said = {
        "Batch size 64 reached the training loss of batch size 8 with 1.50× the examples (1.50× predicted) in 0.40× "
        "the time.": costs_of(rung(around(1.5), time=0.4)),
        "No larger batch was faster than batch size 8: for its training loss, batch size 64 needed 1.50× the examples "
        "(1.50× predicted) and 1.20× the time.": costs_of(rung(around(1.5), time=1.2)),
        "Batch size 64 did not reach the training loss of batch size 8 within 1.70× its examples.": costs_of(
            rung(at_least=1.7)
        ),
        "": costs_of(),
    }
    assert [headline(costs) for costs in said.values()] == list(said)
    assert headline(costs_of(rung(), rung(size=128))) == "", "nothing was compared"
    assert headline(costs_of(rung(), rung(at_least=1.7))) == list(said)[2]


def test_where_the_baseline_is_missing_no_batch_is_said_to_have_failed() -> None:
    panel, records = ladder(RESULTS / "gain" / "on_line" / "mlp_noise")
    costs = ladder_costs(panel, records)
    assert costs.baseline == 16
    assert min(moment.batch_size for moment in costs.moments) == 128
    card = ladder_card(panel, costs, 1)
    assert (card.answer, card.prices) == (panel.answer(), None)
    (figure,) = [one for one in cost_figures("p", panel, costs) if one.name == "p-loss-baseline-time"]
    assert "batch size 16" in figure.sentence
    assert "batch size 128" not in figure.sentence


def domains(chart: object) -> dict[str, tuple[float, float]]:
    """The ends of the vertical axis of a chart."""
    scales = [layer["encoding"]["y"].get("scale", {}) for layer in layers(chart) if "y" in layer["encoding"]]  # type: ignore[arg-type]
    return {"y": next(tuple(scale["domain"]) for scale in scales if "domain" in scale)}


def test_no_interval_leaves_the_chart_of_the_data_needed() -> None:
    costs = costs_of(rung(around(9.0)), rung(Estimate(2.0, 0.3, 40.0), size=128), rung(at_least=3.0, size=256))
    rows = charts.needed_rows(costs)
    assert [row.high for row in rows if row.kind != charts.PREDICTED] == [around(9.0).high, 40.0, math.inf]
    chart = charts.needed_chart(rows)
    low, high = domains(chart)["y"]
    for row in (row for layer in layers(chart) for row in layer["rows"]):
        assert low <= min(row["low"], row["factor"])
        assert max(row["to"], row["factor"]) <= high
    assert "Arrow up" in charts.needed_sentence(rows)
    (arrows,) = [layer for layer in layers(chart) if layer["mark"].get("shape") == "triangle-up"]
    assert arrows["mark"]["yOffset"] ** 2 >= arrows["mark"]["size"] / 4, "half its height below the edge"


def test_the_noise_scale_is_that_of_the_phases_in_examples() -> None:
    readings = [Reading(1.0, 2.0 if step < 50 else 14.0, 1.0, 16, 4, step=step) for step in range(100)]
    prices = price_list(readings)
    rows = charts.noise_rows(prices)
    assert [(row.start, row.end, row.noise_scale) for row in rows] == [
        (phase.start, phase.end, 16 * phase.noise_to_signal.value) for phase in prices.history.phases
    ]
    low, high = domains(charts.noise_chart(rows, 16))["y"]
    assert low < 16 < 14 * 16 < high
    open_ended = [replace(rows[0], noise_scale=math.nan, high=math.inf), *rows[1:]]
    drawn = layers(charts.noise_chart(open_ended, 16))[0]["rows"][0]
    assert drawn["to"] == domains(charts.noise_chart(open_ended, 16))["y"][1]
    assert charts.noise_rows(price_list([Reading(1.0, 8.0, 1.0, 16, 4) for _ in range(30)])) == []


def test_copies_of_one_run_may_leave_no_finite_end() -> None:
    readings = [Reading(-1.0, 8.0, 1.0, 16, 4, step=step, run=str(copy)) for copy in range(10) for step in range(10)]
    rows = charts.noise_rows(price_list(readings))
    assert [(row.noise_scale, row.low, row.high) for row in rows] == [(math.inf, math.inf, math.inf)] * len(rows) != []
    chart = charts.noise_chart(rows, 16)
    drawn = layers(chart)[0]["rows"][0]
    assert drawn["from"] == drawn["to"] == domains(chart)["y"][1]


def test_the_page_of_one_run_is_its_price_list(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", BASE, 0.85, noise_to_signal=6.0)
    report = build_report(folder)
    (card,) = report.cards
    (record,) = load_records(folder)
    prices = price_list(record.readings).prices()
    assert card.prices is not None
    assert [row["batch size"] for row in card.prices.rows] == [str(price.batch_size) for price in prices]
    assert [row["examples"].partition("×")[0] for row in card.prices.rows][:3] == [
        f"{price.examples.value:.2f}" for price in prices[:3]
    ]
    assert card.answer.tone == "note"
    drawn = {figure.name: figure.tables[0].rows for figure in report.figures}
    assert [row["factor"] for row in drawn["examples1"][1:]] == [price.examples.value for price in prices]
    assert drawn["noise1"]


def said(report_parts: object, width: int = 80) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    for part in report_parts:  # type: ignore[attr-defined]
        console.print(part)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text.rstrip("\n").split("\n")


@pytest.mark.parametrize("name", CASES)
def test_the_answer_takes_at_most_12_lines_of_80_columns_with_that_of_the_page(report_of: Build, name: str) -> None:
    report = report_of(name)
    crowded = replace(report, cards=report.cards * 7, notes=("a note",) * 9)
    for one in (report, replace(report, warnings=("w" * 75,) * 20), crowded):
        parts, left_out = render_brief(one)
        lines = said(parts)
        assert len(lines) <= LINES - 2
        assert max(map(len, lines)) <= 80
        assert left_out or one is report


def test_the_claims_about_a_figure_are_its_answer_those_that_differ_first(report_of: Build) -> None:
    said_long = "found " * 20
    claims = [
        Judgement("p", f"claim {verdict} {number}", said_long, verdict, "drift" if number == 4 else "end")
        for verdict in get_args(PaperVerdict)
        for number in range(5)
    ]
    report = replace(report_of("ladder"), claims=tuple(claims), notes=("The paper's claim: so.",))
    parts, left_out = render_brief(report)
    lines = said(parts)
    assert len(lines) <= LINES - 2
    assert left_out
    marked = [line[0] for line in lines if line.startswith(("✗", "?", "✓"))]
    assert set(marked) == {"✗"}, "there is no room for the others"
    everything = " ".join(said(render_terminal(report)))
    table = report.judged
    assert table is not None
    assert [row["verdict"] for row in table.rows].count("agrees (counted apart)") == 1
    assert len(table.warned) == 5
    for text in (everything, render_markdown(report), render_page(report)):
        assert all(claim.claim in text for claim in claims)
    assert replace(report, claims=()).judged is None


def test_a_row_with_a_wrong_price_has_the_colour_of_a_warning_everywhere(report_of: Build) -> None:
    table = Table("costs1", "costs", [{"batch size": "8"}, {"batch size": "64 ⚠"}], frozenset({1}))
    report = replace(report_of("ladder"), cards=(Card(Answer("p", "So.", "note", (), ""), table),))
    page = render_page(report)
    assert page.count('<tr class="warned">') == 1
    assert page.index('<tr class="warned">') < page.index("64 ⚠")
    assert "| 64 ⚠ |" in render_markdown(report)
    (rows,) = [part for part in render_brief(report)[0] if hasattr(part, "rows")]
    assert [str(row.style) for row in rows.rows] == ["", "yellow"]
