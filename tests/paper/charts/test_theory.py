"""Every picture of the theory can be drawn by the label of what it shows, and no other label has one."""

import pytest

from svag.paper.charts.sections import theory_figures


@pytest.mark.parametrize(
    "label", ["thm:sde_svag", "sec:counterexample", "fig:app_exotic_lr", "fig:diagram", "fig:app_proof_overview"]
)
def test_a_label_is_drawn_with_its_numbers_and_its_sentence(label: str) -> None:
    figures = theory_figures(label)
    assert figures
    for figure in figures:
        assert figure.sentence.endswith(".")
        assert figure.tables[0].rows
        assert figure.chart.to_dict()


def test_a_label_without_a_picture_has_none() -> None:
    assert theory_figures("lem:D") == ()
