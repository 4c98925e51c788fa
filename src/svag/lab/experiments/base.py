"""What every experiment is: a question about some SGD runs, and the plan of runs that answers it.

`Experiment.slots` is the only description of which runs belong to an experiment. Execution carries them out, findings
look their records up by it, and `from_specs` checks by it which experiment a folder of runs may be.

An experiment lives in a folder: `experiment.json` says what was asked, `runs/` holds one run directory per run.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from svag.lab.records.record import RunRecord
from svag.lab.records.storage import make_folder, replace_file
from svag.lab.specs.fields import RefusesInOneSentence, Seed, SpecError, refusal_inside, spec_error, visible
from svag.lab.specs.optimizers import TITLES
from svag.lab.specs.parts import EvaluateSpec, InRunProbe, NoProbe, Process, SgdSpec, SvagSpec
from svag.lab.specs.spec import RunSpec
from svag.lab.specs.text import TextSpec
from svag.theory.optimizers import MomentumLimit as MomentumLimit  # these are part of the signatures of the experiments
from svag.theory.optimizers import Rule as Rule

if TYPE_CHECKING:
    from svag.lab.experiments.evidence import Finding, PanelFinding

EXPERIMENT = "experiment.json"

Size = Literal["smoke", "small", "medium", "paper"]
Metric = Literal["test_accuracy", "test_loss", "train_loss", "test_bits_per_character"]
MARGIN = 0.01


_REFINED = {"svag": "SVAG ell", "glsr": "ladder parts", "sde": "Euler–Maruyama refine"}


@dataclass(frozen=True)
class ArmName:
    """One arm of a panel.

    >>> str(ArmName("svag", 4)), str(ArmName("sgd"))
    ('SVAG ell=4', 'SGD')
    >>> str(ArmName("sgd", optimizer="AdamW")), ArmName("sgd", optimizer="AdamW") == SGD
    ('AdamW', True)

    Attributes:
        kind: of the process.
        refinement: ell of SVAG, parts of the coupled ladder, Euler–Maruyama steps in one of SGD's, 1 of the others.
        optimizer: what the arm that is the optimizer itself is called; a panel has one optimizer, so that it tells no
            arms apart.
    """

    kind: Literal["sgd", "svag", "glsr", "ngd", "gd", "sde"]
    refinement: int = 1
    optimizer: str = field(default=TITLES["sgd"], compare=False)

    def __str__(self) -> str:
        if self.kind == "sgd":
            return self.optimizer
        if self.kind in _REFINED:
            return f"{_REFINED[self.kind]}={self.refinement}"
        return self.kind.upper()


SGD, NGD, GD = ArmName("sgd"), ArmName("ngd"), ArmName("gd")


def svag_arm(ell: int) -> ArmName:
    """The arm of SVAG(ell); ell = 1 is SGD."""
    return SGD if ell == 1 else ArmName("svag", ell)


@dataclass(frozen=True)
class Slot:
    """The place of one run in an experiment.

    Attributes:
        panel: number of the panel, counted from 0.
        arm: which arm of it.
        batch_size: B.
        seed: the seed.
    """

    panel: int
    arm: ArmName
    batch_size: int
    seed: int


def matched(spec: RunSpec) -> RunSpec:
    """What findings know a run by: its spec without probe and evaluation. SVAG that is SGD counts as SGD.

    >>> base = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    >>> probed = base.edited({"probe": {"kind": "in_run"}, "process": {"kind": "svag", "ell": 1}})
    >>> matched(probed) == matched(base), matched(base) == matched(base.edited({"seed": 1}))
    (True, False)
    """
    is_sgd = isinstance(spec.process, SvagSpec) and spec.process.is_sgd
    process = SgdSpec() if is_sgd else spec.process
    return spec.model_copy(update={"process": process, "probe": NoProbe(), "evaluate": EvaluateSpec()})


def setting(spec: RunSpec) -> RunSpec:
    """What the seeds of one setting share: `matched` without the seed."""
    return matched(spec).model_copy(update={"seed": 0})


class _Frozen(RefusesInOneSentence):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Panel(_Frozen, ABC):
    """What all panels have.

    Attributes:
        name: what the panel is called.
        base: the SGD run in question; of a ladder, the run at the reference batch size.
        seeds: of every arm of this panel; those of the experiment if empty.
    """

    name: str
    base: RunSpec
    seeds: tuple[Seed, ...] = ()

    @abstractmethod
    def arms(self) -> list[tuple[ArmName, RunSpec]]:
        """Every arm at every batch size, SGD first, with the seed of the base; what theory does not cover is refused.

        Order: increasing batch size, then increasing refinement.
        """

    @property
    def optimizer(self) -> str:
        """What people call the optimizer of its runs."""
        return self.base.optimizer.title

    @property
    def itself(self) -> ArmName:
        """The arm that is the optimizer itself: equal to `SGD`, whatever it is called."""
        return ArmName("sgd", optimizer=self.optimizer)

    def edited(self, edits: Mapping[str, Any]) -> Self:
        """The same panel with fields of its base replaced."""
        return self.model_copy(update={"base": self.base.edited(edits)})

    def smallest(self, edits: Mapping[str, Any]) -> Self:
        """The same panel with the fewest arms and steps that still go the whole way; the edits shrink the base."""
        return self.edited({"budget": 10, **edits}).model_copy(update={"seeds": ()})


class Experiment(_Frozen, ABC):
    """What all experiments have. A family adds its kind of panels, what it judges by, and how it finds its answer.

    Attributes:
        title: one line.
        label: the figure of the paper it reproduces.
        size: at which size.
        note: how it differs from the paper, for the caption.
        seeds: of every arm, unless a panel has its own.
        kind: name of the family.
        panels: the settings in question.
    """

    question: ClassVar[str]  # the title of its page, one sentence about {optimizer}
    method: ClassVar[str]  # how that is answered, about {optimizer} and its {rule}
    needs: ClassVar[str]  # the runs without which there is nothing to ask
    subject: ClassVar[str]  # what is run, in the title of an experiment about one base
    default_seeds: ClassVar[int]

    title: str
    label: str | None = None
    size: Size | None = None
    note: str = ""
    seeds: tuple[Seed, ...] = Field(min_length=1)
    kind: str
    panels: tuple[Panel, ...]

    @model_validator(mode="wrap")
    @classmethod
    def _in_one_sentence(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(value)
        except ValidationError as error:
            if (refusal := refusal_inside(error)) is not None:
                raise refusal from None
            found = spec_error(error, {})
            path = f"{cls.model_fields['kind'].default}.{found.path}".removesuffix(".")
            raise SpecError(path, found.reason) from None

    @classmethod
    def title_from(cls, file: Path | None) -> str:
        """The title of an experiment about the base in a file, or about one that was given without a file."""
        return cls.subject if file is None else f"{cls.subject} from {visible(file.name)}"

    def asks(self) -> tuple[str, str]:
        """The question of the family, about the optimizers of the panels, and how it is answered."""
        names = " or ".join(dict.fromkeys(panel.optimizer for panel in self.panels))
        adaptive = all(panel.base.optimizer.rule == "square_root" for panel in self.panels)
        words = {"optimizer": names, "rule": "square-root" if adaptive else "linear"}
        return self.question.format(**words), self.method.format(**words)

    def seeds_of(self, panel: Panel) -> tuple[Seed, ...]:
        """The seeds of one panel, in order."""
        return panel.seeds or self.seeds

    def slots(self) -> dict[Slot, RunSpec]:
        """The runs that belong to this experiment, each at its place; panels may share some."""
        found = {}
        for number, panel in enumerate(self.panels):
            with refusals_of(panel, among=len(self.panels)):
                for arm, spec in panel.arms():
                    for seed in self.seeds_of(panel):
                        found[Slot(number, arm, spec.batch_size, seed)] = spec.edited({"seed": seed})
        return found

    def runs(self) -> list[RunSpec]:
        """All runs, each once."""
        return list(dict.fromkeys(self.slots().values()))

    @abstractmethod
    def asked(self) -> str:
        """What is asked of which arms, and what decides: one line."""

    def planned(self) -> str:
        """How the runs were chosen, where a plan chose them: what is announced before they begin."""
        return ""

    @property
    def waits(self) -> bool:
        """Whether some of its runs are not known before others have ended."""
        return False

    def planned_from(self, records: Sequence[RunRecord]) -> Self:
        """The same experiment with all its runs, once those that it knows have ended with these records."""
        return self

    def with_plans_of(self, before: "Experiment | None") -> Self:
        """The same experiment with the plans that it was written down with before, where they still apply."""
        return self

    @abstractmethod
    def find(self, records: Sequence[RunRecord]) -> "Finding[PanelFinding]":
        """Answer from whatever runs there are; those without a result are listed as missing.

        Args:
            records: from `svag.lab.load_records`, in any order; what no panel asked for is listed, not used.
        """

    def edited(self, edits: Mapping[str, Any], seeds: int | None = None) -> Self:
        """The same question about other base specs, or with other seeds; the note says what was replaced.

        >>> from svag.paper.figures import figure
        >>> shuffled = figure("fig:svag_accs", "paper").edited({"sampling": "shuffle"}, seeds=2)
        >>> shuffled.note, shuffled.seeds, shuffled.panels[0].base.sampling
        ('with sampling = shuffle', (0, 1), 'shuffle')
        """
        changed: dict[str, Any] = {} if seeds is None else {"seeds": tuple(range(seeds))}
        panels = []
        for panel in self.panels:
            with refusals_of(panel, among=len(self.panels)):
                own = panel.edited(edits) if edits else panel
            panels.append(own if seeds is None else own.model_copy(update={"seeds": ()}))
        if edits:
            said = "with " + ", ".join(f"{path} = {value}" for path, value in edits.items())
            changed["note"] = f"{self.note}; {said}" if self.note else said
        return type(self).model_validate({**dict(self), **changed, "panels": tuple(panels)})

    @classmethod
    def from_specs(cls, specs: Iterable[RunSpec], title: str) -> Self:
        """The experiment of this family that these runs are, as far as `slots` gives them back; otherwise refused.

        The panel that asks for most of them comes first, around the smaller batch size of two that ask for as many;
        then one for what is left. Runs that no panel asks for stay strangers. What judges the answer (margin,
        tolerance, C²) has its default.
        """
        left: dict[RunSpec, list[RunSpec]] = {}
        for spec in specs:
            left.setdefault(setting(spec), []).append(spec)
        panels: list[Panel] = []
        while grown := [cls._grown(runs[0], left) for one, runs in left.items() if isinstance(one.process, SgdSpec)]:
            panel, claimed = min(grown, key=lambda one: (-len(one[1]), one[0].base.batch_size))
            if len(claimed) < 2:
                break
            seeds = sorted({spec.seed for one in claimed for spec in left[one]})
            panels.append(panel.model_copy(update={"seeds": tuple(seeds)}))
            left = {one: runs for one, runs in left.items() if one not in claimed}
        if not panels:
            kind = cls.model_fields["kind"].default
            raise SpecError("", f"no two of these runs belong to one {kind} experiment: it takes {cls.needs}")
        return cls.model_validate({"title": title, **_named_apart(panels)})

    @classmethod
    def _grown(cls, base: RunSpec, settings: Collection[RunSpec]) -> tuple[Panel, set[RunSpec]]:
        """The panel around a base, and those of the settings that it asks for; none if it is refused."""
        panel = cls._around(base.edited({"process": {"kind": "sgd"}, "seed": 0}), settings)
        try:
            return panel, {setting(spec) for _, spec in panel.arms()} & set(settings)
        except SpecError:
            return panel, set()

    @classmethod
    @abstractmethod
    def _around(cls, base: RunSpec, settings: Collection[RunSpec]) -> Panel:
        """The panel with this base that asks for as many of these settings as it can."""


def _named_apart(panels: Sequence[Panel]) -> dict[str, Any]:
    """The seeds of all panels, and the panels with names of their own, and with seeds only where these differ."""
    seeds = tuple(sorted({seed for panel in panels for seed in panel.seeds}))
    names = [panel.name for panel in panels]
    named = []
    for at, panel in enumerate(panels):
        number = f" ({names[:at].count(panel.name) + 1})" if names.count(panel.name) > 1 else ""
        own = () if panel.seeds == seeds else panel.seeds
        named.append(panel.model_copy(update={"name": panel.name + number, "seeds": own}))
    return {"seeds": seeds, "panels": tuple(named)}


@contextmanager
def refusals_of(panel: Panel, among: int) -> Iterator[None]:
    """Say which panel a refusal is about, where there are several; a single one is the user's own base spec."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{panel.name}: {error.path}" if among > 1 else error.path, error.reason) from None


