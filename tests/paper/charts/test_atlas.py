"""The page of a folder of ladders: charts, tables, and what is said in a terminal."""

import csv
import io
from pathlib import Path

import pytest
from rich.console import Console
from tests.paper.atlas.test_atlas import write_ladder

from svag.lab.report.render import render_terminal
from svag.lab.report.write import write_files
from svag.paper.atlas.atlas import find_atlas
from svag.paper.charts import linear_pairs
from svag.paper.report import build_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("ladders")
    write_ladder(root / "right")
    write_ladder(root / "falling", scale={256: 0.4})
    (root / "empty").mkdir()
    return root


def test_the_page_has_both_charts_and_the_tables_every_number(folder: Path, tmp_path: Path) -> None:
    written = write_files(build_report(folder), tmp_path, formats=("svg",))
    assert [path.name for path in written.figures] == ["spread.svg", "examples.svg"]
    assert [path.name for path in written.tables] == ["runs.csv", "baselines.csv", "pairs.csv", "examples.csv"]
    page, summary = written.page.read_text(), written.summary.read_text()
    assert "empty is empty." in page
    assert "falling 16→256" in summary
    with (tmp_path / "tables" / "pairs.csv").open() as file:
        rows = {(row["ladder"], row["baseline"], row["batch_size"]): row for row in csv.DictReader(file)}
    assert len(rows) == 12
    for pair in find_atlas(folder).pairs:
        row = rows[pair.setting.ladder, str(pair.drift.baseline), str(pair.drift.batch_size)]
        assert float(row["predicted"]) == pair.predicted.value
        assert float(row["measured"]) == pair.observed.value
        assert float(row["noise_scale"]) == pair.drift.noise_scale.value


def test_every_line_fits_a_terminal_of_80_columns(folder: Path) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    for part in render_terminal(build_report(folder)):
        console.print(part)
    text = console.export_text()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert "Atlas of 2 ladders" in text
    assert "that holds on 12 of 12." in " ".join(text.split())


def test_points_are_what_was_predicted_and_measured(folder: Path) -> None:
    pairs = find_atlas(folder).pairs
    points = linear_pairs.spread_points(pairs)
    assert [(one.predicted, one.measured) for one in points] == [(p.predicted.value, p.observed.value) for p in pairs]
    assert {one.carried for one in points} == {"theorem"}
    costs = linear_pairs.example_points(pairs)
    assert all(one.reached == (one.levels[0] != "0") for one in costs)
    spec = linear_pairs.chart(points, "measured").to_dict()
    assert len(spec["layer"]) == 5
