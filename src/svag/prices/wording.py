"""Price lists in words: a sentence for every code, the list in at most 20 lines of 80 columns, and its details."""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from svag.prices.estimate import Estimate, short
from svag.prices.reasons import DOUBTS, Code, Reason, Value
from svag.theory.adaptive import step_shortfall
from svag.theory.bounds import sde_threshold
from svag.theory.distortion import distortion

if TYPE_CHECKING:
    from svag.prices.linear import LinearRule
    from svag.prices.price import Price, Throughput
    from svag.prices.price_list import PriceList

WIDTH = 80
"""Width of everything that is printed here, whether in a terminal or not."""
LINES = 20
"""Lines of a printed list; the rest is for `details`."""

Values = Mapping[str, Value]


def _number(values: Values, name: str) -> float:
    value = values[name]
    assert isinstance(value, (int, float))
    return float(value)


# --- one sentence for every code


def _signal_unresolved(v: Values) -> str:
    high = v["high"]
    limit = "with no upper limit" if high is None else f"and at most {_number(v, 'high'):.4g} whatever G is"
    return (
        f"G is not resolved: the critical batch size is at least {_number(v, 'low'):.4g}, {limit}; take about "
        f"{v['more']} more readings."
    )


_CHOICES = {
    "asked_for": "the window asked for",
    "all": "all of them",
    "constant_rate": "all at the constant learning rate",
    "settled": "without the first {tenths}0%, where the weight norm or the noise was still settling",
    "still_drifting": "without the first tenth; the weight norm or the noise keeps drifting",
    "late_phase": "the last third of the second-to-last phase of the schedule",
}


def _window(v: Values) -> str:
    count = f"{v['readings']} readings" if v["readings"] != 1 else "one reading"
    where = f" from step {v['start']} to {int(_number(v, 'stop')) - 1}" if "start" in v else ""
    return f"N/G was averaged over {count}{where} ({_CHOICES[str(v['choice'])].format(tenths=v['tenths'])})."


def _mixed_settings(v: Values) -> str:
    names = [name for name, mixed in (("weight decays", v["weight_decay"]), ("learning rates", v["lr"])) if mixed]
    different = f"The measured parameters have different {' and '.join(names)}"
    if v["lr"]:
        return f"{different}, or a gain rule chose the rate of every step: pass parameters= with those that share one."
    return f"{different}: pass parameters= with those that share one."


def _waited(v: Values) -> str:
    """How long weights take to settle, and what to do; while the rate changes they do not settle."""
    if v["rate_varies"]:
        return "; they do not settle while the learning rate changes."
    said = ""
    if v["relaxation"] is not None:
        said = f" (weights settle in 3 to 5 relaxation times 1/(4ηλ) of {_number(v, 'relaxation'):.0f} steps"
        said += ")" if v["passed"] is None else f"; {_number(v, 'passed'):.2g} had passed)"
    return f"{said}; train longer at this learning rate, or move the window later."


def _not_balanced(v: Values) -> str:
    untested = "" if v["invariance_tested"] else " (or the network is not scale invariant)"
    grow = f"the weights grow {_number(v, 'balance'):.2f} times as fast as they decay"
    return f"Not at equilibrium{untested}: {grow}{_waited(v)}"


def _own_pull(v: Values) -> str:
    share = _number(v, "share")
    does = "shrinks" if share > 0 else "grows"
    return f"the loss itself {does} the weights, at {abs(share):.0%} of the rate of weight decay"


def _proved(v: Values) -> str:
    state = "weights at equilibrium" if v["basis"] == "weight_norm" else "weight norm stationary"
    untested = "" if v["invariance_tested"] else ", scale invariance not tested"
    return f"Reliable: noise resolved, {state}{untested}."


def _sde_ruled_out(v: Values) -> str:
    c2 = _number(v, "c2")
    return (
        f"The SDE does not describe this run: N/{v['signal']} ≤ {_number(v, 'high'):.3g} is below "
        f"{sde_threshold(c2):.3g}, so SGD and its SDE differ by more than a factor of {math.sqrt(c2):.3g} in the "
        "weight norm, the gradient or the noise."
    )


