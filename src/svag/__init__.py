"""How far can I scale the batch, and does the SDE describe my SGD?

The public names, each found in the one module that the table below names and imported when it is first used, so that
`import svag` and the command line start at once and never load torch without need.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from svag.dynamics.noisy_gd import NoisyGD
    from svag.dynamics.sampler import BatchSampler, independent_pairs
    from svag.dynamics.svag import SVAG
    from svag.findings.critical_batch import predict_critical_batch
    from svag.findings.prices import Estimate, Price
    from svag.findings.scaling_verdict import scaling_verdict
    from svag.findings.sde_verdict import sde_verdict
    from svag.lab.models.build import build_model
    from svag.lab.run import run
    from svag.noise.frozen import measure_noise
    from svag.noise.invariance import scale_invariance_error
    from svag.noise.probe import NoiseProbe
    from svag.records.reading import Reading, append_readings, load_readings
    from svag.records.record import RunRecord, load_records
    from svag.records.spec import RunSpec
    from svag.theory.bounds import critical_batch_size, large_run_refutes, max_kappa, sgd_refutes_sde
    from svag.theory.distortion import distortion
    from svag.theory.optimizers import linear_scaling, square_root_scaling
    from svag.theory.weights import svag_weights

__version__ = "0.1.0.dev0"

_HOME = {
    "BatchSampler": "svag.dynamics.sampler",
    "Estimate": "svag.findings.prices",
    "NoiseProbe": "svag.noise.probe",
    "NoisyGD": "svag.dynamics.noisy_gd",
    "Price": "svag.findings.prices",
    "Reading": "svag.records.reading",
    "RunRecord": "svag.records.record",
    "RunSpec": "svag.records.spec",
    "SVAG": "svag.dynamics.svag",
    "append_readings": "svag.records.reading",
    "build_model": "svag.lab.models.build",
    "critical_batch_size": "svag.theory.bounds",
    "distortion": "svag.theory.distortion",
    "independent_pairs": "svag.dynamics.sampler",
    "large_run_refutes": "svag.theory.bounds",
    "linear_scaling": "svag.theory.optimizers",
    "load_readings": "svag.records.reading",
    "load_records": "svag.records.record",
    "max_kappa": "svag.theory.bounds",
    "measure_noise": "svag.noise.frozen",
    "predict_critical_batch": "svag.findings.critical_batch",
    "run": "svag.lab.run",
    "scale_invariance_error": "svag.noise.invariance",
    "scaling_verdict": "svag.findings.scaling_verdict",
    "sde_verdict": "svag.findings.sde_verdict",
    "sgd_refutes_sde": "svag.theory.bounds",
    "square_root_scaling": "svag.theory.optimizers",
    "svag_weights": "svag.theory.weights",
}

__all__ = [
    "SVAG",
    "BatchSampler",
    "Estimate",
    "NoiseProbe",
    "NoisyGD",
    "Price",
    "Reading",
    "RunRecord",
    "RunSpec",
    "append_readings",
    "build_model",
    "critical_batch_size",
    "distortion",
    "independent_pairs",
    "large_run_refutes",
    "linear_scaling",
    "load_readings",
    "load_records",
    "max_kappa",
    "measure_noise",
    "predict_critical_batch",
    "run",
    "scale_invariance_error",
    "scaling_verdict",
    "sde_verdict",
    "sgd_refutes_sde",
    "square_root_scaling",
    "svag_weights",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'svag' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
