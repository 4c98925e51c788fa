"""What to do after a comparison of SGD with its SDE: one sentence, the most useful step first."""

from svag.findings.sde.evidence import LEVEL, Evidence


def next_step(evidence: Evidence, seeds_needed: int | None) -> str:
    """Return the sentence for `evidence`; `seeds_needed` is its advice on the number of seeds."""
    same = ", ".join(str(arm.key) for arm in evidence.arms if arm.finite.size > 1 and not arm.has_spread)
    doubt = f" Check that the seed reaches the runs at ell = {same}: they agree to the last digit." if same else ""
    return _step(evidence, seeds_needed) + (doubt if evidence.measured else "")


def _step(evidence: Evidence, seeds_needed: int | None) -> str:
    answer, arms = evidence.answer, evidence.arms
    if evidence.p_divergence < LEVEL:
        return "nothing more to run: SGD and its SDE do not diverge equally often; a smaller learning rate may help."
    if not evidence.measured:
        return _too_little(evidence)
    if evidence.unused:
        ells = ", ".join(map(str, evidence.unused))
        return f"run more seeds at ell = {ells}, which fewer than two seeds finished: they are not in the estimate."
    if not evidence.trusted and answer == "different":
        return (
            f"add ell={4 * arms[-1].key} if you want to know the SDE's value: SVAG has not converged in ell, but even "
            f"if it moves as far again as from ell={arms[-2].key} to {arms[-1].key}, SGD does not end there."
        )
    if not evidence.trusted:
        return (
            f"add ell={4 * arms[-1].key}: E_∞ + c/ell does not fit and SVAG has not converged in ell, "
            "so its largest ell does not stand for the SDE."
        )
    if answer == "inconclusive":
        return _diverged() if evidence.p_rates is not None else _more_seeds(evidence, seeds_needed)
    meaning = {
        "equivalent": "to within this margin, SGD ends where its SDE ends",
        "different": "SGD does not end where its SDE ends; a smaller learning rate brings them closer",
    }[answer]
    return f"{_convergence(evidence)}: {meaning}."


def _too_little(evidence: Evidence) -> str:
    arms = evidence.arms
    if not any(arm.finite.size for arm in arms):
        return "lower the learning rate: every seed diverged."
    short = ", ".join(str(arm.key) for arm in arms if arm.finite.size < 2)
    if short:
        return f"run more seeds, 5 is a good number: at ell = {short} fewer than two finished, which shows no spread."
    return (
        "check that the seed reaches the run: all seeds of an ell agree to the last digit, so there is no spread to "
        "judge the gap by; if that is right, take a metric that varies, such as the loss."
    )


def _diverged() -> str:
    return (
        "lower the learning rate until every seed finishes, or run at least 5 seeds per ell to compare how often they "
        "diverge: diverged seeds are outcomes, and the survivors alone cannot show equivalence."
    )


def _more_seeds(evidence: Evidence, seeds_needed: int | None) -> str:
    if seeds_needed is None:
        return (
            f"widen the margin (±{evidence.margin:g}) or average the metric over the last evaluations: more than 200 "
            "seeds per ell would be needed to decide."
        )
    more = seeds_needed - evidence.gap.seeds
    return (
        f"run {more} more seed{'' if more == 1 else 's'} per ell: that would probably decide this, "
        "if gap and spread stay as they are."
    )


def _convergence(evidence: Evidence) -> str:
    largest = evidence.arms[-1].key
    if evidence.converged_at is not None:
        return "nothing more to run"
    if not evidence.biases:
        return f"add ell={largest // 4 if largest >= 16 else 4 * largest} to see whether SVAG has converged in ell"
    if abs(evidence.biases[0][1].value) < evidence.margin / 2:
        return "more seeds may show that SVAG has converged in ell"
    return f"add ell={4 * largest}, because SVAG has not converged in ell"
