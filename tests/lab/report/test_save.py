"""A chart as a file, in every format."""

from pathlib import Path

import pytest

from svag.lab.report.save import save, vega_bundle
from svag.paper.charts.theory import distance_chart
from svag.paper.illustrations.curves import poisson_distances

CHART = distance_chart(poisson_distances(ells=(1, 2)).rows)


@pytest.mark.parametrize(
    ("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF"), ("html", b"<!doctype html>")]
)
def test_every_format_is_what_it_says(tmp_path: Path, kind: str, start: bytes) -> None:
    path = save(CHART, tmp_path / "new" / f"chart.{kind}")
    assert path.read_bytes().startswith(start)


def test_the_html_loads_nothing(tmp_path: Path) -> None:
    text = save(CHART, tmp_path / "chart.html").read_text()
    assert "src=" not in text.partition("<body>")[2]
    assert '<script src="' not in text


def test_an_unknown_format_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"chart.gif: a chart is saved as .html, .png, .svg, .pdf, not as '.gif'"):
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
