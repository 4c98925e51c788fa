"""The figures that each family of experiments is drawn in: a new family has a module here and a row in the table."""

from collections.abc import Callable, Iterator
from typing import Any

from svag.report.content import Figure
from svag.report.sections import compare, ladder, ngd

FIGURES: dict[str, Callable[[Any], Iterator[Figure]]] = {
    "compare": compare.figures,
    "ladder": ladder.figures,
    "ngd": ngd.figures,
}
"""By the kind of the experiment: what draws its finding."""
