"""The experiments: three questions about SGD that take several runs each, and the figures of the paper that ask them.

Each family is two modules: its question and plan (`compare`, `ladder`, `ngd`), and what its records mean (`*_finding`,
which loads scipy and is imported when an answer is wanted). `FAMILIES` below is the only list of all families.

An experiment lives in a folder: `experiment.json` says what was asked, `runs/` holds one run directory per run.
"""

import json
from pathlib import Path
from typing import Any

from svag.lab.experiments.compare import Compare
from svag.lab.experiments.experiment import Experiment
from svag.lab.experiments.ladder import Ladder
from svag.lab.experiments.ngd import Ngd
from svag.lab.records.storage import make_folder, parse_json, read_file, replace_file
from svag.lab.specs.fields import SpecError, cut, shown

EXPERIMENT = "experiment.json"
FAMILIES: dict[str, type[Experiment]] = {"compare": Compare, "ladder": Ladder, "ngd": Ngd}


def family_of(kind: object) -> type[Experiment]:
    """The family of this name."""
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise SpecError("kind", f"must be one of {', '.join(FAMILIES)}, got {shown(kind)}")
    return FAMILIES[kind]


def experiment_from(fields: Any) -> Experiment:
    """Make an experiment from plain values; refuse invalid ones in one sentence.

    >>> experiment_from({"kind": "ladder", "title": "t", "seeds": [0]})
    Traceback (most recent call last):
    svag.lab.specs.fields.SpecError: ladder.panels: is missing
    """
    return family_of(fields.get("kind") if isinstance(fields, dict) else None).model_validate(fields)


def load_experiment(folder: Path) -> Experiment | None:
    """Read the experiment of a folder; None if the folder only has runs."""
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


def save_experiment(experiment: Experiment, folder: Path) -> None:
    """Write `experiment.json`, replacing an earlier one; the runs stay."""
    make_folder(folder)
    text = json.dumps(experiment.model_dump(mode="json"), indent=2, ensure_ascii=False)
    replace_file(folder / EXPERIMENT, text.encode() + b"\n")
