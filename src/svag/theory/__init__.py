"""The formulas: floats in, floats out.

The names are imported eagerly: `distortion` and `gain` are functions as well as the modules that define them, so a name
that was resolved later would depend on which of the two was imported last.
"""

from svag.theory.adaptive import square_root_scaling
from svag.theory.bounds import critical_batch_size, large_run_refutes, max_kappa, sgd_refutes_sde
from svag.theory.distortion import distortion
from svag.theory.gain import gain, gain_scaling
from svag.theory.optimizers import linear_scaling
from svag.theory.weights import svag_weights

__all__ = [
    "critical_batch_size",
    "distortion",
    "gain",
    "gain_scaling",
    "large_run_refutes",
    "linear_scaling",
    "max_kappa",
    "sgd_refutes_sde",
    "square_root_scaling",
    "svag_weights",
]
