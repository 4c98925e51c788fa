"""From a folder of runs to its report, and to its files: the page, the Markdown summary, the figures and tables."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from svag.lab.experiments import load_experiment
from svag.lab.experiments.experiment import Experiment
from svag.lab.experiments.finding import Finding, PanelFinding
from svag.lab.experiments.wording import Judgement, count, overall
from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.records.record import RunRecord, load_records, notes_on
from svag.lab.records.storage import make_folder, replace_file
from svag.lab.report import loose_runs
from svag.lab.report.content import Provenance, Report, Row, Table
from svag.lab.report.costs import duration
from svag.lab.report.figures import PAGES, WORDS
from svag.lab.report.render import render_markdown, render_page
from svag.lab.report.save import save_as
from svag.lab.specs.fields import SpecError, visible

PAGE, SUMMARY, CHARTS, TABLES = "index.html", "summary.md", "figures", "tables"


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
        folder: what `svag.lab.ladder`, `svag.lab.run` and the like have written.
        out: where to write; the folder `report` inside it by default.
        formats: of the figures: "png", "svg", "pdf", "html"; none of them is needed by the page.
    """
    return write_files(build_report(folder), out or Path(folder) / "report", formats)


def write_files(report: Report, out: str | Path, formats: Sequence[str] = ("png", "svg")) -> Written:
    """Write everything into a folder, replacing files of the same names.

    Args:
        report: from `build_report`.
        out: the folder, made if it is not there.
        formats: of the figures: "png", "svg", "pdf", "html"; none of them is needed by the page.
    """
    folder = Path(out)
    for place in (folder, folder / CHARTS, folder / TABLES):
        make_folder(place)
    page, summary = folder / PAGE, folder / SUMMARY
    replace_file(page, render_page(report).encode())
    replace_file(summary, render_markdown(report).encode())
    endings = [f".{kind}" for kind in formats]
    drawn = report.figures
    figures = [path for figure in drawn for path in save_as(figure.chart, folder / CHARTS / figure.name, endings)]
    tables = []
    for table in report.tables:
        target = folder / TABLES / f"{table.name}.csv"
        replace_file(target, table.csv().encode())
        tables.append(target)
    return Written(page, summary, tuple(figures), tuple(tables))


Judge = Callable[[Experiment, Any], Sequence[Judgement]]
"""Compares a finding with claims made elsewhere, such as those of the paper's figures."""


def no_claims(experiment: Experiment, finding: Any) -> Sequence[Judgement]:
    """No claims."""
    return ()


def build_report(path: str | Path, judge: Judge = no_claims) -> Report:
    """Read a folder and report on it: the answer of its experiment, or how its runs went if there is none.

    Args:
        path: a folder with `experiment.json`, or any folder that holds run directories, or one of these itself.
        judge: compares a finding with claims.
    """
    root = Path(path)
    if not root.is_dir():
        raise SpecError(str(root), "there is no such folder: give one that `svag ladder`, `svag run` and the like made")
    experiment, records = load_experiment(root), load_records(root)
    if experiment is not None:
        return report_of(experiment, records, judge)
    if not records:
        raise SpecError(str(root), "holds no runs: give a folder that `svag ladder`, `svag run` and the like made")
    predicted = loose_runs.predictions(records)
    alone = len(records) == 1 and bool(predicted.predictions)
    return Report(
        title=loose_runs.QUESTION_OF_ONE if alone else loose_runs.QUESTION,
        subject=f"{'Run' if alone else 'Runs in'} {visible(root.resolve().name)}",
        words=WORDS["folder"],
        notes=(loose_runs.NOTE,) if len(records) > 1 else (),
        cards=loose_runs.cards(records, predicted),
        figures=tuple(loose_runs.figures(records, predicted)),
        provenance=provenance(None, records),
        runs=runs_table(records),
        finding=loose_runs.finding(records, predicted),
    )


# Maximum number of figures on a page: each takes tenths of a second to draw, and more would not be read.
MOST_FIGURES = 60


def report_of(experiment: Experiment, records: Sequence[RunRecord], judge: Judge = no_claims) -> Report:
    """The report of an experiment from its records."""
    return report_on(experiment, experiment.find(records), records, judge)


