"""The page of a folder by those who know the paper: a figure beside its claims."""

from pathlib import Path

from svag.paper.report import build_report


def test_a_figure_is_held_against_the_paper() -> None:
    """The committed panels at B = 8 and 256: SGD is its SDE in the first, and ends below it in the second."""
    report = build_report(Path(__file__).parents[2] / "results" / "svag_accs-small")
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


def test_a_folder_of_ladders_by_the_gain_rule_says_how_many_prices_were_wrong(tmp_path: Path) -> None:
    recipes = Path(__file__).parents[2] / "results" / "recipes"
    for name in ("conv_adamw", "mlp_cosine"):
        (tmp_path / name).symlink_to(recipes / name)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "experiment.json").write_text("{}")
    report = build_report(tmp_path)
    summary, *ladders = report.cards
    assert [card.answer.panel for card in ladders] == ["conv_adamw", "mlp_cosine"]
    tables = [card.prices for card in ladders if card.prices is not None]
    outside, batches = sum(len(table.warned) for table in tables), sum(len(table.rows) - 1 for table in tables)
    assert f"on {outside} of {batches} larger batches" in summary.answer.headline
    assert batches == 4
    assert [figure.name for figure in report.figures] == [
        f"{name}-panel1-examples" for name in ("conv_adamw", "mlp_cosine")
    ]
    assert len(report.warnings) == 1
    assert report.finding["kind"] == "ladders"