def _second_moment_off(v: Values) -> str:
    ratio = _number(v, "ratio")
    if ratio < 1:
        why = "gradients are clipped after they are read, or v remembers smaller ones"
    elif v["coupled_decay"]:
        why = "weight decay is a part of the gradient here, or v remembers larger ones"
    else:
        why = "v remembers larger gradients than those of the window"
    return (
        f"V = Σv̂ is {ratio:.2f} times G + N, and the square-root rule assumes that the two agree. Likely cause: {why}. "
        "The distortion is then less certain than its interval says."
    )


def _eps_felt(v: Values) -> str:
    return (
        f"eps is {_number(v, 'eps'):.2g} times √(V/d), the root mean square of √v̂ over the d measured parameters. "
        f"Where eps is felt, distortion is smaller: {_number(v, 'with_eps'):.3g} instead of "
        f"{_number(v, 'distortion'):.3g} at batch size {v['batch_size']} for a parameter of that size, and 1 where eps "
        "is much larger than √v̂."
    )


SENTENCES: dict[Code, Callable[[Values], str]] = {
    Code.PARTS_FAR: lambda v: (
        f"Not the noise of this run: BatchNorm saw parts of the batch, whose N/G is {_number(v, 'ratio'):.3g} times "
        "that of whole batches; use fewer parts, or frozen readings with svag.measure_noise."
    ),
    Code.NEGATIVE_SIGNAL: lambda v: (
        "The average G is significantly negative: the gradients of a reading were not independent. For a shuffled "
        "epoch give population=, and never combine gradients of successive steps."
    ),
    Code.RUNS_DIFFER: lambda v: (
        "The runs differ by more than their readings scatter: this is about these runs over this window only; run "
        "more seeds to learn what others would give."
    ),
    Code.TOO_FEW_FROZEN: lambda v: (
        f"Too few readings, {v['readings']}: a frozen reading shows N/G at one moment, and the answer needs its "
        f"average over the run; take about {v['needed']} frozen readings along the run."
    ),
    Code.TOO_FEW_READINGS: lambda v: (
        f"Too few readings: {v['readings']}, and a reliable list needs about {v['needed']}."
    ),
    Code.SIGNAL_UNRESOLVED: _signal_unresolved,
    Code.UNTESTED_OPTIMIZER: lambda v: (
        f"{v['optimizer']} was never tested here: price and learning rate are those of plain gradient steps."
    ),
    Code.WINDOW: _window,
    Code.WINDOW_ONLY: lambda v: (
        "The sampling interval is that of the average over this window, from differences of successive readings: it "
        "does not say what a longer or another run would give, and rules nothing out."
    ),
    Code.FEW_BLOCKS: lambda v: f"Only {v['blocks']} independent blocks: more readings would narrow the interval.",
    Code.PARTS_UNCHECKED: lambda v: (
        "Approximate: BatchNorm saw parts of the batch, and the error of N/G is unknown: measure it, at any time, with "
        "probe.compare(loss_fn, batches)."
    ),
    Code.PARTS_NEAR: lambda v: (
        f"Approximate: BatchNorm saw parts of the batch, whose N/G is {_number(v, 'ratio'):.3g} times that of whole "
        "batches; the critical batch size is off by about as much."
    ),
    Code.STEPS_TOO_SHORT: lambda v: (
        f"According to the gradients |x|² should have grown by {_number(v, 'expected'):.0%} over the window, but it "
        f"changed by {_number(v, 'seen'):+.0%}: the steps were shorter, as with gradients clipped after they are read."
    ),
    Code.MISSES_START: lambda v: (
        f"Nothing was read before step {v['step']}, where noise is lowest: the first phase of the plan is assumed to "
        "hold there too; measure from the first step."
    ),
    Code.NO_STEPS: lambda v: (
        "The readings have no steps, so one learning rate is planned for the whole run: record the step of each."
    ),
    Code.ONE_PHASE: lambda v: (
        f"{v['readings']} readings are too few for phases, so one learning rate is planned for the whole run: record "
        "at least 20 for each phase."
    ),
    Code.ONLY_SGD: lambda v: f"The theorems cover SGD only, and this run used {v['optimizer']}.",
    Code.NOT_COVERED: lambda v: (
        f"The theorems do not cover {v['optimizer']}: use plain momentum or none to get more than an estimate."
    ),
    Code.SVAG_READINGS: lambda v: (
        f"These are readings of SVAG with ell={v['ell']}, and the theorems are about SGD: measure at ell=1."
    ),
    Code.SETTINGS_UNKNOWN: lambda v: (
        "Learning rate or weight decay is unknown, so equilibrium could not be tested: record them."
    ),
    Code.MIXED_SETTINGS: _mixed_settings,
    Code.ZERO_RATE: lambda v: (
        "The learning rate is 0, so nothing moves and there is no equilibrium: measure during training."
    ),
    Code.NO_WEIGHT_DECAY: lambda v: "No weight decay: the weights have no equilibrium, so no theorem applies.",
    Code.ONLY_GROWS: lambda v: f"Not at equilibrium: {_own_pull(v)}, so nothing shrinks them and |x|² only grows.",
    Code.NOT_BALANCED: _not_balanced,
    Code.DRIFTS: lambda v: (
        f"Not at equilibrium: {v['what']} changes by {_number(v, 'change'):+.0%} over the window{_waited(v)}"
    ),
    Code.INVARIANCE_UNTESTED: lambda v: "Scale invariance was not tested: record ⟨x, ∇L⟩ (NoiseProbe does).",
    Code.X_NOT_MEASURED: lambda v: "X was not measured.",
    Code.X_UNRESOLVED: lambda v: (
        "X is not resolved. With momentum it takes the place of G; the estimate X̂ = G(1−β)/(1+β) is used instead."
    ),
    Code.NOT_INVARIANT: lambda v: (
        f"Not scale invariant: {_own_pull(v)}. With momentum the theorem needs a scale-invariant network."
    ),
    Code.MOMENTUM_VARIES: lambda v: "The momentum changes, and the theorem needs it constant.",
    Code.RATE_VARIES: lambda v: "The learning rate changes, and with momentum the theorem needs it constant.",
    Code.VELOCITY_MISSING: lambda v: (
        "The velocity was not recorded, and the weight norm replaces it, so equilibrium could not be tested."
    ),
    Code.PROVED: _proved,
    Code.SDE_RULED_OUT: _sde_ruled_out,
    Code.PULL: lambda v: (
        f"Not scale invariant: {_own_pull(v)}. So the theorem is about the pull on the weights, not their norm."
    ),
    Code.NEARLY_INVARIANT: lambda v: f"Nearly scale invariant: {_own_pull(v)}.",
    Code.X_MEASURED: lambda v: (
        f"Momentum {_number(v, 'momentum'):g}: N/X takes the place of N/G, with X = (1−β²)|v|² − N from the "
        f"{v['source']}."
    ),
    Code.X_ESTIMATED: lambda v: (
        f"Momentum {_number(v, 'momentum'):g}: N/X̂ takes the place of N/G, with X̂ = G(1−β)/(1+β); the truth lies "
        "between this distortion and that of the same gradients without momentum. On the ladder where this was "
        "measured, training statistics drifted apart at a quarter of such a B*."
    ),
    Code.X_NEGATIVE: lambda v: (
        "The average X = (1−β²)|v|² − N is significantly negative: train longer at this learning rate, and do not clip "
        "gradients between close_step() and the optimizer's step."
    ),
    Code.SECOND_MOMENT_UNKNOWN: lambda v: (
        "The second moment was not recorded, so V ≈ G + N, which the square-root rule assumes, was not tested."
    ),
    Code.SECOND_MOMENT_SETTLED: lambda v: (
        f"V = Σv̂ is {_number(v, 'ratio'):.2f} times G + N, as the square-root rule assumes: v has settled at the "
        "squared gradient."
    ),
    Code.SECOND_MOMENT_OFF: _second_moment_off,
    Code.RULE_ENDS: lambda v: (
        f"The square-root rule ends below batch size {_number(v, 'batch_size'):.0f}, where κ(1 − β) reaches 1 for "
        f"β = {_number(v, 'beta'):g}: its average would be over less than one batch."
    ),
    Code.EPS_FELT: _eps_felt,
}
"""The sentence of every code: the problem, then the remedy."""


