"""Every theorem of the paper against an exact answer, by its LaTeX label, and ours; the checks behind `svag verify`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from svag.paper.verify import (
    adaptive,
    equilibrium,
    gain_rule,
    noise_laws,
    proof_steps,
    scale_invariance,
    svag_limit,
    thresholds,
)
from svag.paper.verify.check import Check


@dataclass(frozen=True)
class Topic:
    """Labels that are checked together, because they share what is computed."""

    labels: tuple[str, ...]
    checks: Callable[[np.random.Generator], Iterator[Check]]


TOPICS = (
    Topic(("thm:sde_svag",), svag_limit.sde_svag),
    Topic(("fig:proof_concept",), svag_limit.proof_concept),
    Topic(("lem:D",), proof_steps.svag_increment),
    Topic(("lem:Dtil",), proof_steps.sde_increment),
    Topic(("thm:one_step_to_multi_steps",), proof_steps.one_step_to_multi_steps),
    Topic(("app:lem:ito_taylor",), proof_steps.ito_taylor),
    Topic(("lem:u_eta_estimate",), proof_steps.smooth_functions),
    Topic(("app:lem:delta_prod_estimate",), proof_steps.increment_products),
    Topic(("lem:sgd_moment_estimate",), proof_steps.moment_estimate),
    Topic(("sec:counterexample",), noise_laws.counterexample),
    Topic(("subsec:app_levy_sde",), noise_laws.levy_sde),
    Topic(("lem:sc",), scale_invariance.orthogonality),
    Topic(("cor:sc",), scale_invariance.noise_orthogonality),
    Topic(("lem:2nd_sde_hessian",), scale_invariance.hessian_identity),
    Topic(("eq:norm_sgd_wd",), scale_invariance.sgd_norm),
    Topic(("eq:norm_sgd_wd",), scale_invariance.relaxation),
    Topic(("eq:norm_sde_wd",), scale_invariance.sde_norm),
    Topic(("eq:noisy_gd",), noise_laws.gaussian_noise),
    Topic(("thm:eq_sde_sgd",), equilibrium.balances),
    Topic(
        ("thm:eq_sde_sgd", "thm:lsr_condition", "thm:lsr_kappa_bound", "thm:app_1st_2nd_sde"),
        equilibrium.certificates,
    ),
    Topic(
        ("thm:eq_sde_sgd", "thm:lsr_condition", "thm:lsr_kappa_bound", "thm:app_1st_2nd_sde"),
        thresholds.both_sides,
    ),
    Topic(("thm:2nd_order_sde",), svag_limit.second_order_sde),
    Topic(("thm:test",), noise_laws.stable_values),
    Topic(("thm:test_on_gaussian",), noise_laws.gaussian_values),
    Topic(("ours:rmsprop_sde",), adaptive.rmsprop_sde),
    Topic(("ours:adam_sde",), adaptive.adam_sde),
    Topic(("ours:square_root_rule",), adaptive.square_root_rule),
    Topic(("ours:gain_rule",), gain_rule.gain_rule),
)

LABELS = tuple(dict.fromkeys(label for topic in TOPICS for label in topic.labels))


def topics_for(labels: Iterable[str]) -> list[tuple[int, Topic]]:
    """The topics that check any of the labels, with their number, which seeds them."""
    wanted = set(labels)
    return [(number, topic) for number, topic in enumerate(TOPICS) if wanted & set(topic.labels)]


def run_topic(number: int, topic: Topic, labels: Iterable[str], seed: int = 0) -> list[Check]:
    """The checks of one topic that belong to the labels; a seed gives the same numbers for any choice of labels."""
    wanted = set(labels)
    return [check for check in topic.checks(np.random.default_rng([seed, number])) if check.label in wanted]


def verify(labels: Iterable[str] = LABELS, seed: int = 0) -> list[Check]:
    """Check these labels, of the paper and ours, against exact answers.

    >>> [check.passed for check in verify(["app:lem:ito_taylor"])]
    [True, True, True, True, True, True]
    """
    labels = tuple(labels)
    return [check for number, topic in topics_for(labels) for check in run_topic(number, topic, labels, seed)]
