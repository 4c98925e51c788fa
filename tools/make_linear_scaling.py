"""Writes the tables and the pictures of docs/linear_scaling.md from the records in results/atlas; the prose stays.

    python tools/make_linear_scaling.py

A table stands between `<!-- NAME -->` and `<!-- end of NAME -->`. A test compares every number with the records.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from page_tables import head, rewritten, row
from svag.lab.experiments import wording
from svag.lab.experiments.data_price import DataPrice
from svag.lab.report.save import save
from svag.paper.atlas import answer as atlas_answer
from svag.paper.atlas.atlas import Atlas, AtlasBaseline, AtlasLadder, AtlasPair, find_atlas
from svag.paper.charts.sections import atlas_figures
from svag.theory.bounds import critical_batch_size
from svag.theory.equilibrium import estimated_momentum_signal

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "atlas"
PAGE = ROOT / "docs" / "linear_scaling.md"
PICTURES = {"spread": ROOT / "docs" / "pictures" / "atlas.svg", "examples": ROOT / "docs" / "pictures" / "examples.svg"}


def criteria(atlas: Atlas) -> Iterator[str]:
    """What would have been a success, and whether it was."""
    yield from head("set beforehand", "met on", "needed", "")
    for one in atlas_answer.successes(atlas):
        verdict = {None: "nothing to judge", True: "met", False: "**not met**"}[one.ok]
        yield row(one.what, f"{one.met} of {one.of}", f"{one.needed:.0%}", verdict)


def kinds(atlas: Atlas) -> Iterator[str]:
    """Spread and factor in examples against D, by kind of run."""
    yield from _agreement(atlas, "kind of run", atlas_answer.by_kind)


def sizes(atlas: Atlas) -> Iterator[str]:
    """The same by how large D is, without momentum, where D is another estimate."""
    ladders = tuple(one for one in atlas.ladders if not one.setting.momentum)
    yield from _agreement(replace(atlas, ladders=ladders), "D", atlas_answer.by_size)


def _agreement(atlas: Atlas, name: str, group: atlas_answer.Grouping) -> Iterator[str]:
    yield from head(
        name, "ladders", "pairs", "intervals overlap", "drift/D: median", "range", "within 30%", "examples/D: median",
        "range", "within 30%",
    )  # fmt: skip
    examples = {one.kind: one for one in atlas_answer.example_agreement(atlas.pairs, group)}
    for one in atlas_answer.agreement(atlas.pairs, group):
        cells = [one.kind.removeprefix("D "), one.ladders, one.pairs, one.overlap, *_ratios(one)]
        yield row(*cells, *(_ratios(examples[one.kind]) if one.kind in examples else ("–", "–", "–")))


def _ratios(one: atlas_answer.Agreement) -> tuple[str, str, str]:
    return f"{one.middle:.2f}", f"{one.smallest:.2f} to {one.largest:.2f}", f"{one.near} of {one.pairs}"


def worst(atlas: Atlas) -> Iterator[str]:
    """The pair of each ladder that is farthest off, with what moved."""
    yield from head("rungs", "measured", "D", "ratio", "what moved, larger over smaller rung, and the likeliest cause")
    for pair in atlas_answer.worst(atlas.pairs, len(atlas.ladders)):
        ratio = f"{pair.over_predicted:.2f}"
        yield row(atlas_answer.place(pair), pair.observed, pair.predicted, ratio, atlas_answer.explained(pair))


def baselines(atlas: Atlas) -> Iterator[str]:
    """B*, the measured crossing of C², strict invariance, and test error."""
    yield from head("ladder", "from", "rests on", "B*", "measured", "ratio", "strict", "test error")
    for ladder in atlas.ladders:
        for one in ladder.baselines:
            crossing, first = one.crossing, one is ladder.baselines[0]
            seen = math.isfinite(crossing.observed.value)
            yield row(
                one.setting.ladder,
                one.batch_size,
                _basis(one),
                wording.batch_estimate(one.predicted),
                wording.batch_estimate(crossing.observed) if seen else f"not up to {ladder.sizes[-1]}",
                f"{crossing.over_predicted.value:.2f}" if seen else "–",
                f"{one.strict_over_predicted:.2f}" if math.isfinite(crossing.strict.value) else "–",
                atlas_answer.error_said(ladder) if first else "",
            )


def _basis(one: AtlasBaseline) -> str:
    rule = one.prediction.linear
    signal = "" if rule.signal == "G" else f", {rule.signal}"
    marks = [*(["theorem"] if one.prediction.theorem else []), *(["these runs only"] if rule.window_only else [])]
    return rule.basis.replace("_", " ") + signal + (f" ({', '.join(marks)})" if marks else "")


def momentum(atlas: Atlas) -> Iterator[str]:
    """With momentum: B* as G, the estimate X̂ and the price list itself have it, beside what was measured."""
    yield from head(
        "ladder", "from", "B* from G", "from X̂ = G(1−β)/(1+β)", "price list", "measured", "geometric mean of G and X̂"
    )
    for ladder in atlas.ladders:
        for one in ladder.baselines if ladder.setting.momentum else ():
            size, beta = one.batch_size, ladder.setting.momentum
            rho = one.prediction.price_list.noise_scale.value / size
            own = critical_batch_size(size, rho)
            moving = critical_batch_size(size, rho / estimated_momentum_signal(1.0, beta))
            seen = one.crossing.observed
            yield row(
                ladder.setting.ladder,
                size,
                *map(wording.batch, (own, moving)),
                wording.batch_estimate(one.predicted),
                wording.batch_estimate(seen) if math.isfinite(seen.value) else f"not up to {ladder.sizes[-1]}",
                wording.batch(math.sqrt(own * moving)),
            )


def settings(atlas: Atlas) -> Iterator[str]:
    """What each ladder is."""
    yield from head("ladder", "setting", "base rate", "batch sizes", "runs")
    for one in atlas.ladders:
        runs = sum(_belongs(record.path, one) for record in atlas.records)
        sizes = ", ".join(map(str, one.sizes))
        yield row(one.setting.ladder, one.setting, f"{one.setting.lr:g}", sizes, runs)


def _belongs(path: Path, ladder: AtlasLadder) -> bool:
    return (RECORDS / ladder.setting.ladder.partition(":")[0]) in path.parents


def examples(atlas: Atlas) -> Iterator[str]:
    """D and the measured factor in examples, from the smallest baseline that predicts, at 2 to 32 times its batch."""
    factors = (2, 4, 8, 16, 32)
    yield from head("ladder", "from", *(f"{kappa}×: D → measured" for kappa in factors))
    for ladder in atlas.ladders:
        first = next((pair.drift.baseline for pair in ladder.pairs if pair.small.usable), None)
        mine = {pair.drift.kappa: pair for pair in ladder.pairs if pair.drift.baseline == first}
        if first is not None:
            yield row(ladder.setting.ladder, first, *(_price(mine.get(kappa)) for kappa in factors))


def _price(pair: AtlasPair | None) -> str:
    return "–" if pair is None else f"{pair.predicted.value:.2f} → {_factors(pair.examples)}"


def _factors(price: DataPrice | None) -> str:
    """The factor in examples, over the levels that were reached."""
    if price is None:
        return "unknown"
    if not price.reached:
        return f"> {price.at_least:.2g}×"
    low, high = f"{min(price.reached):.3g}", f"{max(price.reached):.3g}"
    return f"{low}×" if low == high else f"{low} to {high}×"


def indicators(atlas: Atlas) -> Iterator[str]:
    """What of the baseline goes with how far D is off."""
    yield from head("number of the baseline", "rank correlation with the miss", "baselines")
    for one in atlas_answer.indicators(atlas.baselines):
        yield row(one.name, f"{one.correlation:+.2f}", one.baselines)


def left_out(atlas: Atlas) -> Iterator[str]:
    """Members that could not be used as a whole."""
    yield from [f"- {one}" for one in atlas.left_out] or ["Every member was used as a whole."]


TABLES: dict[str, Callable[[Atlas], Iterator[str]]] = {
    one.__name__: one
    for one in (criteria, kinds, sizes, worst, baselines, momentum, settings, examples, indicators, left_out)
}


if __name__ == "__main__":
    read = find_atlas(RECORDS)
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), {name: table(read) for name, table in TABLES.items()}))
    for figure in atlas_figures(read):
        save(figure.chart, PICTURES[figure.name])
