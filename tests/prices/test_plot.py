"""The picture of a price list: its table as numbers, and that the drawing stays inside its axes."""

import ast
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.prices.streams import make

import svag.prices.plot
from svag import Estimate, PriceList, Reading, price_list
from svag.prices.plot import domain_of, draw, plot_table


def constant(count: int = 400, /, **changes: object) -> list[Reading]:
    """N/G = 8 at batch size 32 from the first step, without scatter."""
    setting: dict[str, object] = {"batch_size": 32, "lr": 0.1, "optimizer": "SGD"} | changes
    return [make(1.0, 8.0, **({"step": k} | setting)) for k in range(count)]


def noisy() -> PriceList:
    """90 readings whose G is not resolved in the middle of the run."""
    signals = [(4.0, -2.0) if k < 30 or k >= 60 else (2.0, -2.5) for k in range(90)]
    return price_list(make(signals[k][k % 2], 8.0, batch_size=32, step=k, lr=0.1, optimizer="SGD") for k in range(90))


def rows_of(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All rows of data in a specification."""
    for name, part in spec.items():
        if name == "values" and isinstance(part, list) and part and isinstance(part[0], dict):
            yield from part
        for inner in part if isinstance(part, list) else [part]:
            if isinstance(inner, dict):
                yield from rows_of(inner)


def test_the_prices_are_those_of_the_list_after_that_of_the_run_itself() -> None:
    found = price_list(constant())
    table = plot_table(found, [64, 128])
    assert [(point.series, point.batch_size, point.rate) for point in table.prices] == [
        ("examples", 32, "0.1"),
        ("examples", 64, "0.18"),
        ("examples", 128, "0.3"),
    ]
    assert [point.cost for point in table.prices] == [price.examples for price in found.prices([32, 64, 128])]
    assert table.prices[0].cost == Estimate(1.0, 1.0, 1.0)


def test_with_a_throughput_there_is_a_time_beside_every_price() -> None:
    found = price_list(constant())
    table = plot_table(found, throughput={32: 100.0, 64: 180.0})
    assert [point.series for point in table.prices] == ["examples", "time"] * 2
    assert table.prices[3].cost.value == pytest.approx(found.prices([64])[0].examples.value * 100 / 180)


def test_the_noise_scale_is_b_times_n_over_g_of_every_phase() -> None:
    rising = [make(1.0, 2.0 if k < 200 else 8.0, batch_size=32, step=k, lr=0.1) for k in range(400)]
    found = price_list(rising)
    table = plot_table(found)
    assert [(phase.start, phase.end) for phase in table.noise] == [
        (phase.start, phase.end) for phase in found.history.phases
    ]
    assert (table.noise[0].start, table.noise[-1].end) == (0.0, 400.0)
    assert [phase.noise_scale.value for phase in table.noise][:: len(table.noise) - 1] == [64.0, 256.0]


def test_the_noise_scale_of_a_shuffled_epoch_is_that_with_replacement() -> None:
    [first, *_] = plot_table(price_list(constant(population=64))).noise
    assert first.noise_scale.value == pytest.approx(32 * 8 / (1 - 32 / 64))


def test_readings_without_steps_are_one_phase_from_0_to_1() -> None:
    table = plot_table(price_list(constant(step=None)))
    assert [(phase.start, phase.end) for phase in table.noise] == [(0.0, 1.0)]
    assert not table.has_steps


def test_too_few_readings_have_a_noise_scale_and_no_prices() -> None:
    table = plot_table(price_list(constant(5)))
    assert (len(table.prices), len(table.noise)) == (0, 1)
    assert len(draw(table).to_dict()["vconcat"]) == 1


def test_an_axis_shows_all_estimates_and_cuts_intervals_that_are_too_long() -> None:
    assert domain_of([Estimate(2.0, 1.0, 3.0), Estimate(8.0, 5.0, 9.0)], also=[]) == pytest.approx((0.9, 9.9))
    assert domain_of([Estimate(2.0, 0.001, 1000.0)], also=[]) == pytest.approx((0.9 * 0.5, 1.1 * 8))
    assert domain_of([Estimate(math.inf, 50.0, math.inf)], also=[32.0]) == pytest.approx((0.9 * 32, 1.1 * 50))


@pytest.mark.parametrize("found", [price_list(constant()), noisy(), price_list(constant(optimizer="Muon"))])
def test_no_bar_leaves_the_chart(found: PriceList) -> None:
    drawn = draw(plot_table(found)).to_dict()
    for chart in drawn["vconcat"]:
        [domain] = [layer["encoding"]["y"]["scale"]["domain"] for layer in chart["layer"] if "y2" in layer["encoding"]]
        bars = [row for row in rows_of(chart) if "from" in row]
        assert bars
        assert all(domain[0] <= row["from"] <= row["to"] <= domain[1] for row in bars)


def test_a_price_of_which_no_range_is_known_has_no_bar() -> None:
    drawn = draw(plot_table(price_list(constant(optimizer="Muon")))).to_dict()
    costs = [row for row in rows_of(drawn["vconcat"][0]) if "cost" in row and row["batch_size"] > 32]
    assert costs
    assert not any("from" in row for row in costs)


def test_a_phase_whose_signal_is_not_positive_has_an_interval_and_no_line() -> None:
    found = noisy()
    infinite = [phase for phase in plot_table(found).noise if math.isinf(phase.noise_scale.value)]
    rows = [row for row in rows_of(draw(plot_table(found)).to_dict()["vconcat"][-1]) if "start" in row]
    assert infinite
    assert {row["start"] for row in rows if "noise_scale" not in row} == {phase.start for phase in infinite}


def test_plot_saves_a_page_and_a_picture(tmp_path: Path) -> None:
    drawn = price_list(constant()).plot([64, 128])
    for name in ("prices.html", "prices.png", "prices.svg"):
        drawn.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    words = (tmp_path / "prices.svg").read_text(encoding="utf-8")
    assert "lr 0.18" in words
    assert "gradient noise scale" in words


def test_the_steps_of_a_long_run_stand_apart() -> None:
    """Nineteen labels such as 2,400 touched each other."""
    spec = draw(plot_table(price_list(constant(3748)))).to_dict()["vconcat"][-1]
    layers = [layer["encoding"]["x"] for layer in spec["layer"] if "axis" in layer.get("encoding", {}).get("x", {})]
    assert layers
    assert all(x["axis"]["tickCount"] <= 8 for x in layers)


def test_altair_is_asked_for_only_when_something_is_drawn() -> None:
    tree = ast.parse(Path(svag.prices.plot.__file__).read_text(encoding="utf-8"))
    assert not any("altair" in ast.unparse(node) for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    code = (
        "import sys; sys.modules['altair'] = None\n"
        "from svag import Reading, price_list\n"
        "found = price_list([Reading(1.0, 8.0, 1.0, 32, 4, step=k, lr=0.1) for k in range(400)])\n"
        "try:\n    found.plot()\n"
        "except ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "svag[plot]"' in done.stdout
