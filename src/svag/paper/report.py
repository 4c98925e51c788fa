"""The report of a folder, by those who know the paper: its claims beside the findings, and folders of ladders."""

from collections.abc import Sequence
from pathlib import Path

from svag.lab.experiments.experiment import Experiment
from svag.lab.experiments.wording import count
from svag.lab.records.record import RunRecord
from svag.lab.report import build
from svag.lab.report.build import Written, provenance, runs_table, write_files
from svag.lab.report.content import Report
from svag.paper.atlas import answer as atlas_answer
from svag.paper.atlas.atlas import Atlas, find_atlas, is_atlas
from svag.paper.charts.sections import ATLAS_WORDS, atlas_figures
from svag.paper.figures import judged


def build_report(path: str | Path) -> Report:
    """Read a folder and say what it means, as `svag.lab.report.build.build_report` does, or a folder of ladders.

    Args:
        path: a folder with `experiment.json`, a folder of ladders, or any folder that holds run directories, or one of
            these itself.
    """
    root = Path(path)
    return atlas_report(find_atlas(root)) if root.is_dir() and is_atlas(root) else build.build_report(root, judged)


def report_of(experiment: Experiment, records: Sequence[RunRecord]) -> Report:
    """The report of an experiment whose records are at hand, with what the paper claims of it."""
    return build.report_of(experiment, records, judged)


def write_report(folder: str | Path, out: str | Path | None = None, formats: Sequence[str] = ("png", "svg")) -> Written:
    """Write the report of a folder into files, as `svag.lab.write_report` does."""
    return write_files(build_report(folder), out or Path(folder) / "report", formats)


def atlas_report(found: Atlas) -> Report:
    """The report of a folder of ladders."""
    return Report(
        title="Is the price list right?",
        subject=f"Atlas of {count(len(found.ladders), 'ladder')} in {found.name}",
        method="For every two batch sizes of a ladder: what the run at the smaller one predicted for the larger one, "
        "and what was measured there.",
        words=ATLAS_WORDS,
        notes=(),
        warnings=tuple(f"{one.rstrip('.')}." for one in found.left_out),
        answers=atlas_answer.answers(found),
        figures=tuple(atlas_figures(found)),
        provenance=provenance(None, found.records),
        runs=runs_table(found.records),
        finding=atlas_answer.to_dict(found),
    )