def sentence(reason: Reason) -> str:
    """Say one reason."""
    return SENTENCES[reason.code](reason.values)


# --- the list


def answer(found: "PriceList", throughput: "Throughput | None" = None, rows: "Sequence[Price] | None" = None) -> str:
    """The price list, or some of its rows, as text of at most 20 lines of 80 columns.

    The first line is the recommendation where a throughput is given, otherwise the largest row within C².
    """
    if not found.usable:
        told = [unusable(found), str(found.reasons[0]), _numbers(found)]
        return "\n".join(line for text in told for line in wrapped(text))
    rows = found.prices(throughput=throughput) if rows is None else rows
    lines = [*wrapped(first_line(found, throughput, rows)), "", *table(found, rows), ""]
    texts = (*_unsteady(throughput), *_meaning(found, rows), f"{_done(found)}More: print(found.details()).")
    last = [line for text in texts for line in wrapped(text)]
    for reason in _told(found):
        told = wrapped(str(reason), bullet=True)
        if len(lines) + len(told) + len(last) <= LINES:
            lines += told
    return "\n".join([*lines, *last])


def brief(found: "PriceList", lines: int, throughput: "Throughput | None" = None, notes: Sequence[str] = ()) -> str:
    """The list for a terminal: no blank lines, and of the sentences around it those that fit, doubts first.

    Args:
        found: the price list.
        lines: how many there may be, of 80 columns.
        throughput: as in `answer`.
        notes: what else is to be said of the readings.
    """
    if not found.usable:
        return answer(found)
    rows = found.prices(throughput=throughput)
    said = [*wrapped(first_line(found, throughput, rows)), *table(found, rows)]
    bullets = [wrapped(str(reason), bullet=True) for reason in _told(found)]
    known = ", with the 80% range on our test networks" if _ranged(rows) else ""
    meant = (f'"examples": to the same training loss{known}.', _schedule(found), _larger(found))
    for told in (*bullets, *map(wrapped, (*notes, *_unsteady(throughput), *meant))):
        if len(said) + len(told) <= lines:
            said += told
    return "\n".join(said)


