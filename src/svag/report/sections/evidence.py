"""What a comparison knows beside its verdict: convergence in ell, curves, C-closeness, decompositions."""

import math
from collections.abc import Iterator

from svag.findings.experiments.closeness import Closeness
from svag.findings.experiments.compare_finding import ComparePanelFinding
from svag.findings.experiments.curve_gap import CurveGap
from svag.findings.experiments.decomposition import Decomposition
from svag.findings.experiments.limit import Limit
from svag.findings.sde.answer import SDEVerdict
from svag.report import wording

_ROUTES = {"gaussian": "decomposed through NGD", "ladder": "decomposed through the ladder"}


def rows(panel: ComparePanelFinding) -> Iterator[tuple[str, str]]:
    """One row for everything that was found."""
    if panel.curve is not None:
        yield "over the curve", _curve(panel.curve, panel.metric)
    if panel.verdict is not None:
        yield "convergence in ell", _convergence(panel.verdict)
    if panel.richardson is not None:
        ells = " and ".join(map(str, panel.richardson.ells))
        yield "Richardson", f"{limit_said(panel.richardson, panel.metric)} from ell = {ells}"
    if panel.closeness is not None:
        yield from _closeness(panel.closeness)
    for one in panel.decompositions:
        yield _ROUTES[one.route], _decomposition(one, panel.metric)
    if panel.verdict is not None:
        yield "p values", _p_values(panel.verdict)


def limit_said(found: Limit, metric: str) -> str:
    """A limit with its interval, and how many seeds are not in it."""
    low, high = (wording.value(wording.within(edge, metric), metric) for edge in (found.low, found.high))
    lost = f", {found.diverged} diverged left out" if found.diverged else ""
    return f"{wording.value(found.value, metric)} ({low} to {high}){lost}"


def _curve(found: CurveGap, metric: str) -> str:
    limits = ""
    if math.isfinite(found.low):
        limits = f" {wording.interval(found.low, found.high, metric)}, 95% at all steps at once"
    lost = f", before {wording.count(found.diverged, 'seed')} diverged" if found.diverged else ""
    weak = "; more seeds are needed for a p below 0.05" if found.smallest_p >= 0.05 else ""
    return (
        f"p = {found.p_value:.2g}, SGD against SVAG ell={found.ell} up to effective step {found.until_step:,}{lost}; "
        f"furthest apart at {found.at_step:,}, by {wording.difference(found.gap, metric)}{limits}; "
        f"{found.smallest_p:.2g} is the smallest p possible{weak}"
    )


def _convergence(found: SDEVerdict) -> str:
    shown = f"shown from ell = {found.converged_at} on" if found.converged else "not shown"
    tested = "untested" if found.lack_of_fit is None else f"lack of fit p = {found.lack_of_fit:.2g}"
    match found.limit:
        case "fit":
            return f"{shown}; the limit is E_∞ of E_∞ + c/ell ({tested})"
        case "largest_ell":
            return f"{shown}; the limit is the largest ell, because E_∞ + c/ell does not fit ({tested})"
        case "none":
            return f"{shown}; the spread is unknown"


def _closeness(found: Closeness) -> Iterator[tuple[str, str]]:
    ratios = ", ".join(
        f"{one.name} {wording.plain(one.value)} [{wording.plain(one.low)}, {wording.plain(one.high)}]"
        for one in found.ratios
    )
    yield (
        "C-closeness",
        (
            f"SGD over SVAG ell={found.ell} {found.where}: {ratios}; smallest C² = {wording.plain(found.c2)}, "
            f"at least {wording.plain(found.c2_low)}"
        ),
    )
    balances = (("SGD", found.sgd_balance), (f"SVAG ell={found.ell}", found.svag_balance))
    known = [f"{name} {balance:.3g}" for name, balance in balances if balance is not None]
    if known:
        yield "equilibrium", f"growth over decay of |x|², 1 at equilibrium: {', '.join(known)}"


def _decomposition(found: Decomposition, metric: str) -> str:
    steps = ", ".join(
        f"{term.name} = {wording.difference(term.value, metric)} {wording.interval(term.low, term.high, metric)}"
        for term in found.terms
    )
    lost = f"; {found.left_out} diverged left out" if found.left_out else ""
    total = f"{found.total.name} = {wording.difference(found.total.value, metric)}"
    return f"{total}: {steps} ({wording.count(found.seeds, 'seed')}{lost})"


def _p_values(found: SDEVerdict) -> str:
    said = f"a gap: {found.p_different:.2g}; smaller than the margin: {found.p_equivalent:.2g}"
    if found.p_divergence is None:
        return said
    return f"{said}; unequal rates of divergence: {found.p_divergence:.2g}"
