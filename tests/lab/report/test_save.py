"""A chart as a file, in every format."""

import json
from pathlib import Path

import pytest
import vl_convert

from svag.lab.report.look import LIGHT
from svag.lab.report.save import save, save_as, specification, vega_bundle
from svag.paper.charts.theory import distance_chart
from svag.paper.illustrations.curves import poisson_distances

CHART = distance_chart(poisson_distances(ells=(1, 2)).rows)


@pytest.mark.parametrize(
    ("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF"), ("html", b"<!doctype html>")]
)
def test_every_format_is_what_it_says(tmp_path: Path, kind: str, start: bytes) -> None:
    path = save(CHART, tmp_path / "new" / f"chart.{kind}")
    assert path.read_bytes().startswith(start)


def test_images_drawn_from_one_layout_are_those_drawn_from_the_chart(tmp_path: Path) -> None:
    png, svg = save_as(CHART, tmp_path / "B = 0.5", [".png", ".svg"])
    text = json.dumps({**specification(CHART), "config": LIGHT})
    assert (png.name, svg.name) == ("B = 0.5.png", "B = 0.5.svg"), "a dot in a name does not end it"
    assert png.read_bytes() == vl_convert.vegalite_to_png(text, scale=2)
    assert save_as(CHART, tmp_path / "none", []) == []


def test_the_html_loads_nothing(tmp_path: Path) -> None:
    text = save(CHART, tmp_path / "chart.html").read_text()
    assert "src=" not in text.partition("<body>")[2]
    assert '<script src="' not in text


def test_an_unknown_format_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^chart\.gif: .*\.html, \.png, \.svg, \.pdf.*'\.gif'"):
        save(CHART, tmp_path / "chart.gif")


def test_the_bundle_is_kept_and_a_torn_one_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def bundle(snippet: str) -> str:
        made.append(snippet)
        return "script"

    monkeypatch.setattr("vl_convert.javascript_bundle", bundle)
    try:
        first = vega_bundle(tmp_path)
        vega_bundle.cache_clear()
        assert vega_bundle(tmp_path) == first
        assert len(made) == 1
        (kept,) = tmp_path.iterdir()
        kept.write_text("scr")
        vega_bundle.cache_clear()
        assert vega_bundle(tmp_path) == first
        assert len(made) == 2
    finally:
        vega_bundle.cache_clear()


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda snippet: "script")
    (tmp_path / "file").write_text("")
    try:
        assert vega_bundle(tmp_path / "file" / "below").startswith("script")
    finally:
        vega_bundle.cache_clear()
