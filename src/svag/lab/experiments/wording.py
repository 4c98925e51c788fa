"""Findings in words: the answer of one panel as plain data, and numbers with their units.

A page, a summary in Markdown, a terminal and `print` all show the same `Answer`.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from svag.lab.specs.optimizers import TITLES
from svag.prices.estimate import Estimate
from svag.prices.reasons import Code

Tone = Literal["yes", "no", "open", "note"]
PaperVerdict = Literal["agrees", "differs", "cannot tell"]
ClaimCode = Literal[
    "end", "converged", "trajectory", "roads", "sampling", "decomposition", "drift", "error", "ngd", "curves", "gd", ""
]
Numbers = tuple[tuple[str, str], ...]

LINES = 12
"""Lines of an answer in a terminal; the rest is for `--details`."""


@dataclass(frozen=True)
class Answer:
    """The answer of one panel.

    >>> print(Answer("B = 64", "Yes.", "yes", (("gap", "+0.10 points"),), "nothing more to run."))
    B = 64: Yes.
      gap: +0.10 points
    Next: nothing more to run.

    Attributes:
        panel: name of the panel.
        headline: the answer in one sentence.
        tone: whether that is a yes, a no, still open, or just a note.
        numbers: the numbers behind it: a name and a value with its interval.
        next: what to do next; nothing if empty.
        spark: a curve to draw next to it in the terminal.
        spark_of: caption of that curve.
        first: how many of the numbers the page shows without unfolding the card; all when None.
        badge: the subject of its mark in a few words, if the headline does not begin with yes or no.
    """

    panel: str
    headline: str
    tone: Tone
    numbers: Numbers
    next: str
    spark: tuple[float, ...] = ()
    spark_of: str = ""
    first: int | None = None
    badge: str = ""

    @property
    def in_card(self) -> Numbers:
        """The numbers that the card shows at once."""
        return self.numbers[: self.first]

    @property
    def folded(self) -> Numbers:
        """The others."""
        return self.numbers[len(self.in_card) :]

    def __str__(self) -> str:
        numbers = [f"  {name}: {said}" for name, said in self.numbers]
        after = [f"Next: {self.next}"] if self.next else []
        return "\n".join([f"{self.panel}: {self.headline}", *numbers, *after])


@dataclass(frozen=True)
class Remedy:
    """What would decide an open claim, and how many runs that takes.

    >>> print(Remedy("seeds", seeds=32, runs=72))
    32 seeds would probably decide (72 more runs)

    Attributes:
        code: "seeds", more of them; "margin", another setting, since the result is so close to the margin that seeds
            hardly help; "batch sizes", beyond those of the ladder; "equilibrium", weights at equilibrium from the start
            of the window; "control", a setting in which GD ends apart from SGD.
        seeds: per arm in all.
        runs: how many more runs that is; 0 if not known.
        arms: names of the arms that these runs belong to, in equal parts; empty if to all of the panel.
    """

    code: Literal["seeds", "margin", "batch sizes", "equilibrium", "control"]
    seeds: int = 0
    runs: int = 0
    arms: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = _REMEDIES[self.code].format(seeds=self.seeds) if self.seeds or self.code != "seeds" else _MORE_SEEDS
        return f"{what} ({count(self.runs, 'more run')})" if self.runs else what


_MORE_SEEDS = "more seeds would decide"
_REMEDIES = {
    "seeds": "{seeds} seeds would probably decide",
    "margin": "too close to the margin for more seeds to decide",
    "batch sizes": "larger batch sizes would decide",
    "equilibrium": "weights that start at their final norm (model.init_scale) would decide",
    "control": "only a setting in which GD ends apart from SGD can decide",
}


@dataclass(frozen=True)
class Judgement:
    """A claim of the paper about one panel, and what its runs show.

    Attributes:
        panel: name of the panel.
        claim: what the paper claims of such a setting.
        found: what the runs show, in numbers.
        verdict: whether the two agree.
        code: which claim it is.
        reason: why it is not judged, if so: a measured premise that does not hold.
        remedy: what would decide it, if it is open and that is known.
    """

    panel: str
    claim: str
    found: str
    verdict: PaperVerdict
    code: ClaimCode = ""
    reason: Code | None = None
    remedy: Remedy | None = None

    @property
    def said(self) -> str:
        """What the runs show, and what would decide an open claim."""
        return self.found if self.remedy is None else f"{self.found}; {self.remedy}"

    @property
    def counted(self) -> bool:
        """Whether it counts as evidence; that statistics drift apart at equilibrium is algebra, and does not count."""
        return self.code != "drift"


def overall(judgements: Iterable[Judgement]) -> PaperVerdict:
    """The verdict on all claims that count: "differs" if one does, "agrees" if all do.

    >>> overall([Judgement("p", "c", "f", "agrees"), Judgement("p", "d", "f", "cannot tell")])
    'cannot tell'
    """
    verdicts = {judgement.verdict for judgement in judgements if judgement.counted}
    if "differs" in verdicts:
        return "differs"
    return "agrees" if verdicts == {"agrees"} else "cannot tell"


_METRICS = {
    "test_accuracy": ("test accuracy", ""),
    "test_loss": ("test loss", "nats"),
    "train_loss": ("train loss", "nats"),
    "test_bits_per_character": ("test loss", "bits per character"),
}
UNITS = {metric: f"{name} ({units})" if units else name for metric, (name, units) in _METRICS.items()}
"""The name of each metric, with its units."""


def metric_name(metric: str) -> str:
    """The name of a metric without its units.

    >>> metric_name("test_bits_per_character")
    'test loss'
    """
    return _METRICS[metric][0]


def is_optimizer(arm: str) -> bool:
    """Whether an arm of that name is the optimizer itself.

    >>> is_optimizer("SGD"), is_optimizer("AdamW"), is_optimizer("SVAG ell=4")
    (True, True, False)
    """
    return arm in TITLES.values()


def criterion(metric: str) -> str:
    """The criterion of scaling, with its units; lower is better.

    >>> criterion("test_accuracy"), criterion("test_bits_per_character")
    ('test error', 'test loss (bits per character)')
    """
    return "test error" if is_share(metric) else UNITS[metric]


def judged_by(metric: str) -> str:
    """The criterion of scaling without its units.

    >>> judged_by("test_accuracy"), judged_by("test_bits_per_character")
    ('test error', 'test loss')
    """
    return "test error" if is_share(metric) else metric_name(metric)


def unit(metric: str) -> str:
    """The units of a difference.

    >>> unit("test_accuracy"), unit("test_loss"), unit("test_bits_per_character")
    ('percentage points', 'nats', 'bits per character')
    """
    return "percentage points" if is_share(metric) else _METRICS[metric][1]


def percent(share: float) -> str:
    """A share with three digits at most.

    >>> percent(0.2), percent(0.005)
    ('20%', '0.5%')
    """
    return f"{100 * share:.3g}%"


def is_share(metric: str) -> bool:
    """Whether a metric is a fraction, shown in percent."""
    return metric in {"test_accuracy", "train_set_accuracy"}


def value(number: float, metric: str) -> str:
    """A metric in its units.

    >>> value(0.8534, "test_accuracy"), value(0.41234, "test_loss")
    ('85.34%', '0.4123')
    """
    if not math.isfinite(number):
        return "unknown"
    return f"{100 * number:.2f}%" if is_share(metric) else f"{number:.4g}"


def within(number: float, metric: str) -> float:
    """A limit of an interval, clipped to the values that the metric can have.

    >>> within(1.02, "test_accuracy"), within(1.02, "test_loss")
    (1.0, 1.02)
    """
    return min(max(number, 0.0), 1.0) if is_share(metric) and math.isfinite(number) else number


def difference(number: float, metric: str) -> str:
    """A difference of metrics, signed; for fractions in percentage points.

    >>> difference(-0.0123, "test_accuracy"), difference(math.nan, "test_loss")
    ('−1.23 points', 'unknown')
    >>> difference(-0.003949999999999991, "test_accuracy")  # a tie but for its last bits, which differ by machine
    '−0.40 points'
    >>> difference(0.0123, "test_bits_per_character")
    '+0.0123 bits per character'
    """
    if math.isnan(number):
        return "unknown"
    said = _signed(number, metric)
    if metric == "test_bits_per_character":
        return f"{said} {unit(metric)}"
    return f"{said} points" if is_share(metric) else said


def size(number: float, metric: str) -> str:
    """The size of a difference, such as a margin: without a sign.

    >>> size(0.01, "test_accuracy"), size(-0.05, "test_loss")
    ('1.00 points', '0.05')
    """
    return difference(abs(number), metric).removeprefix("+")


def interval(low: float, high: float, metric: str) -> str:
    """An interval of a difference; open where it is unbounded.

    >>> interval(-0.01, math.inf, "test_accuracy")
    '[−1.00, ∞)'
    """
    left = f"[{_signed(low, metric)}" if math.isfinite(low) else "(−∞"
    right = f"{_signed(high, metric)}]" if math.isfinite(high) else "∞)"
    return f"{left}, {right}"


def estimated(number: float, low: float, high: float, metric: str) -> str:
    """A difference with its interval.

    >>> estimated(0.002, -0.01, math.inf, "test_accuracy")
    '+0.20 points [−1.00, ∞)'
    """
    return f"{difference(number, metric)} {interval(low, high, metric)}"


def _signed(number: float, metric: str) -> str:
    # Ties round alike everywhere, and what rounds to 0 has one sign: the last bits of a sum differ between machines.
    number = float(f"{100 * number if is_share(metric) else number:.9g}")
    text = f"{round(number, 2) + 0.0:+.2f}" if is_share(metric) else f"{round(number, 9) + 0.0:+.3g}"
    return text.replace("-", "−")


def plain(number: float) -> str:
    """A number without units.

    >>> plain(1.2345), plain(math.inf)
    ('1.23', '∞')
    """
    return f"{number:.3g}" if math.isfinite(number) else "∞"


def batch(number: float | None) -> str:
    """An estimated batch size.

    >>> batch(1536.4), batch(98.72), batch(math.inf), batch(None)
    ('1,536', '98.7', '∞', 'none')
    """
    if number is None or math.isnan(number):
        return "none"
    if math.isinf(number):
        return "∞"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def batch_interval(low: float, high: float) -> str:
    """An interval of batch sizes; open where it is unbounded.

    >>> batch_interval(103.2, 132.5), batch_interval(64.0, math.inf), batch_interval(0.0, 32.0)
    ('[103, 132]', '[64, ∞)', '(0, 32]')
    """
    left = f"[{batch(low)}" if low > 0 else "(0"
    return f"{left}, {batch(high)}]" if math.isfinite(high) else f"{left}, ∞)"


def batch_estimate(size: Estimate) -> str:
    """An estimated batch size with its interval.

    >>> batch_estimate(Estimate(115.6, 103.2, 132.5))
    '116 [103, 132]'
    """
    return f"{batch(size.value)} {batch_interval(size.low, size.high)}"


def count(number: int, noun: str) -> str:
    """A number of things.

    >>> count(1, "run"), count(3, "run")
    ('1 run', '3 runs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def unbounded(low: float, high: float) -> bool:
    """Whether an interval contains every batch size, and is therefore useless.

    >>> unbounded(0.0, math.inf), unbounded(0.0, 64.0)
    (True, False)
    """
    return low == 0 and math.isinf(high)


def p_values(different: float, equivalent: float, divergence: float | None) -> str:
    """The p values of a comparison; `divergence` is None if no seed diverged.

    >>> p_values(0.01, 1.0, None)
    '0.01 for a gap; 1 for a gap within the margin'
    """
    said = f"{different:.2g} for a gap; {equivalent:.2g} for a gap within the margin"
    return said if divergence is None else f"{said}; {divergence:.2g} for unequal rates of divergence"


_SHOWN = 6


def warnings(missing: Sequence[object], strangers: Sequence[str]) -> tuple[str, ...]:
    """The warnings before an answer: runs that have no result, and records that were not used.

    >>> warnings(["SGD B=8 seed 1 (not run)"], ())
    ('Incomplete: 1 of the runs asked for have no result: SGD B=8 seed 1 (not run).',)
    """
    said = []
    if missing:
        named = "; ".join(str(run) for run in missing[:_SHOWN])
        more = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        said.append(f"Incomplete: {len(missing)} of the runs asked for have no result: {named}{more}.")
    if strangers:
        more = f" (and {len(strangers) - 1} more like this)" if len(strangers) > 1 else ""
        said.append(f"Not used: {strangers[0]}{more}.")
    return tuple(said)
