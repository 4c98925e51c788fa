"""Every number of docs/evidence.md comes out of the records in results/gain."""

import json
import math
from dataclasses import replace
from functools import cache

import pytest
from tests.docs.tools import ROOT, load

from svag.lab.records.record import load_records
from svag.paper.atlas.gain_atlas import GainAtlas, find_gain_atlas

pages = load("page_tables")
tool = load("make_evidence")
PAGE = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
FOLDER = ROOT / "results" / "gain"


@cache
def atlas() -> GainAtlas:
    return find_gain_atlas(FOLDER)


@pytest.mark.parametrize("name", tool.TABLES)
def test_a_table_redrawn_from_the_records_is_the_table_of_the_page(name: str) -> None:
    assert pages.tables_in(PAGE)[name] == list(tool.TABLES[name](atlas())), "run `python tools/make_evidence.py`"


def test_a_number_that_differs_is_seen() -> None:
    """Negative control: the same records with one loss doubled give another table, and one criterion less met."""
    first, *others = atlas().pairs
    doubled = replace(first.arms["planned"], losses=tuple(2 * loss for loss in first.arms["planned"].losses))
    wrong = replace(atlas(), pairs=(replace(first, arms={**first.arms, "planned": doubled}), *others))
    assert pages.tables_in(PAGE)["recipes"] != list(tool.recipes(wrong))


def test_the_runs_are_complete_and_small() -> None:
    for pair in atlas().pairs:
        assert {"planned", "on_line"} <= set(pair.arms), pair.setting.ladder
        assert math.isfinite(pair.price)
    for arm in ("planned", "on_line", "linear", "one_gain", "announced/planned"):
        for place in sorted((FOLDER / arm).iterdir()):
            assert not [record.problem for record in load_records(place) if not record.ended], place
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 20_000_000


def test_the_announced_prices_are_those_of_the_baselines() -> None:
    """What was committed before the runs is what their plans took, and what the list says today."""
    committed = json.loads((FOLDER / "announced" / "predictions.json").read_text())
    said = {(name, int(size)): price for name, one in committed.items() for size, price in one["examples"].items()}
    found = {(pair.setting.ladder, pair.batch_size): pair.price for pair in atlas().later}
    assert len(found) == 4
    assert found == pytest.approx(said, rel=1e-4)
