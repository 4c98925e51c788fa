"""A report as files: the page, the Markdown summary, the figures and the tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from svag.records.files import disk_error, replace_file
from svag.report.build import build_report
from svag.report.content import Report
from svag.report.render import render_markdown, render_page
from svag.report.save import save

PAGE, SUMMARY, FIGURES, TABLES = "index.html", "summary.md", "figures", "tables"


@dataclass(frozen=True)
class Written:
    """Where the files of a report are.

    Attributes:
        page: the HTML page.
        summary: the Markdown summary.
        figures: every figure in every format asked for.
        tables: every table as CSV.
    """

    page: Path
    summary: Path
    figures: tuple[Path, ...]
    tables: tuple[Path, ...]

    def to_dict(self) -> dict[str, object]:
        """The paths as JSON values."""
        figures, tables = ([str(path) for path in paths] for paths in (self.figures, self.tables))
        return {"page": str(self.page), "summary": str(self.summary), "figures": figures, "tables": tables}


def write_report(folder: str | Path, out: str | Path | None = None, formats: Sequence[str] = ("png", "svg")) -> Written:
    """Answer from the records of a folder: a page, a summary in Markdown, the figures, and the tables as CSV.

    Nothing is run. Needs only the folder of an experiment, or any folder that holds run directories.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "spec.json").write_text("{}")  # a run of which only the start of a file is left
    ...     written = write_report(folder)
    ...     written.page.relative_to(folder).as_posix(), [path.name for path in written.tables]
    ('report/index.html', ['runs.csv'])

    Args:
        folder: what `svag.ladder`, `svag.run` and the like have written.
        out: where to write; the folder `report` inside it by default.
        formats: of the figures: "png", "svg", "pdf", "html"; none of them is needed by the page.
    """
    return write_files(build_report(folder), out or Path(folder) / "report", formats)


def write_files(report: Report, out: str | Path, formats: Sequence[str] = ("png", "svg")) -> Written:
    """Write everything into a folder; what stood there under the same names is replaced.

    Args:
        report: from `build_report`.
        out: the folder, made if it is not there.
        formats: of the figures: "png", "svg", "pdf", "html"; none of them is needed by the page.
    """
    folder = Path(out)
    for place in (folder, folder / FIGURES, folder / TABLES):
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk_error(place, error) from error
    page, summary = folder / PAGE, folder / SUMMARY
    replace_file(page, render_page(report).encode())
    replace_file(summary, render_markdown(report).encode())
    figures = [save(one.chart, folder / FIGURES / f"{one.name}.{kind}") for one in report.figures for kind in formats]
    tables = []
    for table in (report.runs, *(table for figure in report.figures for table in figure.tables)):
        target = folder / TABLES / f"{table.name}.csv"
        replace_file(target, table.csv().encode())
        tables.append(target)
    return Written(page, summary, tuple(figures), tuple(tables))
