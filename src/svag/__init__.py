"""What does a larger batch cost me, and does the SDE describe my training?

The names of the library, each imported from the module that the table below names when it is first used, so that
`import svag` and the command line start at once and never load torch without need. Formulas are in `svag.theory`, and
runs from specs, experiments and pages in `svag.lab`, which needs the extra of that name.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for those who read types; a test compares the two
    from svag import lab as lab
    from svag import theory as theory
    from svag.dynamics.gain_rule import GainRule as GainRule
    from svag.dynamics.noisy_gd import NoisyGD as NoisyGD
    from svag.dynamics.sampler import BatchSampler as BatchSampler
    from svag.dynamics.sampler import independent_pairs as independent_pairs
    from svag.dynamics.svag import SVAG as SVAG
    from svag.noise.frozen import measure_noise as measure_noise
    from svag.noise.invariance import scale_invariance_error as scale_invariance_error
    from svag.noise.probe import NoiseProbe as NoiseProbe
    from svag.noise.reading import Reading as Reading
    from svag.noise.reading import append_readings as append_readings
    from svag.noise.reading import load_readings as load_readings
    from svag.noise.throughput import measure_throughput as measure_throughput
    from svag.prices.batch_schedule import BatchSchedule as BatchSchedule
    from svag.prices.estimate import Estimate as Estimate
    from svag.prices.linear import LinearRule as LinearRule
    from svag.prices.plan import GainPlan as GainPlan
    from svag.prices.price import Price as Price
    from svag.prices.price_list import PriceList as PriceList
    from svag.prices.price_list import price_list as price_list
    from svag.prices.reasons import Reason as Reason
    from svag.theory.gain import Factors as Factors
    from svag.verdicts.scaling import ScalingVerdict as ScalingVerdict
    from svag.verdicts.scaling import scaling_verdict as scaling_verdict
    from svag.verdicts.sde import SDEVerdict as SDEVerdict
    from svag.verdicts.sde import sde_verdict as sde_verdict

__version__ = "0.2.0"  # the only place that says it; the metadata of the package is built from here

_NAMES = {
    "svag.dynamics.gain_rule": "GainRule",
    "svag.dynamics.noisy_gd": "NoisyGD",
    "svag.dynamics.sampler": "BatchSampler independent_pairs",
    "svag.dynamics.svag": "SVAG",
    "svag.noise.frozen": "measure_noise",
    "svag.noise.invariance": "scale_invariance_error",
    "svag.noise.probe": "NoiseProbe",
    "svag.noise.reading": "Reading append_readings load_readings",
    "svag.noise.throughput": "measure_throughput",
    "svag.prices.batch_schedule": "BatchSchedule",
    "svag.prices.estimate": "Estimate",
    "svag.prices.linear": "LinearRule",
    "svag.prices.plan": "GainPlan",
    "svag.prices.price": "Price",
    "svag.prices.price_list": "PriceList price_list",
    "svag.prices.reasons": "Reason",
    "svag.theory.gain": "Factors",
    "svag.verdicts.scaling": "ScalingVerdict scaling_verdict",
    "svag.verdicts.sde": "SDEVerdict sde_verdict",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

_PARTS = ("lab", "theory")  # `import svag` is enough to write svag.theory.gain

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name in _PARTS:
        return import_module(f"svag.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'svag' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