def report_on(
    experiment: Experiment, finding: Finding[PanelFinding], records: Sequence[RunRecord], judge: Judge = no_claims
) -> Report:
    """The report of an experiment from its finding."""
    cards, drawn = PAGES[experiment.kind](finding, records)
    figures = tuple(islice(drawn, MOST_FIGURES + 1))
    if len(cards) == 1:
        figures = tuple(replace(figure, panel="") for figure in figures)
    cut = (f"Only the first {MOST_FIGURES} figures are drawn; the answers are about all {len(finding.panels)} panels.",)
    claims = judge(experiment, finding)
    paper = {"verdict": overall(claims), "claims": [asdict(claim) for claim in claims]}
    question, method = experiment.asks()
    return Report(
        title=question,
        subject=_subject(experiment),
        method=method,
        words=WORDS[experiment.kind],
        notes=(*_notes(experiment, claims), *(cut if len(figures) > MOST_FIGURES else ())),
        warnings=finding.warnings,
        cards=cards,
        figures=figures[:MOST_FIGURES],
        provenance=provenance(experiment, records),
        runs=runs_table(records),
        finding={**finding.to_dict(), "paper": paper} if claims else finding.to_dict(),
        claims=tuple(claims),
    )


def _subject(experiment: Experiment) -> str:
    """What was run: a figure by its label, because its title is the paper's claim rather than the result."""
    if experiment.label is None:
        return experiment.title
    return ", size ".join(filter(None, (f"{experiment.label} of the paper", experiment.size)))


_COMPARED = {"agrees": "agree with it", "differs": "differ from it", "cannot tell": "cannot tell"}


def _notes(experiment: Experiment, claims: Sequence[Judgement]) -> tuple[str, ...]:
    notes = []
    if experiment.label is not None:
        seeds = sorted({len(experiment.seeds_of(panel)) for panel in experiment.panels})
        said = count(seeds[-1], "seed") if len(seeds) == 1 else f"{seeds[0]} to {count(seeds[-1], 'seed')}"
        runs = f" These runs ({said}) {_COMPARED[overall(claims)]}." if claims else ""
        notes.append(f"The paper's claim: {experiment.title}.{runs}")
    return (*notes, f"Setting: {experiment.note}.") if experiment.note else tuple(notes)


def provenance(experiment: Experiment | None, records: Sequence[RunRecord]) -> Provenance:
    """Facts that all runs share, or the different values that they have."""
    seeds = sorted({record.spec.seed for record in records if record.spec is not None})
    versions = sorted({record.numerics for record in records if record.spec is not None})
    seconds = [float(record.outcome["seconds"]) for record in records if "seconds" in record.outcome]
    facts = [
        ("runs", f"{len(records)}, of which {sum(record.ended for record in records)} have a result"),
        ("seeds", ", ".join(map(str, seeds)) or "none"),
        (
            "compute time",
            f"{duration(sum(seconds))} in all, {duration(max(seconds))} the longest run" if seconds else "",
        ),
        ("versions", _different(records, "versions", lambda known: ", ".join(f"{k} {v}" for k, v in known.items()))),
        ("numerics", "" if versions == [NUMERICS_VERSION] else ", ".join(f"version {number}" for number in versions)),
        ("hardware", _different(records, "hardware", _machine)),
        ("note", "; ".join(notes_on(records))),
    ]
    if experiment is None:
        specs = [(record.path.name, record.spec.to_yaml()) for record in records[:1] if record.spec is not None]
    else:
        specs = [(panel.name, panel.base.to_yaml()) for panel in experiment.panels]
        facts.insert(0, ("setup", experiment.asked()))
    return Provenance(tuple((name, value) for name, value in facts if value), tuple(specs))


def _different(records: Sequence[RunRecord], field: str, say: Callable[[dict[str, object]], str]) -> str:
    said = [say(record.outcome[field]) for record in records if isinstance(record.outcome.get(field), dict)]
    return "; ".join(dict.fromkeys(said))


def _machine(hardware: dict[str, object]) -> str:
    parts = [str(hardware.get("device")), *(_count(hardware.get(f"{noun}s"), noun) for noun in ("core", "thread"))]
    return f"{hardware.get('name')} ({', '.join(parts)})"


def _count(number: object, noun: str) -> str:
    return count(number, noun) if isinstance(number, int) else f"{noun}s unknown"


def runs_table(records: Sequence[RunRecord]) -> Table:
    """Every run with its outcome, in any state, similar runs together; those that cannot be read come last."""
    return Table("runs", "every run", [_row(record) for record in loose_runs.in_order(records)])


def _row(record: RunRecord) -> Row:
    spec, final = record.spec, record.final
    return {
        "process": None if spec is None else spec.method,
        "batch_size": None if spec is None else spec.batch_size,
        "test_accuracy": final.get("test_accuracy"),
        "test_loss": final.get("test_loss"),
        "train_loss": final.get("train_loss"),
        "state": record.state,
        "problem": record.problem,
        "seed": None if spec is None else spec.seed,
        "lr": None if spec is None else spec.lr,
        "step": record.step,
        "steps": record.steps,
        "readings": len(record.readings) if record.state != "broken" else None,
        "seconds": record.outcome.get("seconds"),
        "run": record.path.name,
    }
