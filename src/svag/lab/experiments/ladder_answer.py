"""How the finding of a ladder is said: what the price list said, what the ladder measured, and then test error.

The theorem is about statistics of training. Test error stands after it as an empirical criterion under its own name.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from svag.lab.experiments import wording
from svag.lab.experiments.base import Metric
from svag.lab.experiments.data_price import DataPrice
from svag.lab.experiments.drift import Crossing
from svag.lab.experiments.evidence import Limit
from svag.lab.experiments.ladder_drift import covered
from svag.lab.experiments.ladder_evidence import PREDICTS_FROM, RungPrediction, ruled_out
from svag.lab.experiments.wording import Answer, Numbers, Tone, criterion, judged_by, percent, unbounded
from svag.prices.estimate import Estimate
from svag.theory.adaptive import step_shortfall
from svag.verdicts.scaling import ScalingVerdict

if TYPE_CHECKING:
    from svag.lab.experiments.ladder_finding import LadderPanelFinding

_UNDECIDED = "not decided"
COMPARED = {
    "R": "weight norm |x|², gradient |∇L|² and noise κN",
    "T": "pull on the weights T, gradient |∇L|² and noise κN",
    "V": "second moment κV, gradient |∇L|² and noise κN",
}


def answer(panel: "LadderPanelFinding") -> Answer:
    """The answer of a panel; what was predicted, what was measured and test error stand first."""
    numbers = [*_examples(panel), *_predicted(panel), *_theorem(panel), *_second_moment(panel), *_invariance(panel)]
    numbers += judged_by_error(panel)
    tone, badge = judged(panel)
    return Answer(
        panel.name,
        headline(panel),
        tone,
        (*numbers, *_more(panel)),
        panel.status,
        tuple(rung.error for rung in panel.rungs),
        f"{criterion(panel.metric)} by batch size",
        first=len(numbers),
        badge=badge,
    )


def headline(panel: "LadderPanelFinding") -> str:
    """What the smallest baseline predicted and what the ladder measured; test error where nothing was predicted."""
    if not panel.checked:
        return error_headline(panel)
    one, crossing = panel.checked[0]
    start = f"Scaling {'by the square-root rule ' if panel.adaptive else ''}from batch size {one.batch_size}, "
    factor, size = f"drift apart by a factor of {panel.c2:g}", f"B* = {size_said(one.linear.limit)}"
    if math.isinf(one.linear.limit.value):
        start += f"training statistics were never expected to {factor}"
    elif one.theorem:
        start += f"training statistics must {factor} by {size}"
    else:
        start += f"training statistics were estimated to {factor} at {size}"
    last = panel.rungs[-1].batch_size
    if math.isinf(crossing.observed.value):
        seen = f"up to {last:,}, the largest batch here, they did not"
    else:
        seen = f"they did at {size_said(crossing.observed)}"
        seen += f", {_ratio(crossing.over_predicted)} of B*" if math.isfinite(crossing.over_predicted.value) else ""
    rests = "These are estimates" if panel.adaptive else "No theorem applies here"
    return f"{start}; {seen}.{'' if one.theorem else f' {rests}: no batch size is ruled out.'}"


def judged(panel: "LadderPanelFinding") -> tuple[Tone, str]:
    """The mark of a panel and what it is about: only what a theorem says can be kept or broken."""
    if not panel.checked:
        return ("note", "") if _error_answer(panel) not in ("", _UNDECIDED) else ("open", "")
    one, crossing = panel.checked[0]
    if panel.shortfalls:
        return "no", "contradicts the theorem"
    if not one.theorem:
        return "note", "estimate"
    if math.isinf(crossing.observed.value):
        return "open", "not reached on this ladder"
    agrees = crossing.over_predicted.low <= 1
    return ("yes", "agrees with the theorem") if agrees else ("no", "contradicts the theorem")


def size_said(found: Estimate) -> str:
    """A batch size with its interval."""
    return f"{wording.batch(found.value)} {wording.batch_interval(found.low, found.high)}"


def _ratio(found: Estimate) -> str:
    high = f"{found.high:.2f}]" if math.isfinite(found.high) else "∞)"
    return f"{found.value:.2f} [{found.low:.2f}, {high}"


def _crossed(crossing: Crossing, last: int) -> str:
    if math.isinf(crossing.observed.value):
        low = f" (at least {wording.batch(crossing.observed.low)})" if math.isfinite(crossing.observed.low) else ""
        return f"not reached up to {last:,}{low}"
    share = f", {_ratio(crossing.over_predicted)} of it" if math.isfinite(crossing.over_predicted.value) else ""
    return f"measured {size_said(crossing.observed)}{share}"


def _predicted(panel: "LadderPanelFinding") -> Iterator[tuple[str, str]]:
    """Predicted and measured batch size of a drift by C², one row a baseline."""
    last = panel.rungs[-1].batch_size
    for one, crossing in panel.checked:
        kind = "B*" if one.theorem else "estimated B*"
        mark = " (these runs only)" if one.linear.window_only else ""
        said = f"{kind} = {size_said(one.linear.limit)}{mark}"
        yield f"from {one.batch_size}", f"{said}; {_crossed(crossing, last)}"
    if panel.predictions and not panel.checked:
        yield "predicted", "no baseline predicts: see Next"


def _theorem(panel: "LadderPanelFinding") -> Iterator[tuple[str, str]]:
    """Whether the inequality spread ≥ D was kept, or that no theorem says so."""
    if panel.drift is None:
        return
    compared = COMPARED[panel.drift.compared]
    if panel.adaptive:
        said = "an estimate: neither the price list nor the measured drift of"
        yield "reliability", f"{said} {compared} rules a batch size out"
        return
    pairs = [pair for pair in panel.drift.pairs if covered(pair, panel.predictions)]
    if not pairs:
        yield "theorem", f"none applies: the drift of {compared} is measured, and no batch size is ruled out"
    elif panel.shortfalls:
        more = f" (and {len(panel.shortfalls) - 1} more pairs)" if len(panel.shortfalls) > 1 else ""
        yield "theorem", f"does not hold: {panel.shortfalls[0]}{more}"
    else:
        which = "the only pair" if len(pairs) == 1 else f"all {len(pairs)} pairs"
        yield "theorem", f"holds: {compared} drifted apart by at least D, within intervals, on {which} of batch sizes"


def _second_moment(panel: "LadderPanelFinding") -> Iterator[tuple[str, str]]:
    """By how much the second moment grew beyond what the square-root rule presumes, with D, one row a baseline.

    The first row says what that means for the steps.
    """
    pairs = [] if panel.drift is None else panel.drift.pairs
    known = [(pair, seen) for pair in pairs if (seen := pair.second_moment_over_noise) is not None]
    if known:
        first = known[0][0].baseline
        steps = [
            f"{_shortfall(seen)} at {pair.batch_size} (predicted {_shortfall(pair.distortion)})"
            for pair, seen in known
            if pair.baseline == first
        ]
        yield f"steps from {first}", f"shorter than the square-root rule assumes by {', '.join(steps)}"
    for base in dict.fromkeys(pair.baseline for pair, _ in known):
        said = [
            f"{_ratio(seen)} at {pair.batch_size} (D = {_ratio(pair.distortion)})"
            for pair, seen in known
            if pair.baseline == base
        ]
        yield f"κV′/V over κN′/N from {base}", ", ".join(said)


def _shortfall(found: Estimate) -> str:
    return f"{step_shortfall(max(found.value, 1.0)):.0%}"  # measured, it may be below 1 by chance


def _invariance(panel: "LadderPanelFinding") -> Iterator[tuple[str, str]]:
    """Where strict invariance in the sense of def:lsi is lost: one of the three has changed by more than C."""
    if not panel.checked or panel.drift is None:
        return
    said = [
        f"at {size_said(one.strict)} from {one.baseline}, {one.strict_over_predicted.value:.2f} of B*"
        if math.isfinite(one.strict.value)
        else f"not up to {panel.rungs[-1].batch_size:,} from {one.baseline}"
        for _, one in panel.checked
    ]
    bound = f"one of the three changes by more than C = {math.sqrt(panel.c2):.3g}"
    if panel.drift.compared != "V":  # the definition is about linear scaling and the weight norm
        bound = f"the paper's stricter criterion: {bound}"
    yield "invariance lost", f"{'; '.join(said)} ({bound})"


def _examples(panel: "LadderPanelFinding") -> Iterator[tuple[str, str]]:
    """The measured price in examples beside D, from the smallest baseline that predicts."""
    if not panel.checked:
        return
    baseline, said = panel.checked[0][0], []
    for price in panel.data:
        if price.baseline == baseline.batch_size:
            cost = _distortion(baseline, price.batch_size)
            said.append(f"{factors_said(price)} at {price.batch_size} (D = {cost})")
            if not price.reached:  # the same bound would be all there is to say of the others
                break
    if said:
        yield "data needed", f"{', '.join(said)}, for the training loss of batch size {baseline.batch_size}"


def factors_said(price: DataPrice) -> str:
    """The factors that were measured, or the least that they can be."""
    if not price.reached:
        return f"more than {price.at_least:.2g}×"
    low, high = f"{min(price.reached):.2g}", f"{max(price.reached):.2g}"
    more = " or more" if price.at_least > max(price.reached) else ""
    return f"{low}×{more}" if low == high else f"{low} to {high}×{more}"


def _final(number: float, panel: "LadderPanelFinding") -> str:
    """A test error, or the test loss of a text with its units."""
    said = wording.value(number, panel.metric)
    return said if wording.is_share(panel.metric) else f"{said} {wording.unit(panel.metric)}"


def _distortion(one: RungPrediction, batch_size: float) -> str:
    return f"{one.linear.distortion(batch_size).value:.2g}"


def _error_answer(panel: "LadderPanelFinding") -> str:
    found = panel.scaling
    return "" if found is None or unbounded(found.low, found.high) else str(found.answer)


def error_headline(panel: "LadderPanelFinding") -> str:
    """Where test error fails, in one sentence."""
    if panel.scaling is None:
        return "Fewer than two batch sizes have results."
    said = _error_said(panel, panel.scaling)
    if said.startswith(_UNDECIDED):
        return f"{_UNDECIDED.capitalize()} by {criterion(panel.metric)}{said.removeprefix(_UNDECIDED)}."
    return f"{criterion(panel.metric).capitalize()} {said}."


def _error_said(panel: "LadderPanelFinding", found: ScalingVerdict) -> str:
    """Where test error fails, in the words of its rule."""
    limits, at = wording.batch_interval(found.low, found.high), wording.batch(found.observed)
    if unbounded(found.low, found.high):
        where = f"at batch size {at}" if found.observed is not None else "nowhere on this ladder"
        return f"{_UNDECIDED}: the means would put the failure {where}, but there are too few seeds for an interval"
    failing = [rung for rung in panel.rungs if found.observed is not None and rung.batch_size >= found.observed]
    cause = f", as seeds diverged at {failing[0].batch_size:,}" if failing and failing[0].diverged else ""
    first, last = panel.rungs[0].batch_size, panel.rungs[-1].batch_size
    above = f"more than {percent(found.tolerance)} above the lowest"
    known = {
        "fails": f"is {above} from batch size {at} {limits} on{cause}",
        "never fails": f"is nowhere {above}, up to batch size {last:,}; 95% interval of where it would be {limits}",
        "fails from the start": f"is {above} already at the smallest batch size, {first:,}{cause}",
        "improves": f"improves up to batch size {wording.batch(found.best_batch)}",
        "not decided": f"{_UNDECIDED}: no batch size has learned enough for an error to be {above}",
    }
    then = f", then is {above} from {at} {limits} on{cause}" if found.observed is not None else ""
    then = then if found.answer == "improves" else ""
    return known[found.answer] + then


def judged_by_error(panel: "LadderPanelFinding") -> Iterator[tuple[str, str]]:
    """Where test error fails, its lowest value, and the seeds that diverged."""
    found = panel.scaling
    if found is not None:
        said = _error_said(panel, found)
        if panel.checked and found.observed is not None and found.answer == "fails":
            one = panel.checked[0][0]
            said += f", where D from {one.batch_size} is {_distortion(one, found.observed)}"
        what = judged_by(panel.metric)
        yield what, f"{said} (neither D nor B* is about {what})"
        if found.best_batch is not None:
            best = min(rung.error for rung in panel.rungs if rung.batch_size == found.best_batch)
            yield f"lowest {what}", f"{_final(best, panel)} at batch size {found.best_batch:,}"
    if lost := [rung for rung in panel.rungs if rung.diverged]:
        first, *others = (f"{rung.diverged} of {rung.seeds}{{}} at {rung.batch_size:,}" for rung in lost)
        yield "diverged", ", ".join([first.format(" seeds"), *(one.format("") for one in others)])


def _more(panel: "LadderPanelFinding") -> Numbers:
    """Everything else that was found, one row each."""
    return (*_drifted(panel), *_ruled_out(panel), *_rungs(panel), *_silent(panel))


def _drifted(panel: "LadderPanelFinding") -> Iterator[tuple[str, str]]:
    """What the drift was made of, from the smallest baseline, and what explains it."""
    if panel.drift is None or not panel.drift.crossings:
        return
    base = panel.checked[0][0].batch_size if panel.checked else panel.drift.crossings[0].baseline
    pairs = [pair for pair in panel.drift.pairs if pair.baseline == base]
    if panel.window is not None:
        start, stop = panel.window
        said = f"{COMPARED[panel.drift.compared]}, averaged over {start:.0%} to {stop:.0%} of training"
        yield "what drifted", f"{said}; the drift is the largest of their ratios over the smallest"
    said = ", ".join(
        f"{pair.spread.value:.3g} at {pair.batch_size} (D = {pair.distortion.value:.3g})" for pair in pairs
    )
    yield f"drift from {base}", said
    scales = ", ".join(f"{pair.noise_scale.value:.2f} at {pair.batch_size}" for pair in pairs)
    yield f"B_simple relative to {base}", f"{scales}; where it is 1, the drift is D"
    moving = [f"{pair.moving.value:.2g} at {pair.batch_size}" for pair in pairs if pair.moving is not None]
    if moving:
        yield (
            f"X relative to {base}",
            f"{', '.join(moving)}; with momentum X takes the place of the squared gradient in D",
        )
    if panel.slope is not None:
        yield "slope of G/N", f"{_ratio(panel.slope)} against batch size, both logarithmic; 1 if B_simple is constant"


def _ruled_out(panel: "LadderPanelFinding") -> Iterator[tuple[str, str]]:
    if panel.certificates:
        fired = ruled_out(panel.certificates).items()
        yield "ruled out", "; ".join(f"at B = {size} {what}" for size, what in fired)


def _rungs(panel: "LadderPanelFinding") -> Iterator[tuple[str, str]]:
    balances = [(rung.batch_size, rung.balance) for rung in panel.rungs if rung.balance is not None]
    if balances:
        said = ", ".join(f"{balance:.3g} at B = {size}" for size, balance in balances)
        yield "equilibrium", f"growth over decay of |x|², 1 at equilibrium: {said}"
    premises = [(one.batch_size, one.linear.second_moment_ratio) for one in panel.predictions]
    known = [f"{ratio:.2f} at B = {size}" for size, ratio in premises if ratio is not None]
    if known:
        yield "V/(G + N)", f"{', '.join(known)}; 1 where v has settled at the squared gradient, as D assumes"
    ratios = [(one.batch_size, one.linear.noise_to_signal.value) for one in panel.predictions]
    if ratios:
        signal = panel.predictions[0].linear.signal
        yield f"N/{signal}", ", ".join(f"{wording.plain(ratio)} at B = {size}" for size, ratio in ratios)
    limits = [(rung.batch_size, rung.sde) for rung in panel.rungs if rung.sde is not None]
    if limits:
        said = ", ".join(f"{_between(one, panel.metric)} at B = {size}" for size, one in limits)
        yield f"SDE limit of the {judged_by(panel.metric).removeprefix('test ')}", said
        gaps = [(rung.batch_size, rung.sde_gap) for rung in panel.rungs if rung.sde_gap is not None]
        above = ", ".join(
            f"{wording.difference(gap.value, panel.metric)} "
            f"{wording.interval(gap.low, gap.high, panel.metric)} at B = {size}"
            for size, gap in gaps
        )
        yield "SGD above its SDE limit", above


def _between(limit: Limit, metric: Metric) -> str:
    value, low, high = (wording.value(number, metric) for number in (limit.value, limit.low, limit.high))
    return f"{value} ({low} to {high})"


def _silent(panel: "LadderPanelFinding") -> Iterator[tuple[str, str]]:
    """Rungs that do not predict, and why."""
    small = [one for one in panel.predictions if not one.usable and one.linear.noise_to_signal.value < PREDICTS_FROM]
    if small:
        sizes = ", ".join(str(one.batch_size) for one in small)
        why = f"N/{small[0].linear.signal} is below {PREDICTS_FROM:g}, so B* would mostly be C² times their own"
        yield "do not predict", f"{sizes}: {why} batch size"
    for one in panel.predictions:
        if not one.usable and one not in small:
            yield f"does not predict: {one.batch_size}", one.status
