"""The laboratory: runs from specs, experiments of several runs, and their pages.

Needs the extra: `pip install "svag[lab]"`. The names are imported when they are first used, as in `svag` itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for those who read types; a test compares the two
    from svag.lab.execution.execution import Execution as Execution
    from svag.lab.execution.questions import compare as compare
    from svag.lab.execution.questions import ladder as ladder
    from svag.lab.execution.questions import ngd as ngd
    from svag.lab.experiments.compare_finding import CompareFinding as CompareFinding
    from svag.lab.experiments.ladder_finding import LadderFinding as LadderFinding
    from svag.lab.experiments.ngd_finding import NgdFinding as NgdFinding
    from svag.lab.networks.build import build_model as build_model
    from svag.lab.records.record import RunRecord as RunRecord
    from svag.lab.records.record import load_records as load_records
    from svag.lab.report.write import write_report as write_report
    from svag.lab.specs.fields import SpecError as SpecError
    from svag.lab.specs.spec import RunSpec as RunSpec
    from svag.lab.training.run import run as run

_NAMES = {
    "svag.lab.execution.execution": "Execution",
    "svag.lab.execution.questions": "compare ladder ngd",
    "svag.lab.experiments.compare_finding": "CompareFinding",
    "svag.lab.experiments.ladder_finding": "LadderFinding",
    "svag.lab.experiments.ngd_finding": "NgdFinding",
    "svag.lab.networks.build": "build_model",
    "svag.lab.records.record": "RunRecord load_records",
    "svag.lab.report.write": "write_report",
    "svag.lab.specs.fields": "SpecError",
    "svag.lab.specs.spec": "RunSpec",
    "svag.lab.training.run": "run",
}
_HOME = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'svag.lab' has no attribute {name!r}")
    try:
        value = getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("svag"):
            raise
        raise ModuleNotFoundError(
            f'svag.lab.{name} needs {error.name}, which is not installed: pip install "svag[lab]"', name=error.name
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