def save_experiment(experiment: Experiment, folder: Path) -> None:
    """Write `experiment.json`; what was asked before is replaced, the runs stay."""
    make_folder(folder)
    text = json.dumps(experiment.model_dump(mode="json"), indent=2, ensure_ascii=False)
    replace_file(folder / EXPERIMENT, text.encode() + b"\n")


def own_metric(panels: Sequence[Panel]) -> Metric:
    """What runs on such data are judged by, unless something else is asked for: of a text, its bits per character."""
    text = any(isinstance(panel.base.data, TextSpec) for panel in panels)
    return "test_bits_per_character" if text else "test_accuracy"


def metric_of(fields: dict[str, Any]) -> Metric:
    """The default of a field `metric` that stands after `panels`."""
    return own_metric(fields["panels"])


def seeds_from(seeds: int | Iterable[int]) -> tuple[int, ...]:
    """Seeds as people give them: how many, or which.

    >>> seeds_from(3), seeds_from([0, 7, 7])
    ((0, 1, 2), (0, 7))
    """
    return tuple(range(seeds)) if isinstance(seeds, int) else tuple(dict.fromkeys(seeds))


def require_sgd(base: RunSpec) -> None:
    """An experiment varies the process itself: its base is the SGD run in question."""
    if not isinstance(base.process, SgdSpec):
        raise SpecError(
            "process.kind",
            f"the base of an experiment is the {base.optimizer.title} run in question, got {base.process.kind}",
        )