def first_line(
    found: "PriceList", throughput: "Throughput | None" = None, rows: "Sequence[Price] | None" = None
) -> str:
    """The answer in a sentence: the recommendation where speeds are known, otherwise the largest row within C²."""
    if not found.usable:
        return unusable(found)
    return recommended(found, throughput) if throughput else headline(found, found.prices() if rows is None else rows)


def _told(found: "PriceList") -> Iterator[Reason]:
    """What is said beside the list, the most important first."""
    yield from (reason for reason in found.reasons if reason.code in _PRINTED)
    yield from (reason for reason in found.linear.reasons if reason.code == Code.SDE_RULED_OUT)


# What is printed below the list when there is room; everything else is among the details.
_PRINTED = DOUBTS | {
    Code.MISSES_START,
    Code.NO_STEPS,
    Code.ONE_PHASE,
    Code.UNTESTED_OPTIMIZER,
    Code.WINDOW_ONLY,
    Code.PARTS_UNCHECKED,
    Code.PARTS_NEAR,
    Code.STEPS_TOO_SHORT,
    Code.SDE_RULED_OUT,
}


def unusable(found: "PriceList") -> str:
    """A sentence that too little is known for a list."""
    return f"No price list yet from batch size {found.batch_size}."


def headline(found: "PriceList", rows: Sequence["Price"]) -> str:
    """The largest row within C²."""
    within = [row for row in rows if row.examples.value <= found.c2]
    if not within:
        return f"None of these batches costs at most {found.c2:g}× the examples of batch {found.batch_size}."
    row = max(within, key=lambda price: price.batch_size)
    steps = f"{1 / row.steps:.2g} times fewer steps" if row.steps <= 1 else f"{row.steps:.2g} times the steps"
    return f"Batch {row.batch_size}: {row.examples.value:.2g}× the examples, {steps} ({_rate(found, row)})."


def recommended(found: "PriceList", throughput: "Throughput") -> str:
    """The fastest row within C²."""
    best = found.best(throughput, found.c2)
    if best.batch_size == found.batch_size:
        return f"Stay at batch {found.batch_size}: no other one is faster here within {found.c2:g}× the examples."
    assert best.time is not None
    return (
        f"Batch {best.batch_size} is the fastest here: {best.examples.value:.2g}× the examples in "
        f"{best.time.value:.2f}× the time ({_rate(found, best)})."
    )


def _rate(found: "PriceList", row: "Price") -> str:
    rate = found.setting.rate_at(row.gain)
    return f"lr {rate} instead of {found.setting.lr:g}" if found.setting.lr else f"lr {rate}"


