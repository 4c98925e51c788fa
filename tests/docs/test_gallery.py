"""Every number and every picture of docs/figures.md comes out of the records in results/."""

from dataclasses import replace
from functools import cache
from statistics import mean
from typing import Any

import pytest
from tests.docs.tools import ROOT, load
from typer.testing import CliRunner

from svag.paper.cli.app import app
from svag.paper.figures import LABELS

tool = load("make_gallery")
PAGE = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")
REWRITE = "run `python tools/make_gallery.py`"
TRAINED = [label for label, family in LABELS.items() if family != "theory"]
LARGEST, ALL_TOGETHER = 300_000, 2_500_000


@cache
def gallery() -> tuple[Any, ...]:
    return tool.entries()  # type: ignore[no-any-return]


def test_the_page_written_from_the_records_is_the_page() -> None:
    assert tool.rewritten(PAGE, gallery()) == PAGE, REWRITE


def test_every_figure_has_a_section_and_a_row() -> None:
    assert [one.label for one in gallery()] == TRAINED
    for label in TRAINED:
        assert PAGE.count(f"\n### {label}\n") == 1
        assert PAGE.count(f"| [`{label}`](#{label.replace(':', '')}) |") == 1


def test_a_number_that_differs_is_seen() -> None:
    """Negative control: one result that is otherwise, or a verdict, gives another page."""
    first = next(one for one in gallery() if one.records)
    others = [one for one in gallery() if one is not first]
    claim, *more = first.claims
    turned = {"agrees": "differs", "differs": "agrees", "cannot tell": "differs"}[claim.verdict]
    for changed in (replace(claim, found=claim.found.replace("1", "2")), replace(claim, verdict=turned)):
        assert changed != claim
        wrong = (replace(first, claims=(changed, *more)), *others)
        assert tool.rewritten(PAGE, wrong) != PAGE
    assert tool.rewritten(PAGE, (replace(first, records=()), *others)) != PAGE


def test_a_final_metric_that_differs_gives_another_claim_and_another_picture() -> None:
    """Negative control, from the record on: 5 points more at the end of one run."""
    first = next(one for one in gallery() if one.experiment.kind == "compare" and one.records)
    record, *others = first.records
    rows = [
        {**row, "test_accuracy": row["test_accuracy"] + 0.05} if row is record.final else row for row in record.rows
    ]
    changed = replace(record, rows=tuple(rows))
    finding = first.experiment.find([changed, *others])
    assert tool.judged(first.experiment, finding) != first.claims
    drawn = tool.gallery_figures(first.experiment.kind, finding)
    assert tool.digest(drawn) != tool.digest(first.figures)


def test_the_pictures_are_there_small_and_drawn_from_these_numbers() -> None:
    drawn = tool.drawn_in(PAGE)
    for one in gallery():
        assert (one.picture.name in drawn) == bool(one.records)
        if one.records:
            assert drawn[one.picture.name] == tool.digest(one.figures), REWRITE
    files = sorted((ROOT / "docs" / "pictures" / "figures").iterdir())
    assert [path.name for path in files] == sorted(drawn), REWRITE
    sizes = [path.stat().st_size for path in files]
    assert max(sizes) < LARGEST
    assert sum(sizes) < ALL_TOGETHER
    assert all(b"<svg" in path.read_bytes()[:200] for path in files)


@pytest.mark.parametrize("label", [label for label in LABELS if LABELS[label] == "theory"])
def test_the_theory_is_listed(label: str) -> None:
    assert PAGE.count(f"| `{label}` |") == 1


def test_a_figure_without_records_says_so() -> None:
    nothing = tool.Entry(gallery()[0].experiment, (), (), ())
    lines = list(tool.figures([nothing]))
    assert f"{nothing.experiment.title}: not run yet." in lines
    assert not any("![" in line for line in lines)
    assert next(tool.summary([nothing])) == "Of 1: 1 not run yet."
    done = [tool.Judgement("p", "c", "f", verdict) for verdict in ("agrees", "differs", "differs", "cannot tell")]
    assert tool._counted(done) == "1 agrees, 2 differ, 1 cannot tell"


