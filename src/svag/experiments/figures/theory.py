"""What the paper proves or draws without training a network: exact answers, by label.

fig:app_exotic_lr draws schedules, sec:app_heayvtailed looks at a network's gradients, `svag verify` checks the rest.
"""

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