def columns(found: "PriceList", rows: Sequence["Price"]) -> dict[str, list[str]]:
    """The formatted list, column by column; the linear (square-root) rule comes last."""
    cells = {
        "batch size": [str(row.batch_size) for row in rows],
        "learning rate": [row.settings for row in rows],
        "examples": [examples_said(row.examples) for row in rows],
        "steps": [_steps(row) for row in rows],
    }
    if any(row.time is not None for row in rows):
        cells["time"] = ["–" if row.time is None else f"{row.time.value:.2f}×" for row in rows]
    if found.linear.rule is not None:
        cells[_RULES[found.linear.rule]] = [str(row.linear) for row in rows]
    return cells


def table(found: "PriceList", rows: Sequence["Price"]) -> list[str]:
    """The rows with a header, in columns; the linear rule moves to the details if it does not fit."""
    cells = columns(found, rows)
    lines = _lines(cells)
    if found.linear.rule is not None and max(map(len, lines)) > WIDTH:
        cells.popitem()
        return _lines(cells)
    return lines


def _lines(columns: Mapping[str, Sequence[str]]) -> list[str]:
    """Columns side by side, the first to the right.

    >>> _lines({"batch": ["8", "16"], "lr": ["0.1", "0.2"]})
    ['batch  lr', '    8  0.1', '   16  0.2']
    """
    widths = {name: max(map(len, (name, *cells))) for name, cells in columns.items()}
    first = next(iter(columns))
    lines = []
    for row in zip(*((name, *cells) for name, cells in columns.items()), strict=True):
        cells = zip(columns, row, strict=True)
        padded = [cell.rjust(widths[name]) if name == first else cell.ljust(widths[name]) for name, cell in cells]
        lines.append("  ".join(padded).rstrip())
    return lines


def examples_said(factor: Estimate) -> str:
    """A factor in examples with its range.

    >>> examples_said(Estimate(1.494, 1.2, 1.84)), examples_said(Estimate(1.5, 0.0, math.inf))
    ('1.49× (1.2–1.8)', '1.50×')
    """
    return f"{_two(factor.value)}× {_range(factor)}".rstrip()


def _range(found: Estimate) -> str:
    """The range in brackets; an unknown end is left open, and the range is empty if both are unknown."""
    low, high = found.low > 0, math.isfinite(found.high)
    if low and high:
        return f"({found.low:.1f}–{found.high:.1f})"
    if low:
        return f"(from {found.low:.1f})"
    return f"(up to {found.high:.1f})" if high else ""


def _steps(row: "Price") -> str:
    return f"÷{1 / row.steps:.2g}" if row.steps <= 1 else f"×{row.steps:.2g}"


def _two(value: float) -> str:
    return f"{value:.2f}" if value < 10 else short(value)


def _meaning(found: "PriceList", rows: Sequence["Price"]) -> Iterator[str]:
    """The legend: what the columns mean, what else may work, and what to multiply."""
    yield f'"examples": factor in training examples needed for the same final training loss{_checked(rows)}.'
    yield _larger(found)
    yield _schedule(found)


def _larger(found: "PriceList") -> str:
    limit = "" if found.linear.rule is None else f", up to the {_RULES[found.linear.rule]}'s,"
    return f"A larger rate{limit} may need fewer examples, or fail."


def _schedule(found: "PriceList") -> str:
    rest = ""
    if found.setting.rule == "square_root":
        decay = ", weight decay × the factor of the rate" if found.setting.kind.decoupled else ""
        rest = f"; eps ÷ the factor of the rate{decay}; same betas"
    elif found.setting.momentum:
        rest = "; keep momentum"
    return f'Divide step counts of the schedule by the factor under "steps"{rest}.'


def _done(found: "PriceList") -> str:
    return "svag.GainRule.planned does all this. " if found.setting.kind.rule is not None else ""


_RULES = {"linear": "linear rule", "square_root": "square-root rule"}


def _checked(rows: Sequence["Price"]) -> str:
    """How good the price was where it was checked; nothing for an optimizer that was never checked."""
    known = _ranged(rows)
    if not known:
        return ""
    last = "" if all(math.isfinite(examples.high) for examples in known) else "; no upper limit is known"
    return f"; in brackets, the 80% range observed on our test networks{last}"


def _ranged(rows: Sequence["Price"]) -> list[Estimate]:
    return [row.examples for row in rows if row.examples.has_range]


# Speeds whose rounds differ by more than this share are called unsteady.
_STEADY = 0.1


