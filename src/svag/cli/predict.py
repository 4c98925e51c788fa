"""`svag predict`: how far the batch can be scaled, from finished baseline runs."""

import json
from pathlib import Path
from typing import Annotated

import typer


def predict(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR", help="A baseline run; several, or a folder of seeds.")
    ],
    c2: Annotated[float, typer.Option("--c2", help="C²: how close is close.")] = 2.0,
    confidence: Annotated[float, typer.Option(help="Level of the interval.")] = 0.95,
    window: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="FROM TO", help="Effective steps (4000 8000) or fractions of the budget (0.5 0.8)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the prediction as JSON.")] = False,
) -> None:
    """Say beyond which batch size linear scaling cannot hold, from one ordinary run with a probe.

    Seeds of one setting are averaged together; runs at several batch sizes predict one by one. The prediction refutes
    and never certifies: below B* nothing is promised.

    Example: svag predict runs/baseline --window 0.5 0.8
    """
    from svag.cli.errors import reported
    from svag.experiments.baseline import predict_from_runs
    from svag.records.fields import SpecError
    from svag.records.record import load_records

    with reported():
        for folder in folders:
            if not folder.is_dir():
                raise SpecError("", f"there is no folder {folder}: give the folder of a finished run")
        records = {record.path.resolve(): record for folder in folders for record in load_records(folder)}
        if not records:
            raise SpecError("", f"there is no run in {folders[0]}: give a folder that svag run has written")
        found = predict_from_runs(records.values(), c2, confidence, _steps_or_fractions(window))
    for sentence in found.skipped:
        typer.echo(f"Note: {sentence}", err=True)
    typer.echo(json.dumps(found.to_dict(), ensure_ascii=False, indent=2) if as_json else str(found))


def _steps_or_fractions(window: tuple[str, str] | None) -> tuple[float, float] | None:
    from svag.records.fields import SpecError, moment

    if window is None:
        return None
    try:
        return moment(window[0]), moment(window[1])
    except ValueError as error:
        raise SpecError("--window", str(error)) from None
