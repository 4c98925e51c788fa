"""Every figure of the paper by its label: an experiment at size smoke, small or paper, or a check of the theory."""

from difflib import get_close_matches
from typing import Literal, get_args

from svag.experiments.base import Compare, Ladder, Ngd, Size
from svag.experiments.figures import compare, ladder, ngd
from svag.experiments.figures.bases import smoke
from svag.experiments.figures.theory import THEORY
from svag.records.fields import SpecError, shown

Family = Literal["compare", "ladder", "ngd", "theory"]

_ROWS = {row.label: row for row in (*compare.ROWS, *ladder.ROWS, *ngd.ROWS)}

FAMILIES: dict[str, Family] = {
    **{row.label: "compare" for row in compare.ROWS},
    **{row.label: "ladder" for row in ladder.ROWS},
    **{row.label: "ngd" for row in ngd.ROWS},
    **dict.fromkeys(THEORY, "theory"),
}
LABELS = tuple(FAMILIES)


def family(label: str) -> Family:
    """Which kind of answer a label has.

    >>> family("fig:svag_accs"), family("thm:sde_svag")
    ('compare', 'theory')
    >>> family("svag_accs")
    Traceback (most recent call last):
    svag.records.fields.SpecError: svag_accs: no figure or theorem has this label; did you mean fig:svag_accs?
    """
    if label not in FAMILIES:
        close = get_close_matches(label, LABELS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "svag list figures shows all"
        raise SpecError(label, f"no figure or theorem has this label; {hint}")
    return FAMILIES[label]


def figure(label: str, size: Size) -> Compare | Ladder | Ngd:
    """The experiment behind a figure, at a size.

    >>> [panel.base.batch_size for panel in figure("fig:svag_accs", "paper").panels]
    [64, 1024]
    """
    if family(label) == "theory":
        raise SpecError(label, "belongs to the theory and trains nothing: svag verify checks it")
    row = _ROWS[label]
    match size:
        case "paper":
            return row.at_paper_size()
        case "small":
            return row.at_small_size()
        case "smoke":
            return smoke(row.at_small_size())
    raise SpecError("size", f"must be one of {', '.join(get_args(Size))}, got {shown(size)}")
