"""Every setting of a figure beside what the paper says, with the reason of every deviation.

The paper's settings are those of the paper size (`tests/paper/figures/test_paper_numbers.py` types them in again from
its captions), but for what the paper does otherwise or does not say. A reason is a code, and holds only if the values
are as it says: a smaller network has to be smaller. A deviation that no reason covers has none, and tests refuse it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel

from svag.lab.experiments.experiment import Experiment, Panel, Size
from svag.lab.experiments.ladder import LadderPanel
from svag.lab.specs.fields import step_of
from svag.lab.specs.parts import FACTS, NoProbe
from svag.lab.specs.schedules import Cosine, Schedule, Steps, Triangle
from svag.lab.specs.spec import RunSpec
from svag.paper.figures import LABELS, figure
from svag.paper.figures.ladder import paper_batches

EMBEDDED = "fashion-small"


class _Code(StrEnum):
    """A code with its words, `said`."""

    said: str

    def __new__(cls, code: str, said: str) -> Self:
        member = str.__new__(cls, code)
        member._value_, member.said = code, said
        return member


class Deviation(_Code):
    """Why a setting is not the paper's."""

    EMBEDDED_DATA = "embedded_data", "embedded data, no download"
    FEWER_IMAGES = "fewer_images", "fewer images"
    SMALLER_IMAGES = "smaller_images", "smaller images"
    SMALLER_NETWORK = "smaller_network", "smaller network"
    NO_PLATEAU = "no_plateau", "VGG without norm stays on its first plateau for thousands of steps"
    CUT_BATCHES = "cut_batches", "SVAG and probe cut batches, which BatchNorm forbids"
    SMALLER_BATCH = "smaller_batch", "smaller batches for fewer images"
    FEWER_RUNGS = "fewer_rungs", "fewer batch sizes"
    OTHER_RATE = "other_rate", "rate suits this network and batch"
    SOONER_EQUILIBRIUM = "sooner_equilibrium", "weights settle within the budget"
    FEWER_EPOCHS = "fewer_epochs", "fewer epochs"
    SHORTER_SCHEDULE = "shorter_schedule", "placed for the shorter run"
    GENTLER_DECAY = "gentler_decay", "weights settle sooner after a smaller fall, or none"
    INDEPENDENT_BATCHES = "independent_batches", "theorems need independent batches"
    FEWER_REFINEMENTS = "fewer_refinements", "fewer ell"
    CHEAPER_SVAG = "cheaper_svag", "cut batches halve the cost of SVAG"
    CHEAPER_READINGS = "cheaper_readings", "cheaper readings"
    MORE = "more", "more than the paper runs"
    FLAG = "flag", "changed by a flag"


class PaperSource(_Code):
    """Where the paper's setting comes from."""

    TEXT = "text", ""
    CODE = "code", " (code)"
    SILENT = "silent", "not stated"


LEGEND = "(code): from the paper's figures or released configurations, not its text."
PASSES = "Captions about SVAG count passes over batches of 2B: 320 are 160 epochs."


@dataclass(frozen=True)
class FigureSetting:
    """One setting of one panel.

    Attributes:
        panel: which one.
        name: the field, as in a spec and in flags.
        paper: what the paper uses; None where it does not say.
        source: where that comes from.
        here: what is used here.
        reason: why that differs; None where it does not, and where nothing explains it.
    """

    panel: str
    name: str
    paper: str | None
    source: PaperSource
    here: str
    reason: Deviation | None = None

    @property
    def differs(self) -> bool:
        """Whether the paper says something else."""
        return self.paper is not None and self.paper != self.here

    def row(self) -> tuple[str, str, str, str]:
        """Name, what the paper says, what is used here, and why, for a table."""
        said = (self.paper or "") + self.source.said
        same = self.paper is not None and not self.differs
        return self.name, said, "same" if same else self.here, self.reason.said if self.reason else ""

    def to_dict(self) -> dict[str, object]:
        """JSON-ready fields."""
        return {**asdict(self), "differs": self.differs}


