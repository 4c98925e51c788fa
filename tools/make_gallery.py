"""Writes docs/figures.md and its pictures from the records in results/; the prose outside of the markers stays.

    python tools/make_gallery.py

A part stands between `<!-- NAME -->` and `<!-- end of NAME -->`. A test compares every number with the records.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from statistics import mean
from typing import Any

from svag.lab.experiments import load_experiment
from svag.lab.experiments.arms import matched
from svag.lab.experiments.experiment import Experiment
from svag.lab.experiments.ladder import Ladder
from svag.lab.experiments.ladder_finding import find_ladder
from svag.lab.experiments.wording import Judgement, count, overall
from svag.lab.records.record import RunHeader, RunRecord, load_headers, load_records
from svag.lab.report.content import Figure
from svag.lab.report.save import save
from svag.paper.charts.sections import gallery_figures, side_by_side, tail_figure, theory_figures
from svag.paper.figures import LABELS, THEORY, UNVERIFIED, figure, folder_name, judged, kept_records, printed_beside
from svag.paper.figures.ladder import ROWS
from svag.paper.illustrations.heavy_tails import TailMoments

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGE = ROOT / "docs" / "figures.md"
PICTURES = ROOT / "docs" / "pictures" / "figures"
NOT_RUN, TAILS = "not run yet", "sec:app_heayvtailed"


@dataclass(frozen=True)
class Entry:
    """A figure with its records, if there are any.

    Attributes:
        experiment: of the figure at the small size.
        records: one a run; none as long as a run is missing.
        claims: those of the paper beside what the records say.
        figures: what is drawn of them.
        printed: numbers that the paper prints: what of, the paper's, and ours.
    """

    experiment: Experiment
    records: Sequence[RunRecord]
    claims: Sequence[Judgement]
    figures: Sequence[Figure]
    printed: Sequence[tuple[str, float, float]] = ()

    @classmethod
    def of(cls, label: str, headers: Sequence[RunHeader]) -> "Entry":
        """What the records say about a label; `headers` are those of all runs in the results."""
        experiment = figure(label, "small")
        records = kept_records(experiment, RESULTS, headers)
        if not records:
            return cls(experiment, (), (), ())
        finding = experiment.find(records)
        drawn = gallery_figures(experiment.kind, finding)
        return cls(experiment, records, judged(experiment, finding), drawn, printed_beside(experiment, finding))

    @property
    def label(self) -> str:
        """Of the paper."""
        return str(self.experiment.label)

    @property
    def verdict(self) -> str:
        """What all claims come to."""
        return overall(self.claims) if self.records else NOT_RUN

    @property
    def computed(self) -> str:
        """How long all runs took together, on one core each."""
        return _duration(sum(float(record.outcome.get("seconds", 0.0)) for record in self.records))

    def said(self, claim: Judgement) -> str:
        """What the runs of a claim show; of an open one also what would decide it, and in how much time on one core."""
        if claim.remedy is None or not claim.remedy.runs:
            return claim.said
        seconds = {matched(one.spec): one.outcome.get("seconds", 0.0) for one in self.records if one.spec is not None}
        arms: dict[str, list[float]] = {}
        for slot, spec in self.experiment.slots().items():
            if self.experiment.panels[slot.panel].name == claim.panel:
                arms.setdefault(str(slot.arm), []).append(seconds[matched(spec)])
        means = [mean(own) for arm, own in arms.items() if not claim.remedy.arms or arm in claim.remedy.arms]
        return f"{claim.said}, about {_duration(claim.remedy.runs * mean(means))}"

    @property
    def picture(self) -> Path:
        """Where it is drawn."""
        return PICTURES / f"{folder_name(self.label)}.svg"

    @property
    def folders(self) -> list[str]:
        """Where the records are, from the root of the project."""
        return sorted({str(record.path.parent.parent.relative_to(ROOT)) for record in self.records})


def entries() -> tuple[Entry, ...]:
    """Every label that networks are trained for, in the order of the families."""
    headers = load_headers(RESULTS)
    return tuple(Entry.of(label, headers) for label, family in LABELS.items() if family != "theory")


def summary(gallery: Sequence[Entry]) -> Iterator[str]:
    """All figures in a table, and how many agree."""
    yield f"Of {len(gallery)}: {_counted(gallery)}."
    claims = [claim for one in gallery for claim in one.claims]
    if claims:
        yield ""
        yield (
            f"Of {sum(claim.counted for claim in claims)} claims: {_counted([one for one in claims if one.counted])}. "
            f"Counted apart: that training statistics drift apart by the predicted batch size, which is algebra at "
            f"equilibrium ({_counted([one for one in claims if not one.counted])})."
        )
    yield ""
    yield from _head("figure", "the paper's claim", "verdict", "claims", "runs", "computed")
    for one in gallery:
        link = f"[`{one.label}`](#{_anchor(one.label)})"
        counted = [claim for claim in one.claims if claim.counted]
        cells = (_counted(counted), len(one.records), one.computed) if one.records else ("", "", "")
        yield _row(link, one.experiment.title, _bold(one.verdict), *cells)


def _counted(ones: Sequence[Entry] | Sequence[Judgement]) -> str:
    """How many agree, differ and so on."""
    counts = Counter(one.verdict for one in ones)
    return ", ".join(
        f"{counts[name]} {name if counts[name] == 1 else word}" for name, word in _COUNTED.items() if counts[name]
    )


_COUNTED = {"agrees": "agree", "differs": "differ", "cannot tell": "cannot tell", NOT_RUN: "not run yet"}


def figures(gallery: Sequence[Entry]) -> Iterator[str]:
    """A section for every figure."""
    for one in gallery:
        yield from _section(one)


def _section(one: Entry) -> Iterator[str]:
    yield f"### {one.label}"
    yield ""
    yield f"{one.experiment.title}: {_bold(one.verdict)}."
    yield ""
    if one.records:
        yield _picture(one.experiment.title, one.picture, one.figures)
        yield ""
        yield from _head("panel", "the paper says", "our runs say", "seeds", "verdict")
        for claim in one.claims:
            seeds = _seeds(one.experiment, claim.panel)
            yield _row(claim.panel, claim.claim, one.said(claim), seeds, _verdict(claim))
        yield ""
    if one.printed:
        both = ", ".join(f"{arm} {100 * paper:.1f}% ({100 * ours:.1f}%)" for arm, paper, ours in one.printed)
        yield f"Best test accuracy along the run in the paper, and in ours in brackets: {both}."
        yield ""
    yield f"Setting: {one.experiment.note}."
    if one.records:
        where = ", ".join(f"`{folder}`" for folder in one.folders)
        yield f"{count(len(one.records), 'run')}, {one.computed} of computing in all; records in {where}."
    yield ""


def _picture(words: str, file: Path, drawn: Sequence[Figure]) -> str:
    return f"![{words}](pictures/figures/{file.name}) <!-- drawn from {digest(drawn)} -->"


def _seeds(experiment: Experiment, name: str) -> str:
    """How many seeds each arm of a panel has; of a claim about all panels the fewest."""
    seeds = {panel.name: len(experiment.seeds_of(panel)) for panel in experiment.panels}
    return str(seeds.get(name, min(seeds.values())))


# Ladders that are no panel of a figure at its small size: recorded before it, or on a subset of CIFAR-10.
LADDERS = {
    "atlas/fashion-ladder": "Fashion-MNIST at 14×14, λ = 0.001, 60 epochs",
    "atlas/cifar10-ladder": "10,000 images of CIFAR-10 at 16×16, λ = 0.002, 40 epochs",
    "atlas/cifar10_steps": "10,000 images of CIFAR-10 at 16×16, λ = 0.004, 12 epochs",
}


def ladders(gallery: Sequence[Entry]) -> Iterator[str]:
    """The claims of fig:lsr_acc_gnr on other ladders of the same method; the gallery is not needed for it."""
    yield from _head("records", "setting", "the paper says", "our runs say", "lowest error", "seeds", "verdict")
    (row,) = (one for one in ROWS if one.label == "fig:lsr_acc_gnr")
    for name, said in LADDERS.items():
        experiment = load_experiment(RESULTS / name)
        assert isinstance(experiment, Ladder)
        finding = find_ladder(experiment, load_records(RESULTS / name))
        lowest = f"{min(rung.error for rung in finding.panels[0].rungs):.1%}"
        for claim in row.judged(finding, "small"):
            cells = (claim.claim, claim.said, lowest, len(experiment.seeds), _verdict(claim))
            yield _row(f"`results/{name}`", said, *cells)


def theory(gallery: Sequence[Entry]) -> Iterator[str]:
    """What the paper proves or draws without training; the gallery is not needed for it."""
    yield from _head("label", "says", "shown by")
    for label, said in THEORY.items():
        command = "svag reproduce" if label in UNVERIFIED else "svag verify"
        yield _row(f"`{label}`", said, f"`{command} {label}`")
    for label in DRAWN:
        for one in _exact(label):
            yield ""
            yield _picture(THEORY[label], PICTURES / f"{folder_name(label)}.svg", [one])
            yield ""
            yield f"*`{label}`: {' '.join(one.sentence.partition('Next: ')[0].split())}*"


@cache
def _exact(label: str) -> tuple[Figure, ...]:
    """Drawn once: sampling paths takes seconds."""
    return (tail_figure(_tails()),) if label == TAILS else theory_figures(label)


def _tails() -> TailMoments:
    """What was found of a network's gradients, whose checkpoints are not kept."""
    kept = RESULTS / "figures" / folder_name(TAILS) / "finding.json"
    return TailMoments.from_dict(json.loads(kept.read_text(encoding="utf-8")))


