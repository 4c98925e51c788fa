"""The report of a folder, with the paper's claims next to the findings; also for folders of ladders."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

from svag.lab.experiments import EXPERIMENT, load_experiment
from svag.lab.experiments.ladder import Ladder
from svag.lab.experiments.wording import Answer, count
from svag.lab.records.record import load_records
from svag.lab.report import write
from svag.lab.report.content import Card, Report
from svag.lab.report.figures import WORDS, ladder_page
from svag.lab.report.write import provenance, runs_table
from svag.paper.atlas import answer as atlas_answer
from svag.paper.atlas.atlas import Atlas, find_atlas, is_atlas
from svag.paper.charts.sections import ATLAS_WORDS, atlas_figures
from svag.paper.figures import judged

QUESTION = "Is the price list right?"


def build_report(path: str | Path) -> Report:
    """Read a folder and report on it, as `svag.lab.report.write.build_report` does; or on a folder of ladders.

    Args:
        path: a folder with `experiment.json`, a folder of ladders, or any folder that holds run directories, or one of
            these itself.
    """
    root = Path(path)
    if not root.is_dir() or not is_atlas(root):
        return write.build_report(root, judged)
    atlas = find_atlas(root)
    return atlas_report(atlas) if atlas.ladders else ladders_report(root)


def atlas_report(atlas: Atlas) -> Report:
    """The report of a folder of ladders by the linear or the square-root rule, pair by pair."""
    return Report(
        title=QUESTION,
        subject=f"Atlas of {count(len(atlas.ladders), 'ladder')} in {atlas.name}",
        method="For every two batch sizes of a ladder: what the run at the smaller one predicted for the larger one, "
        "and what was measured there.",
        words=ATLAS_WORDS,
        warnings=tuple(f"{sentence.rstrip('.')}." for sentence in atlas.left_out),
        cards=tuple(map(Card, atlas_answer.answers(atlas))),
        figures=tuple(atlas_figures(atlas)),
        provenance=provenance(None, atlas.records),
        runs=runs_table(atlas.records),
        finding=atlas_answer.to_dict(atlas),
    )


def ladders_report(root: Path) -> Report:
    """The report of a folder of ladders that do not fit into an atlas, such as those by the gain rule."""
    cards, figures, records, findings, warnings = [], [], [], {}, []
    for folder in sorted(file.parent for file in root.glob(f"*/{EXPERIMENT}")):
        name, runs = folder.name, load_records(folder)
        try:
            experiment = load_experiment(folder)
            finding = experiment.find(runs) if isinstance(experiment, Ladder) else None
        except ValueError as error:  # a SpecError is one
            warnings.append(f"{name} cannot be used: {error}.")
            continue
        if finding is None:
            continue
        shown, drawn = ladder_page(finding, runs)
        for card in shown:
            prices = None if card.prices is None else replace(card.prices, name=f"{name}-{card.prices.name}")
            cards.append(Card(replace(card.answer, panel=name), prices))
        # the first figure of a ladder is the data that it needed
        figures += [replace(figure, name=f"{name}-{figure.name}", panel=name) for figure in islice(drawn, 1)]
        records += runs
        findings[name] = finding.to_dict()
    priced = [card.prices for card in cards if card.prices is not None]
    batches, outside = sum(len(table.rows) - 1 for table in priced), sum(len(table.warned) for table in priced)
    headline = f"The measured price was outside its range on {outside} of {batches} larger batches."
    summary = Card(Answer(f"all {count(len(findings), 'ladder')}", headline, "note", (), ""))
    return Report(
        title=QUESTION,
        subject=f"{count(len(findings), 'ladder')} in {root.resolve().name}",
        method="For every ladder: what its smallest batch size predicted for the larger ones, and what they took.",
        words=WORDS["ladder"],
        warnings=tuple(warnings),
        cards=(summary, *cards),
        figures=tuple(figures),
        provenance=provenance(None, records),
        runs=runs_table(records),
        finding={"kind": "ladders", "ladders": findings},
    )
