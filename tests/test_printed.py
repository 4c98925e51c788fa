"""Every public result shows itself in a notebook as it prints itself."""

import html

import pytest

import svag
import svag.lab
import svag.theory
from svag.printed import Printed

RESULTS = {
    name: made
    for package in (svag, svag.lab, svag.theory)
    for name in package.__all__
    if isinstance(made := getattr(package, name), type)
    and not issubclass(made, Exception)
    and (made.__str__ is not object.__str__ or made.__module__.startswith("svag.theory"))
    and name != "RunSpec"  # prints its fields; `to_yaml` is its readable form
}


def test_the_public_results_are_found() -> None:
    assert {"PriceList", "Reading", "Price", "SDEVerdict", "LadderFinding", "RunRecord"} <= set(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_a_public_result_shows_itself_in_a_notebook(name: str) -> None:
    assert issubclass(RESULTS[name], Printed)


def test_what_is_shown_is_what_is_printed_and_stays_text() -> None:
    reading = svag.Reading(0.5, 8.0, 100.0, batch_size=128, n=4, run="<script>")
    assert html.unescape(reading._repr_html_()) == f"<p><b>{reading}</b></p>"
    verdict = svag.scaling_verdict({32: [0.1, 0.11], 64: [0.1, 0.12], 128: [0.3, 0.31]})
    shown = verdict._repr_html_()
    first, *rest = str(verdict).splitlines()
    assert shown.startswith(f"<p><b>{html.escape(first)}</b></p>")
    assert all(html.escape(line) in shown for line in rest)
    assert "<p>" not in html.escape(shown)


def test_a_scaling_prints_its_settings() -> None:
    scaled = svag.theory.square_root_scaling(4, lr=0.001, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)
    assert "lr=0.002" in scaled._repr_html_()
