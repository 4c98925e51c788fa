"""The recipe of the price list, followed literally: every number of its table comes out of the records."""

from dataclasses import replace
from functools import cache

from tests.docs.tools import load

from svag.lab.experiments.gain_finding import GainFinding

tool = load("make_recipes")


@cache
def recipes(measured: bool = False) -> dict[str, GainFinding]:
    found: dict[str, GainFinding] = tool.recipes(measured)
    return found


def test_the_table_redrawn_from_the_records_is_that_of_the_page() -> None:
    (shown,) = tool.TABLE.findall(tool.PAGE.read_text(encoding="utf-8"))
    assert shown.splitlines() == list(tool.table(recipes(), recipes(True))), "run `python tools/make_recipes.py`"
    name, one = next(iter(recipes().items()))
    first, *others = one.rungs
    wrong = replace(one, rungs=(replace(first, price=2 * first.price), *others))
    assert shown.splitlines() != list(tool.table({**recipes(), name: wrong}, recipes(True))), (
        "a number that differs is seen"
    )


def test_the_recipe_ends_where_the_small_batch_ended() -> None:
    """At most 7% above the training loss of the baseline wherever the price is at most 3; three seeds each."""
    rungs = [rung for one in recipes().values() for rung in one.rungs]
    assert len(rungs) == 16
    cheap = [rung for rung in rungs if rung.price <= 3]
    assert len(cheap) == 8
    assert max(rung.loss.value for rung in cheap) <= 1.07
    assert all(rung.ended != "diverged" for rung in rungs)


def test_the_measured_rule_ends_where_the_small_batch_ended() -> None:
    rungs = [rung for one in recipes(True).values() for rung in one.rungs]
    assert len(rungs) == 16
    assert max(rung.loss.value for rung in rungs) <= 1.07
    assert all(rung.ended != "diverged" for rung in rungs)


def test_the_bill_is_what_was_announced() -> None:
    for one in recipes().values():
        for rung in one.rungs:
            assert abs(rung.paid / rung.price - 1) < 0.03, "steps are whole, and cut where a phase ends"
