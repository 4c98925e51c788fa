"""Every number of docs/linear_scaling.md comes out of the records in results/atlas."""

from dataclasses import replace
from functools import cache

import pytest
from tests.docs.tools import ROOT, load

from svag.lab.experiments import load_experiment
from svag.paper.atlas.atlas import Atlas, find_atlas

pages = load("page_tables")
tool = load("make_linear_scaling")
PAGE = (ROOT / "docs" / "linear_scaling.md").read_text(encoding="utf-8")
REWRITE = "run `python tools/make_linear_scaling.py`"
LARGEST = 15_000_000


@cache
def atlas() -> Atlas:
    return find_atlas(ROOT / "results" / "atlas")


@pytest.mark.parametrize("name", tool.TABLES)
def test_a_table_redrawn_from_the_records_is_the_table_of_the_page(name: str) -> None:
    assert pages.tables_in(PAGE)[name] == list(tool.TABLES[name](atlas())), REWRITE


def test_a_number_that_differs_is_seen() -> None:
    """Negative control: the same records with one spread doubled give another table."""
    (pair, *others) = atlas().pairs
    seen = replace(pair.drift.spread, value=2 * pair.drift.spread.value)
    wrong = replace(pair, drift=replace(pair.drift, spread=seen))
    changed = replace(atlas().ladders[0], pairs=(wrong, *others), baselines=())
    other = replace(atlas(), ladders=(changed,))
    assert pages.tables_in(PAGE)["kinds"] != list(tool.kinds(other))
    assert pages.rewritten(PAGE, {name: table(atlas()) for name, table in tool.TABLES.items()}) == PAGE


def near(table: str, column: int, *starts: str) -> str:
    """How many pairs are within 30%, of how many, over the rows that begin like this."""
    rows = [line.split(" | ") for line in pages.tables_in(PAGE)[table] if line.removeprefix("| ").startswith(starts)]
    counts = [row[column].strip("| ").split(" of ") for row in rows]
    assert len(rows) == len(starts)
    return f"{sum(int(close) for close, _ in counts)} of {sum(int(all_) for _, all_ in counts)}"


def test_the_pages_quote_the_tables() -> None:
    drift, data = 6, 9
    small, large, adam = ("1 to 1.25", "1.25 to 1.5"), ("2 to 3", "from 3"), ("ordinary, Adam ", "ordinary, AdamW")
    unfailing = {one.split(" | ")[0] for one in pages.tables_in(PAGE)["baselines"] if "within its tolerance" in one}
    assert len(unfailing) == 4, "the page says four"
    for said in (
        f"drift within 30% on {near('sizes', drift, *small)} pairs",
        f"the factor in data within 30% on {near('sizes', data, *small)} pairs",
        f"the factor in data within 30% on {near('sizes', data, '1.5 to 2')} pairs",
        f"within 30% on {near('sizes', data, *large)} pairs, and {unreached(*large)} more did not reach the loss",
        f"the second moment within 30% on {near('kinds', drift, *adam)} pairs",
        f"we trained {len(atlas().ladders)} networks",
    ):
        assert said in " ".join(PAGE.split()), said


def unreached(*starts: str) -> int:
    """Pairs of these sizes of D whose larger batch reached none of the losses."""
    rows = [line.split(" | ") for line in pages.tables_in(PAGE)["sizes"] if line.removeprefix("| ").startswith(starts)]
    return sum(int(row[2]) - int(row[-1].strip("| ").split(" of ")[1]) for row in rows)


def test_the_members_are_complete_and_small() -> None:
    # the runs of an arm that is no longer asked for stay readable
    others = ("transformer_adamw_raised is no ladder",)
    assert not [one for one in atlas().left_out if "no baseline predicts" not in one and one not in others]
    assert not [record.problem for record in atlas().records if not record.ended]
    folder = ROOT / "results" / "atlas"
    for member in sorted(path for path in folder.iterdir() if (path / "experiment.json").exists()):
        experiment = load_experiment(member)
        assert experiment is not None
        assert len(experiment.slots()) == sum(member / "runs" in record.path.parents for record in atlas().records)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGEST
    assert {path.name for path in files} >= {"experiment.json", "spec.json", "outcome.json", "metrics.jsonl.xz"}
    assert not [path for path in files if path.name in {"checkpoint.pt", "timings.jsonl"}]