def settings(
    label: str, size: Size, edits: Mapping[str, Any] | None = None, seeds: int | None = None
) -> list[FigureSetting]:
    """Every setting of every panel of a figure at a size, beside the paper's.

    >>> [one.row() for one in settings("fig:app_lsr_svhn", "small") if one.name in ("model.arch", "c2", "seeds")]
    [('model.arch', 'preresnet32', 'preresnet8', 'smaller network'), ('seeds', 'not stated', '4', ''),
     ('c2', '2.0', 'same', '')]

    Args:
        label: of a figure that trains networks.
        size: smoke, small or paper.
        edits: fields that are replaced, as by flags.
        seeds: how many, if other than the figure's.
    """
    experiment = figure(label, size).edited(edits or {}, seeds)
    own = figure(label, "paper")
    rows = []
    for number, panel in enumerate(experiment.panels):
        theirs = _paper_panel(own, experiment, number)
        paper, here = _values(own, theirs), _values(experiment, panel)
        for name, value in here.items():
            if not (_empty(value) and _empty(paper.get(name, ""))):
                source, said = _said(label, name, paper.get(name, "none"))
                made = FigureSetting(panel.name, name, said, source, value)
                if made.differs:
                    flag = any(name == path or path.startswith(f"{name}.") for path in edits or {})
                    reason = Deviation.FLAG if flag else _reason(name, theirs, panel)
                    made = FigureSetting(panel.name, name, said, source, value, reason)
                rows.append(made)
    return rows


def _paper_panel(paper: Experiment, here: Experiment, number: int) -> Panel:
    """The paper's panel that one of ours stands for: by its place, or by its network where places say nothing.

    They do where we have fewer panels, and where ours are the paper's networks in another order.
    """
    ours, theirs = ([_network(panel) for panel in experiment.panels] for experiment in (here, paper))
    if len(ours) == len(theirs) and not (len(set(ours)) == len(ours) and set(ours) == set(theirs)):
        return paper.panels[number]

    def apart(network: tuple[str, str]) -> tuple[bool, bool]:
        return network[0] != ours[number][0], network[1] != ours[number][1]

    return paper.panels[theirs.index(min(theirs, key=apart))]


def _network(panel: Panel) -> tuple[str, str]:
    return _kind(panel.base.model.arch), panel.base.model.norm


def _empty(value: str) -> bool:
    return value in {"", "none", "no"}


# What the paper says

# where it has no experiment; fields that it does not print; those of them that its figures or released code show
_NO_EXPERIMENT = {"eq:noise_decomposition"}
_SILENT = {
    "seeds",
    "fewer",
    "margin",
    "loss_margin",
    "evaluate.every",
    "evaluate.train",
    "probe.readings",
    "probe.every",
    "probe.parts",
}
_LADDERS, _NGD = ({label for label, kind in LABELS.items() if kind == family} for family in ("ladder", "ngd"))
_SCHEDULES = {"fig:app_svag_triangle", "fig:app_svag_cosine"}
_FROM_CODE: dict[str, set[str]] = {
    "weight_decay": {"fig:svag_accs"} | _SCHEDULES | _LADDERS | _NGD,
    "data.augment": {"fig:svag_accs", "fig:app_svag_sampling", "fig:app_svag_svhn"} | _SCHEDULES | _LADDERS,
    "batch_size": {"fig:svag_accs"},
    "lr": {"fig:svag_accs"},
    "model.arch": {"fig:ngd_sgd_accs"},
    "model.width": {"fig:ngd_sgd_accs"},
    "batch_sizes": _LADDERS,
}
_ALWAYS_FROM_CODE = {"ells", "optimizer.momentum", "optimizer.nesterov"}


def _said(label: str, name: str, value: str) -> tuple[PaperSource, str | None]:
    if label in _NO_EXPERIMENT or (name in _SILENT and not (name == "evaluate.every" and label in _NGD)):
        return PaperSource.SILENT, None
    if name == "budget" and label in _NGD:  # only the step of the decay is printed
        return PaperSource.SILENT, None
    if name.startswith("probe") and label not in _LADDERS:
        return PaperSource.TEXT, "none"
    if name == "sampling" and label != "fig:app_svag_sampling":
        return PaperSource.TEXT, "shuffle"
    if name == "arms" and label == "fig:ngd_sgd_b500":
        return PaperSource.TEXT, "SGD, NGD"
    by_code = (name in _ALWAYS_FROM_CODE and not _empty(value)) or label in _FROM_CODE.get(name, ())
    return PaperSource.CODE if by_code else PaperSource.TEXT, value


