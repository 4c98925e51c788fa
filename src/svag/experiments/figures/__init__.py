"""Every figure of the paper by its label: an experiment at size smoke, small or paper, or a check of the theory."""

from difflib import get_close_matches
from typing import get_args

from svag.experiments.base import Experiment, Size
from svag.experiments.figures import compare, ladder, ngd
from svag.experiments.figures.bases import smoke
from svag.experiments.figures.theory import THEORY
from svag.records.fields import SpecError, shown

_FIGURES: dict[str, tuple[compare.CompareRow | ladder.LadderRow | ngd.NgdRow, ...]] = {
    "compare": compare.ROWS,
    "ladder": ladder.ROWS,
    "ngd": ngd.ROWS,
}
_ROWS = {row.label: row for rows in _FIGURES.values() for row in rows}

LABELS = {row.label: kind for kind, rows in _FIGURES.items() for row in rows} | dict.fromkeys(THEORY, "theory")
"""Every label, and which family of experiments it belongs to, or that it is theory."""


def family(label: str) -> str:
    """Which kind of answer a label has.

    >>> family("fig:svag_accs"), family("thm:sde_svag")
    ('compare', 'theory')
    >>> family("svag_accs")
    Traceback (most recent call last):
    svag.records.fields.SpecError: svag_accs: no figure or theorem has this label; did you mean fig:svag_accs?
    """
    if label not in LABELS:
        close = get_close_matches(label, LABELS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "svag list figures shows all"
        raise SpecError(label, f"no figure or theorem has this label; {hint}")
    return LABELS[label]


def figure(label: str, size: Size) -> Experiment:
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
