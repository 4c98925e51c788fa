"""Every number of docs/evidence.md comes out of the records in results/gain."""

import json
import math
from dataclasses import replace
from functools import cache

import pytest
from tests.docs.tools import ROOT, load

from svag.lab.records.record import load_records
from svag.paper.atlas.gain_atlas import GainAtlas, find_gain_atlas
from svag.theory.gain import least_spread

pages = load("page_tables")
tool = load("make_evidence")
PAGE = (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
FOLDER = ROOT / "results" / "gain"
SAID = " ".join(PAGE.split())


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
    for arm in ("planned", "on_line", "linear", "one_gain", "announced/planned", "announced/on_line"):
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


def rows(table: str) -> list[dict[str, str]]:
    """A table of the page, by its columns."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in pages.tables_in(PAGE)[table]]
    return [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def numbers(column: str) -> list[float]:
    return [float(row[column].strip("×")) for row in rows("recipes") if row[column] != "–"]


MET = {row["set beforehand"]: row["met on"] for row in rows("gain_criteria")}
ABOVE = {row["batch"]: float(row["planned: loss"]) for row in rows("recipes") if row["ladder"] == "vgg_group"}
LARGEST = [row for row in rows("recipes") if row["one gain: loss"] != "–"]
OFF = [ratio for ratio in numbers("examples/bill") if not 1 / 1.2 < ratio < 1.2]


@pytest.mark.parametrize(
    "said",
    [
        f"at most 5% above the small batch on {MET['on line: loss at most 5% above']} pairs",
        f"for {min(numbers('on line: bill')):.1f} to {max(numbers('on line: bill')):.1f} times the examples",
        f"{MET['planned, price up to 4: loss at most 7% above']} pairs with a price up to 4 ended at most 7% above",
        f"the VGG with GroupNorm missed by {ABOVE['16 → 128'] - 1:.0%}",
        f"was within 30% on {MET['planned, price up to 4: price within 30%']} pairs with a price up to 4",
        f"was off by more than 20% on {len(OFF)} of {len(rows('recipes'))}",
        f"On {len(LARGEST)} small networks at 8 and 32 times the batch",
    ],
)
def test_the_front_page_quotes_the_tables(said: str) -> None:
    assert said in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def too_expensive() -> list[float]:
    """How many times too many examples the plan asked for at 32 times the batch, for the kinds that the page names."""
    kinds = {row["ladder"]: row["setting"] for row in rows("gain_settings")}
    named = ("momentum", "Adam", "BatchNorm")
    return [
        1 / float(row["examples/price"])
        for row in LARGEST
        if any(word in kinds[row["ladder"].split()[0]] for word in named)
    ]


@pytest.mark.parametrize(
    "said",
    [
        f"ended {ABOVE['16 → 128'] - 1:.0%} above its baseline at 8 times the batch",
        f"and {ABOVE['16 → 512'] - 1:.0%} above at 32",
        f"off by more than 20% on {len(OFF)} of {len(rows('recipes'))} pairs",
        f"the closest call for the final loss: {max(numbers('loss')) - 1:.1%} above",
        f"more than 5% below the baseline on {sum(loss < 0.95 for loss in numbers('loss'))} of {len(rows('recipes'))}",
        f"pairs, the plan on {sum(loss < 0.95 for loss in numbers('planned: loss'))}.",
        f"asked for {min(too_expensive()):.1f} to {max(too_expensive()):.1f} times as many examples",
        f"it held on {MET['printed range of a price, leaving one ladder out']} pairs",
        f"down to {min(numbers('linear: loss')):.2f} of its loss",
        f"ended {min(loss for loss in numbers('linear: loss') if loss > 1.1) - 1:.0%} or more above",
    ],
)
def test_the_page_quotes_its_tables(said: str) -> None:
    assert said in SAID


def test_what_the_page_says_of_single_networks() -> None:
    by_name = {(row["ladder"], row["batch"]): row for row in rows("recipes")}
    adam, plain = by_name["gn_adam", "16 → 512"], by_name["bn_invariant", "16 → 512"]
    assert f"{float(adam['examples/bill']):.1f} times what the rule counted" in SAID
    assert f"while ending {float(adam['loss']) - 1:.0%} above the baseline" in SAID
    assert max(float(row["loss"]) for name, row in by_name.items() if name[0] == "vgg_group") < 1.01
    errors = {row["batch"]: row for row in rows("errors") if row["ladder"] == "bn_invariant"}["16 → 512"]
    mean = {
        arm: sum(float(one.strip("%")) for one in errors[arm].split(", ")) / 2
        for arm in ("baseline", "planned", "on line")
    }
    assert f"({float(plain['planned: loss']) - 1:.0%} above) and at" in SAID
    assert f"at {mean['planned'] / mean['baseline']:.1f} times its test error" in SAID
    assert mean["on line"] < 1.1 * mean["baseline"]
    drifts = {row["ladder"]: row for row in rows("drifts")}
    halved = {
        name: float(row["planned"]) / float(row["linear"])
        for name, row in drifts.items()
        if name in {"mlp_noise", "mlp_fashion"}
    }
    assert halved["mlp_noise"] > 1
    assert halved["mlp_fashion"] > 0.5


def test_what_is_said_of_adascale() -> None:
    bills = [
        float(row["AdaScale: bill"].strip("×")) / float(row["on line: bill"].strip("×")) for row in rows("adascale")
    ]
    losses = [float(row["loss"]) for row in rows("adascale")]
    ours = {row["ladder"].removesuffix(" †"): float(row["loss"]) for row in LARGEST}
    assert len(bills) == 13
    assert f"was {min(bills) - 1:.0%} to {max(bills) - 1:.0%} higher".replace("% to", " to") in SAID
    assert all(abs(loss / ours[row["ladder"]] - 1) < 0.03 for loss, row in zip(losses, rows("adascale"), strict=True))


def test_the_bounds_beside_the_drifts_are_those_of_the_rates() -> None:
    """The linear rule is κ times the rate, and one gain is the gain of its plan."""
    name, kappa = "gn_invariant", 32
    small = [run for run in load_records(FOLDER / "planned" / name) if run.spec and run.spec.batch_size == 8]
    late = [one for run in small for one in run.readings if one.step is not None and one.step >= run.steps / 2]
    ratio = sum(one.noise_trace for one in late) / sum(one.grad_sq for one in late)
    [single] = load_records(FOLDER / "one_gain" / name)
    assert single.spec is not None
    [(_, gain)] = single.spec.to_dict()["process"]["plan"]
    [pair] = [pair for pair in atlas().pairs if pair.setting.ladder == name and pair.kappa == kappa]
    lr_wd = 0.05 * 0.005
    by_rule = least_spread(ratio, kappa, kappa, lr_wd)
    assert by_rule > 5
    assert pair.arms["linear"].least == pytest.approx(by_rule, rel=1e-9)
    assert pair.arms["one_gain"].least == pytest.approx(least_spread(ratio, kappa, gain, lr_wd), rel=0.01)
    drifts = [one for pair in atlas().pairs if pair.kappa == kappa for one in pair.arms.values()]
    assert sum(one.drift < one.least for one in drifts if one.drift and one.least) == 4, "the page says four"


def test_what_is_said_of_the_announced_prices() -> None:
    losses, ratios = ([float(row[name]) for row in rows("announced")] for name in ("planned: loss", "examples/price"))
    assert f"ended {1 - max(losses):.0%} to {1 - min(losses):.0%} below".replace("% to", " to") in SAID
    assert f"with {min(ratios):.0%} to {max(ratios):.0%} of the".replace("% to", " to") in SAID
    assert sum(1 / ratio > 1.3 for ratio in ratios) == 3, "the page says three"
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"were {1 / max(ratios):.1f} to {1 / min(ratios):.1f} times too high" in readme


def test_what_is_said_of_adascale_and_betas() -> None:
    peers = [{name: float(cell.strip("×")) for name, cell in row.items() if name not in {"ladder", "batch"}}
             for row in rows("adascale")]  # fmt: skip
    bills = [row["AdaScale: bill"] / row["on line: bill"] for row in peers]
    assert f"its bill was {min(bills) - 1:.0%} to {max(bills) - 1:.0%} higher".replace("% to", " to") in SAID
    kept, following = (
        [[float(one) for one in row[name].split(", ")] for row in rows("betas")]
        for name in ("betas kept: loss, seed by seed", "betas following: loss")
    )
    assert all(other > own for own, other in zip(kept[1], following[1], strict=True)), "32 times the batch"
    assert all(other < own for own, other in zip(kept[0], following[0], strict=True)), "8 times"


def test_the_answer_about_ramps_quotes_the_table() -> None:
    asked = " ".join((ROOT / "docs" / "questions.md").read_text(encoding="utf-8").split())
    saved = {(row["ladder"], row["batch"]): row["realised"] for row in rows("schedules")}
    first, second = ((saved[name, "schedule"], saved[name, "constant"]) for name in ("mlp_fashion", "mlp_noise"))
    assert f"{first[0]} of the steps instead of {first[1]}, and {second[0]} instead of {second[1]}" in asked


def test_what_the_page_counts_in_words() -> None:
    assert sum(loss < 0.9 for loss in numbers("linear: loss")) == 8
    assert sum(loss > 1.1 for loss in numbers("linear: loss")) == 5
    assert sum(ratio < 1 for ratio in OFF) == 9
    same_seed = {
        pair.setting.ladder: pair.arms["one_gain"].losses[0] / pair.arms["planned"].losses[0]
        for pair in atlas().pairs
        if "one_gain" in pair.arms
    }
    assert [name for name, ratio in same_seed.items() if ratio > 1.05] == ["resnet_momentum"]
    assert sum(ratio < 0.95 for ratio in same_seed.values()) == 4
    cheap = [float(row["examples/price"]) for row in rows("recipes") if float(row["price"].strip("×")) < 4]
    off = [ratio for ratio in cheap if not 1 / 1.3 < ratio < 1.3]
    assert len(off) == 4
    assert max(off) < 1, "README: fewer examples were enough"