# What is used

_NOT_SETTINGS = {"title", "label", "size", "note", "kind", "panels", "name", "base", "plan", "plans", "seed", "process"}


def _values(experiment: Experiment, panel: Panel) -> dict[str, str]:
    """Every setting of a panel in words."""
    base, ladder = panel.base, isinstance(panel, LadderPanel)
    values = {name: text for name, text in _flat("", base) if name.split(".")[0] not in _NOT_SETTINGS}
    values |= {"data.subset": f"{base.data.examples:,}", "data.pool": f"{_pixels(base)}×{_pixels(base)}"}
    steps = base.steps()
    passes = steps * base.batch_size / (base.data.examples or 1) if isinstance(base.budget, int) else base.budget.epochs
    epochs = f"{passes:.3g} epochs"
    values["budget"] = epochs if ladder else f"{steps:,} steps ({epochs})"
    values["schedule"] = _schedule(base.schedule)
    if ladder:
        del values["batch_size"]
        values["lr"] = f"{base.lr * 128 / base.batch_size:.6g} at B = 128"
    if window := getattr(base.probe, "window", None):
        values["probe.window"] = "–".join(f"{100 * step_of(when, steps) / steps:.0f}%" for when in window)
    if base.evaluate.every and not isinstance(base.evaluate.every, float):
        values["evaluate.every"] = f"{base.evaluate.every} steps"
    values["seeds"] = str(len(experiment.seeds_of(panel)))
    values["arms"] = ", ".join(dict.fromkeys(arm.kind.upper() for arm, _ in panel.arms()))
    more = dict(_fields(panel)) | dict(_fields(experiment))
    if isinstance(panel, LadderPanel) and panel.probe_batches:  # instead of those of the base
        by_rule = panel.probe_batches == tuple(map(paper_batches, panel.batch_sizes))
        values["probe.batches"] = "max(200, 50000/B)" if by_rule else more["probe_batches"]
    more.pop("probe_batches", None)
    return values | {name: text for name, text in more.items() if name not in {*_NOT_SETTINGS, "seeds"}}


def _flat(path: str, value: object) -> Iterator[tuple[str, str]]:
    """The fields of a spec by their paths; a schedule, a budget and an augmentation are one setting each."""
    whole = path in {"schedule", "budget", "data.augment"}
    if isinstance(value, BaseModel) and not whole:
        for name in type(value).model_fields:
            yield from _flat(f"{path}.{name}".lstrip("."), getattr(value, name))
    else:
        yield path, _text(value)


def _fields(described: Experiment | Panel) -> Iterator[tuple[str, str]]:
    for name in type(described).model_fields:
        yield name, _text(getattr(described, name))


def _text(value: object) -> str:
    match value:
        case None | ():
            return "none"
        case bool():
            return "yes" if value else "no"
        case tuple():
            return ", ".join(map(str, value))
        case BaseModel():
            return ", ".join(f"{name} {_text(part)}" for name, part in value)
    return str(value).replace("_", " ")


def _pixels(spec: RunSpec) -> int:
    return FACTS[spec.data.name].pixels // getattr(spec.data, "pool", 1)


def _schedule(schedule: Schedule) -> str:
    match schedule:
        case Steps():
            at = (f"step {when:,}" if isinstance(when, int) else f"{100 * when:.0f}%" for when in schedule.at)
            return f"×{schedule.factor:g} at {', '.join(at)}"
        case Cosine():
            return f"cosine to ×{schedule.floor:g}"
        case Triangle():
            return f"triangle, peaks {', '.join(f'{peak:g}' for peak in schedule.peaks)}"
    return "constant"


# Why they differ

_Holds = Callable[[Panel, Panel], bool]


def _smaller(value: Callable[[RunSpec], float]) -> _Holds:
    return lambda paper, here: value(here.base) < value(paper.base)


def _among(name: str) -> _Holds:
    """Whether the values are some of the paper's."""
    return lambda paper, here: set(getattr(here, name)) <= set(getattr(paper, name))


def _unread(paper: Panel, here: Panel) -> bool:
    return isinstance(paper.base.probe, NoProbe)