DRAWN = tuple(label for label in THEORY if label.startswith("fig:") or label == TAILS)
PARTS: dict[str, Callable[[Sequence[Entry]], Iterator[str]]] = {
    one.__name__: one for one in (summary, figures, ladders, theory)
}


def digest(drawn: Sequence[Figure]) -> str:
    """A hash of the numbers of pictures, to four digits: a picture of other numbers is an old one."""
    rows = [[one.title, [sorted(_rounded(row)) for table in one.tables for row in table.rows]] for one in drawn]
    return sha256(repr(rows).encode()).hexdigest()[:12]


def _rounded(row: dict[str, Any]) -> list[str]:
    """To nine digits first, so that ties round alike: since Python 3.12 `sum` of floats has other last bits."""
    return [
        f"{name}={float(f'{value:.9g}'):.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in row.items()
    ]


def _anchor(label: str) -> str:
    """What both the site and GitHub make of a heading."""
    return label.replace(":", "")


def _bold(verdict: str) -> str:
    return verdict if verdict == NOT_RUN else f"**{verdict}**"


def _verdict(claim: Judgement) -> str:
    return _bold(claim.verdict) if claim.counted else f"{claim.verdict} (counted apart)"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield "|---" * len(names) + "|"


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell).replace('|', '∣') for cell in cells)} |"


def rewritten(page: str, gallery: Sequence[Entry]) -> str:
    """The page with every part written again."""
    for name, part in PARTS.items():
        start, stop = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if page.count(start) != 1 or page.count(stop) != 1:
            raise ValueError(f"the page must have {start} and {stop} once")
        before, after = page.partition(start)[0], page.partition(stop)[2]
        page = "\n".join([before + start, "", "\n".join(part(gallery)).rstrip("\n"), "", stop + after])
    return page


def drawn_in(page: str) -> dict[str, str]:
    """The pictures of a page, each with the hash of its numbers."""
    return dict(re.findall(r"\]\(pictures/figures/([\w.-]+)\) <!-- drawn from (\w+) -->", page))


def draw(gallery: Sequence[Entry]) -> None:
    """Draw the figures that have records, and those of the theory."""
    for one in gallery:
        if one.records:
            save(side_by_side(one.figures), one.picture)
    for label in DRAWN:
        for drawn in _exact(label):
            save(drawn.chart, PICTURES / f"{folder_name(label)}.svg")


if __name__ == "__main__":
    read = entries()
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), read), encoding="utf-8")
    draw(read)
