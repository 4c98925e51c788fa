"""How the finding of a ladder by the gain rule is said: price and loss of every larger batch, then test error."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from svag.lab.experiments.gain_finding import Ended, GainFinding, GainRung
from svag.lab.experiments.ladder_answer import error_headline, factors_said, judged_by_error
from svag.lab.experiments.wording import Answer, Tone, criterion

if TYPE_CHECKING:
    from svag.lab.experiments.ladder_finding import LadderPanelFinding

_TONES: dict[Ended, Tone] = {"reached": "yes", "above": "no", "diverged": "no", "open": "open"}


def answer(panel: "LadderPanelFinding", found: GainFinding) -> Answer:
    """The answer of a panel: every larger batch size in a row, and what the test errors came to."""
    numbers = [*_rungs(found), *_drifts(found), *judged_by_error(panel)]
    return Answer(
        panel.name,
        headline(panel, found),
        tone(found),
        tuple(numbers),
        panel.status,
        tuple(rung.error for rung in panel.rungs),
        f"{criterion(panel.metric)} by batch size",
        badge="the same training loss" if tone(found) in {"yes", "no"} else "",
    )


def tone(found: GainFinding) -> Tone:
    """Yes where every larger batch reached the loss of the smallest; no where one is known not to."""
    tones = [_TONES[rung.ended] for rung in found.rungs if math.isfinite(rung.loss.value) or rung.ended == "diverged"]
    return "no" if "no" in tones else "yes" if tones and set(tones) == {"yes"} else "open"


def headline(panel: "LadderPanelFinding", found: GainFinding) -> str:
    """The largest batch size that has a result, beside the smallest."""
    done = [rung for rung in found.rungs if math.isfinite(rung.loss.value)]
    if not done:
        return error_headline(panel)
    last = done[-1]
    cost = f"{last.paid:.2f} times its examples" + (f" ({_priced(last)})" if math.isfinite(last.price) else "")
    return (
        f"Batch size {last.batch_size} ended at {ratio_said(last)} times the training loss of batch size "
        f"{found.baseline}, with {cost}."
    )


def ratio_said(rung: GainRung) -> str:
    """The final training loss over the baseline's, with the interval where there is one."""
    loss = rung.loss
    return f"{loss.value:.3f}" + (f" [{loss.low:.3f}, {loss.high:.3f}]" if math.isfinite(loss.high) else "")


def _priced(rung: GainRung) -> str:
    return f"predicted {rung.price:.2f}"


def _rungs(found: GainFinding) -> Iterator[tuple[str, str]]:
    for rung in found.rungs:
        said = []
        if math.isfinite(rung.price):
            said.append(f"price {rung.price:.2f}× the examples, gain {rung.gain:.2f} ({rung.first_gain:.2f} at first)")
        if math.isfinite(rung.paid):
            said.append(f"paid {rung.paid:.2f}×")
        if math.isfinite(rung.loss.value):
            said.append(f"final training loss {ratio_said(rung)} times that of {found.baseline}")
        if rung.examples is not None:
            said.append(f"same loss after {factors_said(rung.examples)} the examples")
        if rung.ended == "diverged":
            said.append("diverged")
        yield f"batch size {rung.batch_size}", "; ".join(said) or "no result yet"


def _drifts(found: GainFinding) -> Iterator[tuple[str, str]]:
    for rung in found.rungs:
        if rung.drift is not None:
            drift = rung.drift
            parts = (
                f"weight norm {drift.first.value:.2f}, gradient {drift.grad.value:.2f}, noise {drift.noise.value:.2f}"
            )
            least = "" if rung.least is None else f"; at least {rung.least:.2f} by the theorem, at equilibrium"
            yield f"drift at {rung.batch_size}", f"{drift.spread} ({parts}{least})"
