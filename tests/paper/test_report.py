"""The page of a folder by those who know the paper: a figure beside its claims."""

from pathlib import Path

from svag.paper.report import build_report


def test_a_figure_is_held_against_the_paper() -> None:
    """The committed panels at B = 8 and 256: SGD is its SDE in the first, and ends below it in the second."""
    report = build_report(Path(__file__).parents[2] / "results" / "svag_accs-small")
    assert report.notes[0].endswith("where linear scaling is refuted. These runs agree with it.")
    paper = report.finding["paper"]
    assert (paper["verdict"], [claim["verdict"] for claim in paper["claims"]]) == ("agrees", ["agrees", "agrees"])
    assert paper["claims"][1]["found"].startswith("SGD − SDE −11.47 points [−17.14, −5.80]")
