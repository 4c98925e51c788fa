"""What the paper proves or draws without training a network: exact answers, by label.

fig:app_exotic_lr draws schedules, sec:app_heayvtailed looks at a network's gradients, `svag verify` checks the rest.
"""

from svag.experiments.base import Size
from svag.experiments.figures.bases import CIFAR, FASHION
from svag.records.spec import RunSpec

THEORY = {
    "thm:sde_svag": "SVAG is an order-1 weak approximation of the Itô SDE",
    "fig:proof_concept": "SVAG and SGD beside the SDE on an Ornstein–Uhlenbeck problem",
    "lem:D": "moments of one SVAG step",
    "lem:Dtil": "moments of the SDE over the time of one step",
    "thm:one_step_to_multi_steps": "errors of single steps add up to C/l",
    "app:lem:ito_taylor": "the Itô–Taylor expansion to first order",
    "lem:u_eta_estimate": "the error of one step for a smooth function",
    "app:lem:delta_prod_estimate": "moments of the increment of the SDE",
    "lem:sgd_moment_estimate": "moments bounded uniformly in l and in the step",
    "lem:sc": "gradients are orthogonal to the weights and scale like 1/c",
    "cor:sc": "the noise is orthogonal to the weights and scales like 1/c",
    "lem:2nd_sde_hessian": "xᵀ∇²L∇L = −|∇L|²",
    "eq:norm_sgd_wd": "the weight norm of SGD, step by step",
    "eq:norm_sde_wd": "the weight norm of the SDE in time",
    "eq:noisy_gd": "noisy gradient descent has the covariance of SGD",
    "sec:counterexample": "Poisson gradients: linear scaling holds, the SDE does not",
    "subsec:app_levy_sde": "the ladder tends to a Lévy SDE",
    "thm:eq_sde_sgd": "where SGD and SDE cannot be C-close",
    "thm:lsr_condition": "N/G of the large run refutes linear scaling, without a baseline",
    "thm:lsr_kappa_bound": "N/G of the baseline bounds κ",
    "thm:app_1st_2nd_sde": "where the two SDEs cannot be C-close",
    "thm:2nd_order_sde": "the second-order SDE has weak order 2 in η",
    "thm:test": "the tail-index estimator",
    "thm:test_on_gaussian": "what the tail-index estimator reads on correlated Gaussians",
    "sec:app_heayvtailed": "are the gradients of a network heavy-tailed?",
    "fig:app_exotic_lr": "the triangular and the cosine schedule",
}
"""What each label says, in a line."""

UNVERIFIED = ("sec:app_heayvtailed", "fig:app_exotic_lr")
"""Labels that `svag verify` has no check for: there is something to look at."""


def trained(size: Size) -> RunSpec:
    """The run whose gradients sec:app_heayvtailed looks at; the paper size has the paper's network on CIFAR-10."""
    match size:
        case "smoke":
            return FASHION.edited({"data.subset": 320, "model.width": 0.25, "budget": 10})
        case "small":
            return FASHION.edited({"budget": {"epochs": 10}})
        case "paper":
            return CIFAR.edited({"model.norm": "group"})
