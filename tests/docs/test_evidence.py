"""Every number of docs/evidence.md comes out of the records in results/atlas."""

from dataclasses import replace
from functools import cache

import pytest
from tests.docs.tools import ROOT, load

from svag.experiments import load_experiment
from svag.experiments.atlas import Atlas, find_atlas

tool = load("make_evidence")
PAGE = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
REWRITE = "run `python tools/make_evidence.py`"
LARGEST = 15_000_000


@cache
def atlas() -> Atlas:
    return find_atlas(ROOT / "results" / "atlas")


@pytest.mark.parametrize("name", tool.TABLES)
def test_a_table_redrawn_from_the_records_is_the_table_of_the_page(name: str) -> None:
    assert tool.tables_in(PAGE)[name] == list(tool.TABLES[name](atlas())), REWRITE


def test_a_number_that_differs_is_seen() -> None:
    """Negative control: the same records with one spread doubled give another table."""
    (pair, *others) = atlas().pairs
    seen = replace(pair.drift.spread, value=2 * pair.drift.spread.value)
    wrong = replace(pair, drift=replace(pair.drift, spread=seen))
    changed = replace(atlas().ladders[0], pairs=(wrong, *others), baselines=())
    other = replace(atlas(), ladders=(changed,))
    assert tool.tables_in(PAGE)["kinds"] != list(tool.kinds(other))
    assert tool.rewritten(PAGE, atlas()) == PAGE


def test_the_members_are_complete_and_small() -> None:
    assert not [one for one in atlas().left_out if "no baseline predicts" not in one]
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
