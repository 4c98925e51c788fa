"""The experiments: three questions about SGD that take several runs each, and the figures of the paper that ask them.

Each family is two modules: its question and plan (`compare`, `ladder`, `ngd`), and what its records mean (`*_finding`,
which loads scipy and is imported when an answer is wanted). The table below is all that knows every family.
"""

from pathlib import Path
from typing import Any

from svag.lab.experiments.base import EXPERIMENT, Experiment
from svag.lab.experiments.compare import Compare
from svag.lab.experiments.ladder import Ladder
from svag.lab.experiments.ngd import Ngd
from svag.lab.experiments.runs import one_version
from svag.lab.records.record import load_records
from svag.lab.records.storage import parse_json, read_file
from svag.lab.specs.fields import SpecError, cut, shown, visible

FAMILIES: dict[str, type[Experiment]] = {"compare": Compare, "ladder": Ladder, "ngd": Ngd}


def experiment_from(fields: Any) -> Experiment:
    """Make an experiment from plain values; refuse nonsense in one sentence.

    >>> experiment_from({"kind": "ladder", "title": "t", "seeds": [0]})
    Traceback (most recent call last):
    svag.lab.specs.fields.SpecError: ladder.panels: is missing
    """
    return _family(fields.get("kind") if isinstance(fields, dict) else None).model_validate(fields)


def _family(kind: object) -> type[Experiment]:
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise SpecError("kind", f"must be one of {', '.join(FAMILIES)}, got {shown(kind)}")
    return FAMILIES[kind]


def load_experiment(folder: Path) -> Experiment | None:
    """What was asked in this folder; None if it is a mere folder of runs."""
    path = folder / EXPERIMENT
    if not path.exists():
        return None
    try:
        return experiment_from(parse_json(read_file(path)))
    except OSError as error:
        raise SpecError(str(path), f"cannot be read: {error.strerror}") from None
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError(str(path), f"cannot be read: {cut(str(error))}") from None


def experiment_of_runs(folder: Path, kind: str) -> Experiment:
    """The experiment of this family that the runs of a mere folder are; refused where something was asked already."""
    family = _family(kind)
    if (folder / EXPERIMENT).exists():
        raise SpecError(str(folder / EXPERIMENT), "says already what was asked here: leave --as out")
    records = load_records(folder)
    one_version(records)
    specs = [record.spec for record in records if record.spec is not None]
    if not specs:
        raise SpecError(str(folder), "holds no runs that can be read: give a folder that svag has written")
    return family.from_specs(specs, title=f"Runs in {visible(folder.resolve().name)}")
