"""What the paper proves or draws without training a network: exact answers, by label.

fig:app_exotic_lr draws schedules, sec:app_heayvtailed looks at a network's gradients, `svag verify` checks the rest.
"""

from svag.experiments.figures.bases import CIFAR, FASHION
from svag.records.experiment import Size
from svag.records.spec import RunSpec

THEORY = (
    "thm:sde_svag",
    "fig:proof_concept",
    "lem:D",
    "lem:Dtil",
    "thm:one_step_to_multi_steps",
    "app:lem:ito_taylor",
    "lem:sgd_moment_estimate",
    "lem:sc",
    "cor:sc",
    "lem:2nd_sde_hessian",
    "eq:norm_sgd_wd",
    "eq:norm_sde_wd",
    "sec:counterexample",
    "subsec:app_levy_sde",
    "thm:eq_sde_sgd",
    "thm:lsr_condition",
    "thm:lsr_kappa_bound",
    "thm:app_1st_2nd_sde",
    "thm:2nd_order_sde",
    "thm:test",
    "thm:test_on_gaussian",
    "sec:app_heayvtailed",
    "fig:app_exotic_lr",
)


def trained(size: Size) -> RunSpec:
    """The run whose gradients sec:app_heayvtailed looks at; the paper size has the paper's network on CIFAR-10."""
    match size:
        case "smoke":
            return FASHION.edited({"data.subset": 320, "model.width": 0.25, "budget": 10})
        case "small":
            return FASHION.edited({"budget": {"epochs": 10}})
        case "paper":
            return CIFAR.edited({"model.norm": "group"})
