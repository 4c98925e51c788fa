"""`svag reproduce`: a figure or a theorem of the paper, by its label."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from svag.cli.setup import Out, Setup, with_setup

Label = Annotated[str, typer.Argument(metavar="LABEL", help="LaTeX label of the paper, as in `svag list figures`.")]


@with_setup
def reproduce(
    context: typer.Context,
    label: Label,
    size: Annotated[
        Literal["smoke", "small", "paper"],
        typer.Option(help="Seconds; a laptop without a GPU; the paper's own setting."),
    ] = "small",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds of every arm; the figure's own when not given.")
    ] = None,
    out: Out = None,
    *,
    setup: Setup,
) -> None:
    """Reproduce a figure of the paper, or check a theorem and draw it.

    Fields of the specs are flags here too: --sampling shuffle is what the paper used. The same command continues.

    Example: svag reproduce fig:lsr_acc_gnr --size small --out ladder
    """
    from svag.cli.base_spec import field_edits
    from svag.cli.conduct import check_setup, conduct
    from svag.cli.errors import reported
    from svag.cli.theory import refuse_what_theory_has_not, reproduce_theory
    from svag.experiments.edits import edited
    from svag.experiments.figures import family, figure

    with reported():
        kind, edits = family(label), field_edits(context)
        check_setup(setup)
        folder = out or Path("experiments") / f"{label.replace(':', '-')}-{size}"
        if kind == "theory":
            refuse_what_theory_has_not(label, edits, seeds, setup)
            reproduce_theory(label, size, edits, folder, setup)
            return
        conduct(edited(figure(label, size), edits, seeds), folder, setup)