def _other_network(paper: Panel, here: Panel) -> bool:
    return (paper.base.model, paper.base.batch_size) != (here.base.model, here.base.batch_size)


def _all_arms(paper: Panel, here: Panel) -> bool:
    return {arm for arm, _ in paper.arms()} <= {arm for arm, _ in here.arms()}


def _all_kinds(paper: Panel, here: Panel) -> bool:
    """As `_all_arms`, but which values of l the arms have is another setting."""
    return {arm.kind for arm, _ in paper.arms()} <= {arm.kind for arm, _ in here.arms()}


def _kind(arch: str) -> str:
    return re.sub(r"\d+", "", arch)


def _depth(spec: RunSpec) -> int:
    return int(re.sub(r"\D+", "", spec.model.arch) or 0)


def _perceptron(paper: Panel, here: Panel) -> bool:
    return _network(paper) == ("vgg", "none") and here.base.model.arch == "mlp"


def _fall(spec: RunSpec) -> float:
    """By how much the learning rate falls at a step of its schedule."""
    return 1 / spec.schedule.factor if isinstance(spec.schedule, Steps) else 1.0


def _pad(spec: RunSpec) -> int:
    return spec.data.augment.pad if spec.data.augment else 0


_SHORTER = _smaller(lambda spec: spec.steps() * spec.batch_size)
_PROBED = (Deviation.MORE, _unread), (Deviation.CHEAPER_READINGS, _SHORTER)

# the first reason that holds is given
_REASONS: dict[str, tuple[tuple[Deviation, _Holds], ...]] = {
    "data.name": ((Deviation.EMBEDDED_DATA, lambda _, here: here.base.data.name == EMBEDDED),),
    "data.subset": ((Deviation.FEWER_IMAGES, _smaller(lambda spec: spec.data.examples or 0)),),
    "data.pool": ((Deviation.SMALLER_IMAGES, _smaller(_pixels)),),
    "data.augment": ((Deviation.SMALLER_IMAGES, _smaller(_pad)),),
    "model.arch": ((Deviation.NO_PLATEAU, _perceptron), (Deviation.SMALLER_NETWORK, _smaller(_depth))),
    "model.width": ((Deviation.SMALLER_NETWORK, _smaller(lambda spec: float(spec.model.width))),),
    "model.norm": ((Deviation.CUT_BATCHES, lambda _, here: here.base.model.norm == "group"),),
    "model.init_scale": ((Deviation.SOONER_EQUILIBRIUM, lambda _, here: here.base.model.scale_invariant),),
    "batch_size": ((Deviation.SMALLER_BATCH, _smaller(lambda spec: spec.batch_size)),),
    "lr": ((Deviation.OTHER_RATE, _other_network),),
    "weight_decay": ((Deviation.SOONER_EQUILIBRIUM, _smaller(lambda spec: -spec.weight_decay)),),
    "budget": ((Deviation.FEWER_EPOCHS, _SHORTER),),
    "schedule": ((Deviation.GENTLER_DECAY, _smaller(_fall)), (Deviation.SHORTER_SCHEDULE, _SHORTER)),
    "sampling": ((Deviation.INDEPENDENT_BATCHES, lambda _, here: here.base.sampling != "shuffle"),),
    "evaluate.every": ((Deviation.SHORTER_SCHEDULE, _SHORTER),),
    "probe.kind": _PROBED,
    "probe.window": ((Deviation.MORE, _unread), (Deviation.SHORTER_SCHEDULE, _SHORTER)),
    "probe.batches": _PROBED,
    "batch_sizes": ((Deviation.FEWER_RUNGS, _among("batch_sizes")),),
    "ells": ((Deviation.FEWER_REFINEMENTS, _among("ells")), (Deviation.MORE, _all_arms)),
    "split": ((Deviation.CHEAPER_SVAG, lambda _, here: getattr(here, "split", 1) > 1),),
    "refined": ((Deviation.MORE, _all_arms),),
    "arms": ((Deviation.MORE, _all_kinds),),
    "glsr": ((Deviation.MORE, _all_kinds),),
}


def _reason(name: str, paper: Panel, here: Panel) -> Deviation | None:
    return next((reason for reason, holds in _REASONS.get(name, ()) if holds(paper, here)), None)
