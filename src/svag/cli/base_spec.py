"""The spec that an experiment starts from, with the fields that flags replace."""

from pathlib import Path
from typing import Any

import typer

from svag.cli.fields import edits_from
from svag.records.refusal import SpecError
from svag.records.spec import RunSpec


def load_base(path: Path, context: typer.Context) -> RunSpec:
    """Read the base of an experiment; flags that the command did not know are fields of it."""
    return RunSpec.load(path, field_edits(context))


def field_edits(context: typer.Context) -> dict[str, Any]:
    """What the flags replace in the base, or in every base, of an experiment."""
    own = [name for option in context.command.params for name in option.opts if name.startswith("--")]
    edits = edits_from(context.args, also=[name.removeprefix("--") for name in own])
    if "seed" in edits:
        raise SpecError("--seed", "an experiment runs every arm with the same seeds: say how many with --seeds")
    return edits


def default_out(base: Path, experiment: str) -> Path:
    """Where an experiment goes when nothing is said."""
    return Path("experiments") / f"{base.stem}-{experiment}"