def test_a_remedy_is_priced_by_runs_of_its_own_panel_and_arms() -> None:
    (one,) = (entry for entry in gallery() if entry.label == "fig:svag_accs")
    (claim,) = (claim for claim in one.claims if claim.remedy is not None and claim.remedy.runs)
    assert claim.remedy.arms == ("SVAG ell=2", "SVAG ell=8")
    small = [record for record in one.records if record.spec.batch_size == 8]
    own = [
        mean(record.outcome["seconds"] for record in small if getattr(record.spec.process, "ell", 1) == ell)
        for ell in (2, 8)
    ]
    assert one.said(claim).endswith(f", about {tool._duration(claim.remedy.runs * mean(own))}")


def test_a_ladder_counts_its_algebra_apart() -> None:
    rows = [line for line in tool.ladders(()) if line.startswith("| `results/")]
    assert {row.endswith(" (counted apart) |") for row in rows} == {True, False}


def test_what_is_algebra_is_counted_apart() -> None:
    claims = [
        tool.Judgement("p", "c", "f", "agrees"),
        tool.Judgement("p", "c", "f", "agrees", "drift"),
        tool.Judgement("p", "c", "f", "differs", "drift"),
    ]
    entry = tool.Entry(gallery()[0].experiment, gallery()[0].records, claims, ())
    lines = list(tool.summary([entry]))
    assert lines[0] == "Of 1: 1 agrees."
    assert lines[2].startswith("Of 1 claims: 1 agrees. Counted apart: ")
    assert lines[2].endswith(" (1 agrees, 1 differs).")
    assert " | **agrees** | 1 agrees | " in lines[-1]
    rows = [line for line in tool.figures([entry]) if line.startswith("| p |")]
    assert [row.endswith("(counted apart) |") for row in rows] == [False, True, True]


@pytest.mark.parametrize(("label", "printed"), [("fig:ngd_sgd_accs", [75.5, 89.4, 89.3]), ("fig:svag_accs", [])])
def test_what_the_paper_prints_stands_beside_ours(label: str, printed: list[float]) -> None:
    (one,) = (entry for entry in gallery() if entry.label == label)
    assert [round(100 * paper, 1) for _, paper, _ in one.printed] == printed
    best = dict(found_in(label)[0].best) if printed else {}
    assert all(ours == best[arm] for arm, _, ours in one.printed)
    section = PAGE.partition(f"### {label}\n")[2].partition("\n### ")[0]
    assert ("Best test accuracy along the run in the paper" in section) == bool(printed)


def found_in(label: str) -> Any:
    """The panels of a figure."""
    (one,) = (entry for entry in gallery() if entry.label == label)
    return one.experiment.find(one.records).panels


def test_the_front_page_quotes_the_gallery() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    small, large = found_in("fig:svag_accs")
    value, low, high = (-100 * number for number in (large.verdict.gap, large.verdict.high, large.verdict.low))
    assert f"SGD ends {value:.1f} [{low:.1f}, {high:.1f}] points of accuracy below it" in readme
    said = (
        f"the gap is {100 * small.verdict.gap:+.1f} [{100 * small.verdict.low:+.1f}, {100 * small.verdict.high:+.1f}]"
    )
    assert said.replace("-", "−") in readme


def test_the_answer_that_the_laboratory_s_page_shows_is_the_answer() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    shown = page.partition("answers at once")[2].partition("```text\n")[2].partition("```")[0]
    done = CliRunner().invoke(app, ["reproduce", "fig:ngd_sgd_accs", "--size", "small"])
    assert done.exit_code == 0, done.output
    assert " ".join(shown.split()) in " ".join(done.output.split())
    assert "5 seeds" in shown
