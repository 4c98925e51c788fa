"""What an atlas shows: how well measured agrees with predicted, by kind of run, and what explains the worst cases."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from svag.as_json import JsonRow, json_fields_of, json_value
from svag.lab.experiments import wording
from svag.lab.experiments.wording import Answer, Numbers, Tone
from svag.paper.atlas.atlas import Atlas, AtlasBaseline, AtlasLadder, AtlasPair
from svag.stats.samples import rank_correlation

NEAR, FAR = 1.3, 2.0
"""Measured within these factors of predicted counts as near, and as not far."""

SCALE_INVARIANT, ORDINARY = (0.7, 1.05), (0.4, 1.1)
"""Shares of B* between which the crossing of C² counts as a success, set before the ladders were run."""

_WORST, _DEAD = 5, 0.01


@dataclass(frozen=True)
class Agreement(JsonRow):
    """Measured against predicted over some pairs.

    Attributes:
        kind: kind of the runs, or size of D.
        ladders: number of ladders.
        pairs: number of pairs.
        overlap: number of pairs whose intervals of spread and D overlap.
        near: number of pairs within a factor of 1.3.
        far: number of pairs not within a factor of 2.
        middle: median of measured over predicted.
        smallest: smallest of measured over predicted.
        largest: largest of measured over predicted.
    """

    kind: str
    ladders: int
    pairs: int
    overlap: int
    near: int
    far: int
    middle: float
    smallest: float
    largest: float

    def said(self, ratio: str) -> str:
        """In one line; `ratio` is what was divided."""
        return (
            f"{wording.count(self.pairs, 'pair')}: {ratio} is {self.middle:.2f} in the median, {self.smallest:.2f} to "
            f"{self.largest:{'.2f' if self.largest < 10 else '.0f'}}; {self.near} within 30%, {self.far} off by more "
            "than a factor of 2"
        )


Grouping = Callable[[AtlasPair], str]
SIZES = (1.25, 1.5, 2.0, 3.0)


def by_kind(pair: AtlasPair) -> str:
    """The kind of run."""
    return pair.setting.kind


def by_size(pair: AtlasPair) -> str:
    """How large D is."""
    above = [size for size in SIZES if pair.predicted.value >= size]
    below = [size for size in SIZES if pair.predicted.value < size]
    return f"D {above[-1] if above else 1:g} to {below[0]:g}" if below else f"D from {SIZES[-1]:g}"


def agreement(pairs: Sequence[AtlasPair], group: Grouping = by_kind) -> tuple[Agreement, ...]:
    """Spread against D, group by group."""
    return _grouped(pairs, group, lambda pair: pair.over_predicted)


def example_agreement(pairs: Sequence[AtlasPair], group: Grouping = by_kind) -> tuple[Agreement, ...]:
    """The measured factor in examples against D, where the larger rung reached a level of the loss."""
    return _grouped([pair for pair in pairs if pair.factor is not None], group, example_ratio)


def example_ratio(pair: AtlasPair) -> float:
    """The factor in examples over D; NaN where no level was reached."""
    return math.nan if pair.factor is None else pair.factor.value / pair.predicted.value


def _grouped(pairs: Sequence[AtlasPair], group: Grouping, ratio: Callable[[AtlasPair], float]) -> tuple[Agreement, ...]:
    agreements = []
    for name in sorted({group(pair) for pair in pairs}):
        own = [pair for pair in pairs if group(pair) == name]
        ratios = [ratio(pair) for pair in own]
        errors = [abs(math.log(value)) for value in ratios]
        agreements.append(
            Agreement(
                kind=name,
                ladders=len({pair.setting.ladder for pair in own}),
                pairs=len(own),
                overlap=sum(pair.agrees for pair in own),
                near=sum(error <= math.log(NEAR) for error in errors),
                far=sum(error > math.log(FAR) for error in errors),
                middle=median(ratios),
                smallest=min(ratios),
                largest=max(ratios),
            )
        )
    return tuple(agreements)


@dataclass(frozen=True)
class Success(JsonRow):
    """One of the criteria that were set beforehand.

    Attributes:
        what: the criterion.
        met: number of cases that met it.
        of: number of cases.
        needed: the share of cases that counts as a success.
    """

    what: str
    met: int
    of: int
    needed: float

    @property
    def ok(self) -> bool | None:
        """Whether it was met; None where there is nothing to judge."""
        return None if self.of == 0 else self.met >= self.needed * self.of


def successes(atlas: Atlas) -> tuple[Success, ...]:
    """The criteria, and how often each was met.

    Baselines whose ladder never crosses C² count as failures if B* lies on the ladder. If it does not, there was
    nothing to see, and they do not count.
    """
    held = [not pair.falls_short for pair in atlas.pairs if pair.theorem]
    criteria = [Success("drift at least D, where a theorem applies", sum(held), len(held), 1.0)]
    for invariant, (low, high), needed in ((True, SCALE_INVARIANT, 0.9), (False, ORDINARY, 1.0)):
        word = "scale-invariant" if invariant else "ordinary"
        ratios = [baseline.crossing.over_predicted.value for baseline in _seen(atlas, invariant)]
        what = f"between {low:g} and {high:g} of B* with {word} networks"
        criteria.append(Success(what, sum(low <= ratio <= high for ratio in ratios), len(ratios), needed))
    return tuple(criteria)


def _seen(atlas: Atlas, invariant: bool) -> Iterator[AtlasBaseline]:
    """The baselines of SGD without momentum whose crossing could be seen."""
    for ladder in atlas.ladders:
        plain = ladder.setting.scale_invariant == invariant and ladder.setting.plain_sgd
        for baseline in ladder.baselines if plain else ():
            if math.isfinite(baseline.crossing.observed.value) or baseline.predicted.value <= ladder.sizes[-1]:
                yield baseline


@dataclass(frozen=True)
class Indicator(JsonRow):
    """A number of the baseline that might have told how far D would be off.

    Attributes:
        name: what it is.
        correlation: Spearman's correlation with the mean of |log(measured/D)| over the pairs of a baseline.
        baselines: number of baselines for which it is known.
    """

    name: str
    correlation: float
    baselines: int


def indicators(baselines: Sequence[AtlasBaseline]) -> tuple[Indicator, ...]:
    """Rank correlations over all baselines; none where fewer than five are known."""
    numbers: dict[str, Callable[[AtlasBaseline], float | None]] = {
        "drift of B_simple": lambda baseline: _size(baseline.scale_drift),
        "balance of the weights": lambda baseline: _size(baseline.prediction.linear.balance),
        "pull of the loss": lambda baseline: (
            abs(pull) if (pull := baseline.prediction.linear.pull_share) is not None else None
        ),
        "G/N": lambda baseline: 1 / baseline.prediction.linear.noise_to_signal.value,
    }
    known_enough = []
    for name, number in numbers.items():
        known = [(value, baseline.miss) for baseline in baselines if (value := number(baseline)) is not None]
        if len(known) >= 5:
            values, misses = zip(*known, strict=True)
            known_enough.append(Indicator(name, rank_correlation(values, misses), len(known)))
    return tuple(known_enough)


def _size(ratio: float | None) -> float | None:
    return None if ratio is None or ratio <= 0 else abs(math.log(ratio))


def worst(pairs: Sequence[AtlasPair], many: int = _WORST) -> tuple[AtlasPair, ...]:
    """The pair of each ladder that is farthest off, the farthest first; those within a factor 1.3 are not listed."""
    by_error = sorted(pairs, key=lambda pair: -abs(math.log(pair.over_predicted)))
    of_ladder: dict[str, AtlasPair] = {}
    for pair in by_error:
        if abs(math.log(pair.over_predicted)) > math.log(NEAR):
            of_ladder.setdefault(pair.setting.ladder, pair)
    return tuple(of_ladder.values())[:many]


def explained(pair: AtlasPair) -> str:
    """What moved between the two rungs, and which of it accounts for at least half of the gap between spread and D.

    A change of B_simple alone makes the spread (κ·B_simple/B_simple′ + ρ)/(1 + ρ); weights with growth over decay b and
    b′ instead of 1 make it b/b′ times what it was. Where neither does, R has not followed the squared steps.
    """
    drift, first = pair.drift, {"V": "κV"}.get(pair.compared, pair.compared)
    moved = f"{first} × {drift.first.value:.2g}, G × {drift.grad.value:.2g}, κN × {drift.noise.value:.2g}"
    if drift.grad.value < _DEAD:
        return f"{moved}; the larger run has hardly a gradient left: it does not train at this rate"
    rule = pair.small.linear
    if rule.signal != "G":
        return f"{moved}, B_simple × {drift.noise_scale.value:.2g}; D rests on {rule.signal} in place of G"
    gap, rho, causes = math.log(pair.over_predicted), rule.noise_to_signal.value, {}
    alone = (drift.kappa / drift.noise_scale.value + rho) / (1 + rho)
    said = f"B_simple is {drift.noise_scale.value:.2g} of the baseline's, which alone makes it {alone:.3g}"
    causes[said] = math.log(alone / pair.predicted.value)
    small, large = rule.balance, pair.large.linear.balance
    if small and large:
        said = f"the weights have not settled (growth over decay {small:.2f} and {large:.2f}, 1 at equilibrium)"
        causes[said] = math.log(small / large)
    cause = min(causes, key=lambda cause: abs(gap - causes[cause]))
    if abs(gap - causes[cause]) > abs(gap) / 2:
        steps = (drift.kappa * drift.grad.value + rho * drift.noise.value) / (1 + rho)
        cause = f"{first} does not follow the squared steps, which are × {steps:.2g}: nothing ties the two here"
    return f"{moved}; {cause}"


def answers(atlas: Atlas) -> tuple[Answer, ...]:
    """One answer each on drift, crossings, examples and test error."""
    return _spread_answer(atlas), _crossing_answer(atlas), _examples_answer(atlas), _error_answer(atlas)


def to_dict(atlas: Atlas) -> dict[str, object]:
    """Everything, for programs; what is not known is null."""
    rows = [{**pair.drift.to_dict(), "ladder": pair.setting.ladder, "theorem": pair.theorem} for pair in atlas.pairs]
    baselines = [
        {
            "ladder": baseline.setting.ladder,
            **baseline.crossing.to_dict(),
            **json_fields_of(baseline.prediction.linear, "basis", "balance", "pull_share"),
            "scale_drift": baseline.scale_drift,
        }
        for baseline in atlas.baselines
    ]
    return {
        "kind": "atlas",
        "settings": {ladder.setting.ladder: str(ladder.setting) for ladder in atlas.ladders},
        "pairs": rows,
        "baselines": baselines,
        "agreement": json_value(agreement(atlas.pairs)),
        "examples": json_value(example_agreement(atlas.pairs)),
        "successes": json_value(successes(atlas)),
        "indicators": json_value(indicators(atlas.baselines)),
        "worst": [{"pair": place(pair), "why": explained(pair)} for pair in worst(atlas.pairs)],
        "left_out": list(atlas.left_out),
    }


def _spread_answer(atlas: Atlas) -> Answer:
    pairs, (held, *_) = atlas.pairs, successes(atlas)
    overlap = sum(pair.agrees for pair in pairs)
    headline = (
        f"On {overlap} of {wording.count(len(pairs), 'pair')} of batch sizes, the measured drift agrees with the "
        "predicted D, within intervals."
    )
    if held.of:
        headline += f" Where a theorem makes D the least possible drift, that holds on {held.met} of {held.of}."
    groups = (*agreement(pairs), *agreement(pairs, by_size))
    numbers: list[tuple[str, str]] = [(group.kind, group.said("drift/D")) for group in groups]
    numbers += [(place(pair), f"{measured(pair)}: {explained(pair)}") for pair in worst(pairs)]
    numbers += [
        (
            f"warned by {sign.name}?",
            f"rank correlation {sign.correlation:+.2f} with the error, {sign.baselines} baselines",
        )
        for sign in indicators(atlas.baselines)
    ]
    numbers += [("below D", f"{place(pair)}: {measured(pair)}") for pair in pairs if pair.falls_short]
    tone: Tone = "open" if held.ok is None else "yes" if held.ok else "no"
    badge = "" if held.ok is None else "agrees with the theorem" if held.ok else "contradicts the theorem"
    return Answer("Measured drift and D", headline, tone, tuple(numbers), "", first=0, badge=badge)


def place(pair: AtlasPair) -> str:
    """Which rungs of which ladder."""
    return f"{pair.setting.ladder} {pair.drift.baseline}→{pair.drift.batch_size}"


def measured(pair: AtlasPair) -> str:
    """Measured and predicted, with intervals."""
    return f"measured {pair.observed}, D = {pair.predicted}"


def _crossing_answer(atlas: Atlas) -> Answer:
    _, *criteria = successes(atlas)
    judged = [criterion for criterion in criteria if criterion.of]
    said = [f"{goal.what} on {goal.met} of {goal.of} baselines (goal: {goal.needed:.0%})" for goal in judged]
    numbers = [
        (f"{ladder.setting.ladder} from {baseline.batch_size}", crossing_said(baseline))
        for ladder in atlas.ladders
        for baseline in ladder.baselines[:1]
    ]
    oks = [goal.ok for goal in judged]
    tone: Tone = "open" if not oks else "yes" if all(oks) else "no"
    headline = f"The drift reaches C² {'; '.join(said)}." if said else "The drift reaches C² on no ladder."
    badge = {"yes": "goal met", "no": "goal missed"}.get(tone, "")
    return Answer("Predicted and measured B*", headline, tone, tuple(numbers), "", first=0, badge=badge)


def crossing_said(baseline: AtlasBaseline) -> str:
    """B*, where the spread reached C², and where strict invariance was lost."""
    kind, crossing = "B*" if baseline.prediction.theorem else "estimated B*", baseline.crossing
    said = f"{kind} = {wording.batch_estimate(baseline.predicted)}; "
    if math.isinf(crossing.observed.value):
        return f"{said}not reached"
    said += f"measured {wording.batch_estimate(crossing.observed)}, {crossing.over_predicted.value:.2f} of it"
    return f"{said}; invariance lost at {wording.batch(crossing.strict.value)}"


def _examples_answer(atlas: Atlas) -> Answer:
    kinds = example_agreement(atlas.pairs)
    pairs, near = sum(kind.pairs for kind in kinds), sum(kind.near for kind in kinds)
    headline = f"D is within 30% of the measured factor in data on {near} of {wording.count(pairs, 'pair')}."
    if lost := sum(pair.factor is None for pair in atlas.pairs):
        headline += f" On {lost} more, the larger batch never reached the losses that were compared."
    groups = (*kinds, *example_agreement(atlas.pairs, by_size))
    numbers = tuple((group.kind, group.said("factor/D")) for group in groups)
    return Answer("Price in data", headline, "note", numbers, "", first=0, badge="measured, no theorem")


def _error_answer(atlas: Atlas) -> Answer:
    fails = [ladder for ladder in atlas.ladders if ladder.fails_at is not None]
    costs = [ladder.distortion_there for ladder in fails if ladder.distortion_there is not None]
    headline = (
        f"Test error rises beyond its tolerance (20% above the lowest, for texts 2%) on {len(fails)} of "
        f"{wording.count(len(atlas.ladders), 'ladder')}"
    )
    headline += f", at D between {min(costs):.2g} and {max(costs):.2g}." if costs else "."
    numbers: Numbers = tuple((ladder.setting.ladder, error_said(ladder)) for ladder in atlas.ladders)
    return Answer("Test error", headline, "note", numbers, "", first=0, badge="measured, no theorem")


def error_said(ladder: AtlasLadder) -> str:
    """Where test error fails, with D there."""
    lost = f"; seeds diverged at {', '.join(map(str, ladder.diverged))}" if ladder.diverged else ""
    if ladder.fails_at is None:
        first = next((pair for pair in ladder.pairs if pair.small.usable), None)
        mine = [pair for pair in ladder.pairs if first is not None and pair.drift.baseline == first.drift.baseline]
        reach = f" (D = {mine[-1].predicted.value:.2g} there)" if mine else ""
        if ladder.error is None:
            return f"not known{lost}"
        said = "within its tolerance" if ladder.error == "never fails" else f"{ladder.error},"
        return f"{said} up to {ladder.sizes[-1]}{reach}{lost}"
    cost = "" if ladder.distortion_there is None else f", where D = {ladder.distortion_there:.2g}"
    return f"beyond its tolerance from {wording.batch(ladder.fails_at)} on{cost}{lost}"
