"""The weak error of SVAG, NGD and the ladder against ell, with the slope that the theorem promises (thm:sde_svag)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import altair as alt

from svag.exact.affine import AffineProblem
from svag.exact.processes import EulerMaruyama, Ito, Levy, Limit, Process, SmallerBatches, Svag
from svag.findings.verify.beds import SKEWED
from svag.findings.verify.svag_limit import DEGREES, affine_order
from svag.report import look

ELLS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REFERENCE = "slope −1"
PAIRS: tuple[tuple[str, Callable[[int], Process], Limit], ...] = (
    ("SVAG → Itô", Svag, Ito()),
    ("NGD → Itô", EulerMaruyama, Ito()),
    ("ladder → Itô", SmallerBatches, Ito()),
    ("ladder → Lévy", SmallerBatches, Levy()),
)


@dataclass(frozen=True)
class Row:
    """The largest error over all steps of E x^degree; or a point of the line that an error of order 1 follows."""

    series: str
    degree: int
    ell: int
    error: float


def table(bed: AffineProblem = SKEWED, ells: Sequence[int] = ELLS) -> list[Row]:
    """Errors of four processes against their limits, and a line of slope −1 below all that reach theirs."""
    rows = [row for name, process, limit in PAIRS for row in _errors(name, bed, process, limit, ells)]
    for degree in range(1, DEGREES + 1):
        lowest = min(row.error for row in rows if row.degree == degree and row.ell == ells[-1])
        rows += [Row(REFERENCE, degree, ell, lowest / 3 * ells[-1] / ell) for ell in ells]
    return rows


def _errors(
    name: str, bed: AffineProblem, process: Callable[[int], Process], limit: Limit, ells: Sequence[int]
) -> Iterator[Row]:
    errors = affine_order(bed, process, limit, ells).errors
    for degree in range(1, DEGREES + 1):
        for ell, error in zip(ells, errors[:, degree - 1], strict=True):
            yield Row(name, degree, ell, float(error))


def chart(rows: Sequence[Row]) -> look.Picture:
    """One panel a degree, both axes logarithmic: what converges at order 1 runs parallel to the reference."""
    series = [name for name in dict.fromkeys(row.series for row in rows) if name != REFERENCE]
    base = alt.Chart().encode(
        x=alt.X("ell:Q", title="ell (refinement)", scale=look.log_scale(2)),
        y=alt.Y("error:Q", title="weak error, maximum over steps", scale=look.log_scale()).axis(
            format=".0e", tickCount=5
        ),
        color=look.colour("series", series, grey=[REFERENCE]),
        tooltip=["series:N", "degree:O", "ell:Q", alt.Tooltip("error:Q", format=".3g")],
    )
    lines = base.mark_line().encode(strokeDash=look.dash("series", series, grey=[REFERENCE], quiet=True))
    points = (
        base.mark_point(filled=True, size=40)
        .encode(shape=look.shape("series", series, grey=[REFERENCE]))
        .transform_filter(alt.datum.series != REFERENCE)
    )
    drawn = alt.layer(lines, points, data=look.data([asdict(row) for row in rows]))
    names = alt.Header(title=None, labelExpr="'degree ' + datum.value")
    return drawn.properties(width=185, height=240).facet(column=alt.Column("degree:O", header=names))


def sentence(rows: Sequence[Row]) -> str:
    """The verdict: who reaches the Itô SDE at order 1 in every degree, and who does not."""
    worst = {name: max(_slopes(rows, name)) for name, _, _ in PAIRS}
    arrive = [name for name, slope in worst.items() if slope < -0.9]
    stay = [name for name, slope in worst.items() if slope >= -0.9]
    said = f"Error of order 1/ell in every degree: {', '.join(arrive) or 'none'}."
    return said + (f" Not in every degree: {', '.join(stay)}." if stay else "")


def _slopes(rows: Sequence[Row], name: str) -> Iterator[float]:
    for degree in range(1, DEGREES + 1):
        *_, one, two = [row for row in rows if row.series == name and row.degree == degree]
        yield math.log(two.error / one.error) / math.log(two.ell / one.ell)
