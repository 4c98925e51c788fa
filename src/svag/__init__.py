"""How far can I scale the batch, and does the SDE describe my SGD?

The public names, each found in the one module that the table below names and imported when it is first used, so that
`import svag` and the command line start at once and never load torch without need.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from svag.lab.models.build import build_model
    from svag.theory.kappa import critical_batch_size, max_kappa
    from svag.theory.rules import linear_scaling, square_root_scaling
    from svag.theory.weights import svag_weights

__version__ = "0.1.0.dev0"

_HOME = {
    "build_model": "svag.lab.models.build",
    "critical_batch_size": "svag.theory.kappa",
    "linear_scaling": "svag.theory.rules",
    "max_kappa": "svag.theory.kappa",
    "square_root_scaling": "svag.theory.rules",
    "svag_weights": "svag.theory.weights",
}

__all__ = [
    "build_model",
    "critical_batch_size",
    "linear_scaling",
    "max_kappa",
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
