"""How far can I scale the batch, and does the SDE describe my SGD?

The public names, each imported from the module that the table below names when it is first used, so that `import svag`
and the command line start at once and never load torch without need.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for those who read types; a test compares the two
    from svag.dynamics.noisy_gd import NoisyGD as NoisyGD
    from svag.dynamics.sampler import BatchSampler as BatchSampler
    from svag.dynamics.sampler import independent_pairs as independent_pairs
    from svag.dynamics.svag import SVAG as SVAG
    from svag.execution.execution import Execution as Execution
    from svag.execution.questions import compare as compare
    from svag.execution.questions import ladder as ladder
    from svag.execution.questions import ngd as ngd
    from svag.experiments.compare_finding import CompareFinding as CompareFinding
    from svag.experiments.ladder_finding import LadderFinding as LadderFinding
    from svag.experiments.ngd_finding import NgdFinding as NgdFinding
    from svag.findings.critical_batch import CriticalBatch as CriticalBatch
    from svag.findings.critical_batch import predict_critical_batch as predict_critical_batch
    from svag.findings.prices import Estimate as Estimate
    from svag.findings.prices import Price as Price
    from svag.findings.scaling_verdict import ScalingVerdict as ScalingVerdict
    from svag.findings.scaling_verdict import scaling_verdict as scaling_verdict
    from svag.findings.sde_verdict import SDEVerdict as SDEVerdict
    from svag.findings.sde_verdict import sde_verdict as sde_verdict
    from svag.lab.models.build import build_model as build_model
    from svag.lab.run import run as run
    from svag.noise.frozen import measure_noise as measure_noise
    from svag.noise.invariance import scale_invariance_error as scale_invariance_error
    from svag.noise.probe import NoiseProbe as NoiseProbe
    from svag.noise.throughput import measure_throughput as measure_throughput
    from svag.records.fields import SpecError as SpecError
    from svag.records.reading import Reading as Reading
    from svag.records.reading import append_readings as append_readings
    from svag.records.reading import load_readings as load_readings
    from svag.records.record import RunRecord as RunRecord
    from svag.records.record import load_records as load_records
    from svag.records.spec import RunSpec as RunSpec
    from svag.report.build import write_report as write_report
    from svag.theory.adaptive import square_root_scaling as square_root_scaling
    from svag.theory.bounds import critical_batch_size as critical_batch_size
    from svag.theory.bounds import large_run_refutes as large_run_refutes
    from svag.theory.bounds import max_kappa as max_kappa
    from svag.theory.bounds import sgd_refutes_sde as sgd_refutes_sde
    from svag.theory.distortion import distortion as distortion
    from svag.theory.optimizers import linear_scaling as linear_scaling
    from svag.theory.weights import svag_weights as svag_weights

__version__ = "0.1.0"  # the only place that says it; the metadata of the package is built from here

_NAMES = {
    "svag.dynamics.noisy_gd": "NoisyGD",
    "svag.dynamics.sampler": "BatchSampler independent_pairs",
    "svag.dynamics.svag": "SVAG",
    "svag.execution.execution": "Execution",
    "svag.execution.questions": "compare ladder ngd",
    "svag.experiments.compare_finding": "CompareFinding",
    "svag.experiments.ladder_finding": "LadderFinding",
    "svag.experiments.ngd_finding": "NgdFinding",
    "svag.findings.critical_batch": "CriticalBatch predict_critical_batch",
    "svag.findings.prices": "Estimate Price",
    "svag.findings.scaling_verdict": "ScalingVerdict scaling_verdict",
    "svag.findings.sde_verdict": "SDEVerdict sde_verdict",
    "svag.lab.models.build": "build_model",
    "svag.lab.run": "run",
    "svag.noise.frozen": "measure_noise",
    "svag.noise.invariance": "scale_invariance_error",
    "svag.noise.probe": "NoiseProbe",
    "svag.noise.throughput": "measure_throughput",
    "svag.records.fields": "SpecError",
    "svag.records.reading": "Reading append_readings load_readings",
    "svag.records.record": "RunRecord load_records",
    "svag.records.spec": "RunSpec",
    "svag.report.build": "write_report",
    "svag.theory.bounds": "critical_batch_size large_run_refutes max_kappa sgd_refutes_sde",
    "svag.theory.distortion": "distortion",
    "svag.theory.adaptive": "square_root_scaling",
    "svag.theory.optimizers": "linear_scaling",
    "svag.theory.weights": "svag_weights",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'svag' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