def svag_arms(
    base: RunSpec, ells: Iterable[int], split: int, limit: MomentumLimit | None
) -> Iterator[tuple[ArmName, RunSpec]]:
    """One arm for each ell above 1; ell = 1 is SGD itself, which the caller runs in any case."""
    for ell in sorted(set(ells)):
        if ell > 1:
            process = {"kind": "svag", "ell": ell, "split": split, "momentum_limit": limit}
            yield svag_arm(ell), base.edited({"process": process})


def other_arm(name: ArmName, base: RunSpec, process: dict[str, Any]) -> tuple[ArmName, RunSpec]:
    """The base followed by another process, without its in-run probe where there are no batches that it could cut.

    What is measured is free: what such an arm is compared by is its result.
    """
    try:
        return name, base.edited({"process": process})
    except SpecError as error:
        if not isinstance(base.probe, InRunProbe) or not error.path.startswith("probe."):
            raise
    return name, base.edited({"process": process, "probe": {"kind": "none"}})


def processes_at(bases: Collection[RunSpec], settings: Iterable[RunSpec]) -> list[Process]:
    """The processes of those settings that are one of these SGD settings in everything else."""
    return [one.process for one in settings if one.model_copy(update={"process": SgdSpec()}) in bases]


def svag_fields(processes: Iterable[Process]) -> dict[str, Any]:
    """The fields `ells`, `split` and `momentum_limit` of a panel with these SVAG arms.

    A panel has one split and one limit: those with the most ell, and of several the smallest split.
    """
    ells: dict[tuple[int, MomentumLimit | None], set[int]] = {}
    for process in processes:
        if isinstance(process, SvagSpec):
            ells.setdefault((process.split, process.momentum_limit), set()).add(process.ell)
    if not ells:
        return {"ells": ()}
    split, limit = min(ells, key=lambda one: (-len(ells[one]), one[0], str(one[1])))
    return {"ells": tuple(sorted(ells[split, limit])), "split": split, "momentum_limit": limit}


def described(base: RunSpec) -> str:
    """Network and data, as a panel is called that nobody has named."""
    return f"{base.model.arch} {base.model.norm} on {base.data.name}"
