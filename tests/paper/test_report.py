"""The page of a folder by those who know the paper: a figure beside its claims."""

from pathlib import Path

from svag.paper.report import build_report


def test_a_figure_is_held_against_the_paper() -> None:
    """The committed panels at B = 8 and 256: SGD is its SDE in the first, and ends below it in the second."""
    report = build_report(Path(__file__).parents[2] / "results" / "svag_accs-small")
    assert report.notes[0].endswith("where linear scaling is refuted. These runs cannot tell.")
    paper = report.finding["paper"]
    small, large = (panel["name"] for panel in report.finding["panels"])
    assert {(claim["panel"], claim["code"]): claim["verdict"] for claim in paper["claims"]} == {
        (small, "end"): "agrees",
        (small, "converged"): "cannot tell",  # l = 2 and 4, and l = 4 and 8, are too few
        (small, "trajectory"): "agrees",
        (large, "end"): "agrees",
        (large, "converged"): "cannot tell",
    }
    assert paper["claims"][3]["found"].startswith("test accuracy: SGD − SDE −11.47 points [−17.14, −5.80]")
