"""Every number of docs/evidence.md comes out of the records in results/gain."""

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
from tests.docs.tools import ROOT, load

from svag.lab.experiments.drift import measure_drift
from svag.lab.experiments.gain_finding import gain_between, loss_points
from svag.lab.records.record import RunRecord, load_records
from svag.lab.report.save import save
from svag.paper.atlas.gain_atlas import ARMS, GainArm, GainAtlas, _by_size, _late, find_gain_atlas
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


@cache
def drawn() -> dict[str, Any]:
    return tool.pictures(atlas())  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["gain_losses.svg", "gain_prices.svg"])
def test_a_picture_redrawn_from_the_records_is_the_picture_of_the_page(name: str, tmp_path: Path) -> None:
    assert f"(pictures/{name})" in PAGE
    redrawn = save(drawn()[name], tmp_path / name).read_bytes()
    assert redrawn == (ROOT / "docs" / "pictures" / name).read_bytes(), "run `python tools/make_evidence.py`"


def test_a_number_that_differs_is_seen(tmp_path: Path) -> None:
    """Negative control: the same records with one loss doubled give another table, and another picture."""
    *others, last = atlas().pairs
    doubled = replace(last.arms["planned"], losses=tuple(2 * loss for loss in last.arms["planned"].losses))
    wrong = replace(atlas(), pairs=(*others, replace(last, arms={**last.arms, "planned": doubled})))
    assert pages.tables_in(PAGE)["recipes"] != list(tool.recipes(wrong))
    name = "gain_losses.svg"
    redrawn = save(tool.pictures(wrong)[name], tmp_path / name).read_bytes()
    assert redrawn != (ROOT / "docs" / "pictures" / name).read_bytes()


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
    drifts = [one for pair in atlas().pairs for one in pair.arms.values()]
    assert sum(one.drift < one.least for one in drifts if one.drift and one.least) == 5, "the page says five"


def tenths(run: RunRecord) -> list[tuple[float, float, float]]:
    """Training loss, B_simple and gain in each tenth of a run."""
    found = []
    steps = run.spec.steps() if run.spec else 0
    for start, stop in ((tenth * steps / 10, (tenth + 1) * steps / 10) for tenth in range(10)):
        losses = [one.train_loss for one in loss_points(run) if start < one.baseline_time <= stop + 1]
        read = [one for one in run.readings if one.step is not None and start <= one.step * steps / run.steps < stop]
        noise, signal = sum(one.noise_trace for one in read), sum(one.grad_sq for one in read)
        found.append(
            (mean(losses), read[0].batch_size * noise / signal, gain_between(loss_points(run), start, stop) or 1)
        )
    return found


def test_what_is_said_of_the_spikes_of_vgg_group() -> None:
    arms: tuple[GainArm, ...] = ("planned", "on_line", "one_gain")
    runs = {arm: _by_size(FOLDER / arm / "vgg_group") for arm in arms}
    spikes, scales, gains, others = [], [], [], []
    for seed in (0, 1):
        base, plan, line = (
            tenths(run[seed]) for run in (runs["planned"][16], runs["planned"][512], runs["on_line"][512])
        )
        for tenth in (2, 7):
            spikes.append(plan[tenth][0] / base[tenth][0])
            scales.append(plan[tenth][1] / base[tenth][1])
            gains.append(line[tenth][2] / plan[tenth][2])
        others += [one[0] / other[0] for one, other in zip(line[1:], base[1:], strict=True)]
    assert f"of both seeds is {min(spikes):.1f} to {max(spikes):.1f} times the baseline's" in SAID
    assert f"B_simple {min(scales):.2f} to {max(scales):.2f} times" in SAID
    assert f"average gains {min(gains):.2f} to {max(gains):.2f} times as large" in SAID
    assert f"more than {max(others) - 1:.0%} above" in SAID
    (_, single), (_, planned) = (
        spec.to_dict()["process"]["plan"][0]
        for arm in ("one_gain", "planned")
        if (spec := runs[arm][512][0].spec) is not None
    )
    assert f"one gain, {single / planned:.1f} times as large at first" in SAID


def noise_scale(ladder: str, arm: GainArm, batch_size: int) -> float:
    """B_simple at a larger batch over the baseline's, second half of training."""
    base = min(_by_size(FOLDER / "planned" / ladder).items())
    sizes = dict([base, (batch_size, _by_size(FOLDER / arm / ladder)[batch_size])])
    late = {size: [_late(run) for run in runs.values()] for size, runs in sizes.items()}
    drift = measure_drift(late, rng=np.random.default_rng(0))
    assert drift is not None
    return drift.pairs[0].noise_scale.value


def test_what_is_said_of_the_noise_scale_at_the_larger_batch() -> None:
    noisy = [noise_scale("mlp_noise", arm, 512) for arm in ARMS]
    assert f"is {min(noisy):.1f} to {max(noisy):.1f} times the baseline's" in SAID
    dear = [pair for pair in atlas().pairs if pair.arms["on_line"].ratio < 1 / 1.2]
    scales = [noise_scale(pair.setting.ladder, "on_line", pair.batch_size) for pair in dear]
    assert f"B_simple was {min(scales):.1f} to {max(scales):.1f} times the baseline's" in SAID
    assert max(pair.arms["planned"].ratio for pair in dear) < 1 / 1.2
    assert f"a B_simple {noise_scale('gn_adam', 'on_line', 512):.1f} times the baseline's" in SAID


def test_the_times_of_the_baselines() -> None:
    for name in ("cifar10_full", "deep_transformer"):
        _, small = min(_by_size(FOLDER / "planned" / name).items())
        first, second = sorted(round(run.outcome["seconds"]) for run in small.values())
        assert first > 180
        assert f"{first} and {second} s" in SAID


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
    assert f"{first[0]} of steps saved rather than {first[1]}, and {second[0]} rather than {second[1]}" in asked
    more = sorted(int(own.strip("%")) - int(other.strip("%")) for own, other in (first, second))
    assert f"The schedule saved {more[0]} to {more[1]} points more steps" in SAID
    assert all(saved[name, "schedule"] <= saved[name, "ramp"] for name in ("mlp_fashion", "mlp_noise"))


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
