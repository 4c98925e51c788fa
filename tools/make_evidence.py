"""Writes the tables and the pictures of docs/evidence.md from the records in results/gain; the prose stays.

    python tools/make_evidence.py

A table stands between `<!-- NAME -->` and `<!-- end of NAME -->`. A test compares every number with the records.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import geometric_mean, mean
from typing import Any

from page_tables import head, rewritten, row
from svag.lab.report import look
from svag.lab.report.save import save
from svag.paper.atlas.atlas import find_atlas
from svag.paper.atlas.gain_atlas import GainAtlas, GainPair, GainResult, find_gain_atlas, successes
from svag.paper.charts import gain_pairs as charts

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "gain"
PAGE = ROOT / "docs" / "evidence.md"
PICTURES = ROOT / "docs" / "pictures"
LARGEST = 32


def gain_criteria(atlas: GainAtlas) -> Iterator[str]:
    """What would have been a success, and whether it was."""
    yield from head("set beforehand", "met on", "needed", "")
    for one in successes(atlas):
        verdict = {None: "nothing to judge", True: "met", False: "**not met**"}[one.ok]
        yield row(one.what, f"{one.met} of {one.of}", f"{one.needed:.0%}", verdict)


def recipes(atlas: GainAtlas) -> Iterator[str]:
    """Every pair: what the two printed rules cost and where they ended, and the controls."""
    yield from head(
        "ladder", "batch", "price", "planned: loss", "examples/price", "on line: bill", "loss", "examples/bill",
        "linear: loss", "one gain: loss",
    )  # fmt: skip
    for pair in atlas.pairs:
        planned, line = pair.arms.get("planned"), pair.arms.get("on_line")
        name = f"{pair.setting.ladder}{' †' if pair.announced else ''}"
        yield row(
            name,
            f"{pair.baseline} → {pair.batch_size}",
            f"{pair.price:.2f}×",
            loss(planned),
            ratio(planned),
            "–" if line is None else f"{line.examples:.2f}×",
            loss(line),
            ratio(line),
            loss(pair.arms.get("linear")),
            loss(pair.arms.get("one_gain")),
        )


def loss(one: GainResult | None) -> str:
    """Final training loss over the baseline's."""
    return "–" if one is None or not one.losses else "diverged" if math.isinf(one.loss) else f"{one.loss:.3f}"


def ratio(one: GainResult | None) -> str:
    """Examples to the same loss over the price."""
    if one is None or not one.ratios:
        return "–"
    return "not reached" if math.isinf(one.ratio) else f"{one.ratio:.2f}"


def announced(atlas: GainAtlas) -> Iterator[str]:
    """The pairs whose prices were committed before they were run, and the on-line rule at the same batches."""
    yield from head(
        "ladder", "batch", "price", "planned: loss", "examples/price", "on line: bill", "loss", "examples/bill"
    )
    for pair in atlas.later:
        planned, line = pair.arms["planned"], pair.arms["on_line"]
        batches, price, bill = f"{pair.baseline} → {pair.batch_size}", f"{pair.price:.2f}×", f"{line.examples:.2f}×"
        yield row(pair.setting.ladder, batches, price, loss(planned), ratio(planned), bill, loss(line), ratio(line))


def drifts(atlas: GainAtlas) -> Iterator[str]:
    """How far R, G and κN moved under each rule, wherever the readings resolve G."""
    yield from head("ladder", "batch", "planned", "on line", "linear", "one gain")
    for pair in atlas.pairs:
        cells = [_drift(pair.arms.get(arm)) for arm in ("planned", "on_line", "linear", "one_gain")]
        if set(cells) != {"–"}:
            yield row(pair.setting.ladder, f"{pair.baseline} → {pair.batch_size}", *cells)


def _drift(one: GainResult | None) -> str:
    """The drift, and in brackets what theorem (iii) allows."""
    if one is None or one.drift is None:
        return "–"
    return f"{one.drift:.2f}" + ("" if one.least is None else f" (≥ {one.least:.2f})")


def errors(atlas: GainAtlas) -> Iterator[str]:
    """Test error of the baseline and of the larger batches, seed by seed; bits per character of a text."""
    yield from head("ladder", "batch", "baseline", "planned", "on line", "linear")
    for pair in atlas.pairs:
        text = pair.setting.network.startswith("transformer")
        cells = [
            "–" if arm not in pair.arms else _errors(pair.arms[arm].errors, 1, text)
            for arm in ("planned", "on_line", "linear")
        ]
        base = _errors(pair.arms["planned"].errors, 0, text)
        yield row(pair.setting.ladder, f"{pair.baseline} → {pair.batch_size}", base, *cells)