def _unsteady(throughput: "Throughput | None") -> Iterator[str]:
    """A warning that the speed varied while it was measured."""
    spread = {
        size: speed.high / speed.low - 1
        for size, speed in (throughput or {}).items()
        if isinstance(speed, Estimate) and speed.high > (1 + _STEADY) * speed.low
    }
    if spread:
        worst = max(spread, key=lambda size: spread[size])
        yield f"The speed varied by up to {spread[worst]:.0%} (batch {worst}): stop other work, measure again."


def _numbers(found: "PriceList") -> str:
    return (
        f"N/G = {found.noise_to_signal} (gradient noise over signal at batch size {found.batch_size}), from "
        f"{found.readings} readings; gradient noise scale B_simple = {short(found.noise_scale.value)}."
    )


def wrapped(text: str, bullet: bool = False) -> list[str]:
    """Break a sentence into lines of 80 columns, as an item of a list where `bullet` is set."""
    first = "- " if bullet else ""
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    ) or [""]


# --- the details


def details(found: "PriceList", throughput: "Throughput | None" = None) -> str:
    """Everything that is known, in lines of 80 columns; with a throughput, the list has times."""
    lines = wrapped(first_line(found, throughput))
    if found.usable:
        rows = found.prices(throughput=throughput)
        lines += ["", *table(found, rows), ""]
        lines += [line for text in (*_unsteady(throughput), *_meaning(found, rows)) for line in wrapped(text)]
    lines += ["", *wrapped(_numbers(found))]
    if found.usable:
        lines += [
            *wrapped(
                f"D of this N/G reaches {found.c2:g} at batch size {found.critical_batch} ({found.confidence:.0%} "
                "sampling interval). D by batch size: "
                + ", ".join(f"{row.batch_size}: {row.distortion}" for row in found.prices())
                + "."
            )
        ]
    lines += [
        "",
        *(line for text in str(found.history).split("\n") for line in (wrapped(text) if len(text) > WIDTH else [text])),
    ]
    lines += ["", *linear_text(found.linear).split("\n")]
    # what concerns both answers is said once, above
    rest = [reason for reason in found.reasons if reason not in found.linear.reasons]
    lines += [""] * bool(rest) + [line for reason in rest for line in wrapped(str(reason), bullet=True)]
    return "\n".join(lines)


_DRIFT = {
    "weight_norm": "the weight norm, the gradient and its noise",
    "pull": "the pull on the weights, the gradient and its noise",
    "second_moment": "the second moment, the gradient and its noise",
}


def linear_text(rule: "LinearRule") -> str:
    """The linear (square-root) rule in words: its limit, what it means, and what it rests on."""
    lines = wrapped(linear_headline(rule))
    if rule.measured is not None:
        low, sizes = rule.measured.low, [rule.batch_size * kappa for kappa in (2, 4, 8)]
        most = [f"{distortion(low, size / rule.batch_size, rule.lr_wd):.3g} at {size}" for size in sizes]
        lines += wrapped(f"From X, which is not resolved, the distortion is at most {', '.join(most)}.")
    if rule.basis == "second_moment" and rule.resolved:
        cost = rule.distortion(4 * rule.batch_size).value
        lines += wrapped(
            f"At batch size {4 * rule.batch_size} the second moment is estimated to be {cost:.3g} times what the rule "
            f"assumes, so that steps are {step_shortfall(cost):.0%} too short."
        )
    return "\n".join([*lines, *(line for reason in rule.reasons for line in wrapped(str(reason), bullet=True))])


def linear_headline(rule: "LinearRule") -> str:
    """The answer about the linear (square-root) rule in a sentence."""
    if rule.rule is None:
        return f"No scaling rule is known for {rule.setting.optimizer}, so nothing is said of one."
    start = f"The {_RULES[rule.rule]} from batch size {rule.batch_size}"
    if not (rule.resolved or rule.window_only or rule.one_sided):
        return f"{start}: its limit is not known yet."
    if rule.one_sided:
        return f"{start}: its limit B* is at least {short(rule.limit.low)} (C² = {rule.c2:g})."
    what = _DRIFT.get(rule.basis, "statistics of training")
    limit = f"B* = {rule.limit}"
    if rule.proved:
        return (
            f"{start}: beyond {limit}, {what} must drift apart by more than a factor of {rule.c2:g}; ruled out there."
        )
    return (
        f"{start}: beyond {limit}, {what} are estimated to drift apart by more than a factor of {rule.c2:g}. No "
        "theorem applies, so nothing is ruled out."
    )