def _errors(found: Sequence[tuple[float, float]], which: int, text: bool) -> str:
    return ", ".join(f"{one[which]:.3f}" if text else f"{one[which]:.1%}" for one in found) or "–"


def adascale(atlas: GainAtlas) -> Iterator[str]:
    """AdaScale beside the on-line rule, in the same runs."""
    yield from head("ladder", "batch", "on line: bill", "loss", "AdaScale: bill", "loss")
    pairs = {pair.setting.ladder: pair for pair in _largest(atlas)}
    for name, rows in _by("ladder", atlas.adascale):
        line, base = pairs[name].arms["on_line"], atlas.baseline_losses[name]
        ended = [one for one in rows if one["state"] == "finished"]
        paid = mean(one["examples"] for one in ended) / atlas.baseline_examples[name] if ended else math.nan
        ended_at = geometric_mean(one["final_loss"] / base[one["seed"]] for one in ended) if ended else math.inf
        other = [f"{paid:.2f}×", f"{ended_at:.3f}"] if len(ended) == len(rows) else ["–", "diverged"]
        pair = pairs[name]
        yield row(name, f"{pair.baseline} → {pair.batch_size}", f"{line.examples:.2f}×", loss(line), *other)


def betas(atlas: GainAtlas) -> Iterator[str]:
    """Betas kept, as the list has it, against betas that follow the gain."""
    yield from head("ladder", "batch", "betas kept: loss, seed by seed", "betas following: loss")
    for pair in atlas.pairs:
        following = atlas.betas.get(pair.setting.ladder, {}).get(pair.batch_size)
        if following:
            cells = [", ".join(f"{one:.3f}" for one in losses) for losses in (pair.arms["planned"].losses, following)]
            yield row(pair.setting.ladder, f"{pair.baseline} → {pair.batch_size}", *cells)


def schedules(atlas: GainAtlas) -> Iterator[str]:
    """A batch that grows by `batch_schedule`, beside a constant one and a linear ramp of the same announced price."""
    yield from head(
        "ladder", "batch", "batch sizes", "examples: announced", "taken", "steps saved: announced", "realised",
        "loss over that of the small batch",
    )  # fmt: skip
    for name, rows in _by("ladder", atlas.schedules):
        base, examples = atlas.baseline_losses[name], atlas.baseline_examples[name]
        for arm in ("schedule", "constant", "ramp"):
            mine = [one for one in rows if one["arm"] == arm]
            sizes, steps = mine[0]["batch_sizes"], mine[0]["base_steps"]
            yield row(
                name,
                arm,
                str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}",
                f"{mine[0]['announced_price']:.3f}×",
                f"{mean(one['examples'] for one in mine) / examples:.3f}×",
                f"{1 - mine[0]['announced_steps'] / steps:.0%}",
                f"{1 - mean(one['updates'] for one in mine) / steps:.0%}",
                ", ".join(f"{one['final_loss'] / base[one['seed']]:.3f}" for one in mine),
            )


def gain_settings(atlas: GainAtlas) -> Iterator[str]:
    """What each ladder is."""
    yield from head("ladder", "setting", "base rate", "base batch")
    for _, pairs in groupby(atlas.pairs, key=lambda pair: pair.setting.ladder):
        pair = next(pairs)
        yield row(pair.setting.ladder, pair.setting, f"{pair.setting.lr:g}", pair.baseline)


def _largest(atlas: GainAtlas) -> list[GainPair]:
    return [pair for pair in atlas.pairs if pair.kappa == LARGEST]


def _by(name: str, rows: Sequence[Any]) -> Iterator[tuple[str, list[Any]]]:
    for key in sorted({one[name] for one in rows}):
        yield key, [one for one in rows if one[name] == key]


TABLES: dict[str, Callable[[GainAtlas], Iterator[str]]] = {
    table.__name__: table
    for table in (gain_criteria, recipes, announced, drifts, errors, adascale, betas, schedules, gain_settings)
}


def pictures(atlas: GainAtlas) -> dict[str, look.Picture]:
    """The pictures of README.md and of the page, by the names of their files."""
    linear = find_atlas(ROOT / "results" / "atlas").pairs
    return {
        "gain_losses.svg": charts.loss_chart(charts.loss_points(atlas.pairs, LARGEST)),
        "gain_prices.svg": charts.price_chart(charts.price_points(atlas.pairs, linear)),
    }


if __name__ == "__main__":
    read = find_gain_atlas(RECORDS)
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), {name: table(read) for name, table in TABLES.items()}))
    for name, chart in pictures(read).items():
        save(chart, PICTURES / name)
