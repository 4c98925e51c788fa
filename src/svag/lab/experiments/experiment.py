"""The base of all experiments: a question about some SGD runs, and the plan of runs that answers it.

`Experiment.slots` is the only description of which runs belong to an experiment. Execution carries them out, findings
look their records up by it, and `from_runs` checks by it which experiment a folder of runs may be.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

from svag.lab.experiments.arms import ArmName, ArmSpec, Slot
from svag.lab.records.record import RunRecord
from svag.lab.specs.fields import RefusesInOneSentence, Seed, SpecError, near, refusal_inside, spec_error, visible
from svag.lab.specs.spec import RunSpec
from svag.lab.specs.text import TextSpec

if TYPE_CHECKING:
    from svag.lab.experiments.finding import Finding, PanelFinding

Size = Literal["smoke", "small", "medium", "paper"]
Metric = Literal["test_accuracy", "test_loss", "train_loss", "test_bits_per_character"]
MARGIN = 0.01


class _Frozen(RefusesInOneSentence):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Panel(_Frozen, ABC):
    """The base of all panels.

    Attributes:
        name: name of the panel.
        base: the SGD run in question; for a ladder, the run at the reference batch size.
        seeds: seeds of every arm of this panel; those of the experiment if empty.
    """

    name: str
    base: RunSpec
    seeds: tuple[Seed, ...] = ()

    @abstractmethod
    def arms(self) -> list[ArmSpec]:
        """Every arm at every batch size, SGD first, with the seed of the base; refuses what theory does not cover.

        Order: increasing batch size, then increasing refinement.
        """

    def asks_for(self, slot: Slot) -> bool:
        """Whether this seed of this arm is run; some panels give fewer seeds to some arms."""
        return True

    @property
    def optimizer(self) -> str:
        """Name of the optimizer of its runs."""
        return self.base.optimizer.title

    @property
    def itself(self) -> ArmName:
        """The arm that is the optimizer itself: equal to `SGD`, whatever its name."""
        return ArmName("sgd", optimizer=self.optimizer)

    def edited(self, edits: Mapping[str, Any]) -> Self:
        """The same panel with fields of its base replaced."""
        return self.model_copy(update={"base": self.base.edited(edits)})

    def smallest(self, edits: Mapping[str, Any]) -> Self:
        """The same panel with as few arms and steps as possible, for a smoke test; the edits shrink the base."""
        return self.edited({"budget": 10, **edits}).model_copy(update={"seeds": ()})


class Experiment(_Frozen, ABC):
    """The base of all experiments. A family adds its kind of panels, its criteria, and how it finds its answer.

    Attributes:
        title: one line.
        label: label of the figure of the paper that it reproduces.
        size: size of that figure.
        note: how it differs from the paper, for the caption.
        seeds: seeds of every arm, unless a panel has its own.
        kind: name of the family.
        panels: the settings in question.
    """

    question: ClassVar[str]  # the title of its page, one sentence about {optimizer}
    method: ClassVar[str]  # how that is answered, about {optimizer} and its {rule}
    needs: ClassVar[str]  # the runs that this family needs at least
    options: ClassVar[type]  # the typed dictionary of its options besides base and arms
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
            refused = spec_error(error, {})
            path = f"{cls.model_fields['kind'].default}.{refused.path}".removesuffix(".")
            raise SpecError(path, refused.reason) from None

    @classmethod
    def about(
        cls,
        base: RunSpec,
        seeds: int | Iterable[int],
        subject: str,
        arms: Mapping[str, Any],
        options: Mapping[str, Any],
        *,
        name: str | None,
        file: Path | None,
    ) -> Self:
        """Make an experiment with one panel around a base spec; `of` of every family calls this.

        Args:
            base: the run in question.
            seeds: how many seeds, or which.
            subject: what is run, for the title.
            arms: the fields of the panel that say which arms it has.
            options: further fields of the panel and of the experiment, as `options` lists them; None is the default.
            name: name of the panel; when None the name of the file, or network and data.
            file: the file that the base was read from.
        """
        if unknown := sorted(options.keys() - cls.options.__annotations__.keys()):
            hint = near(unknown[0], list(cls.options.__annotations__))
            raise TypeError(f"{cls.__name__} has no option {unknown[0]!r}: {hint}")
        given = {option: value for option, value in options.items() if value is not None}
        own = {option: given.pop(option) for option in list(given) if option in cls.model_fields}
        panel_name = name or (described(base) if file is None else visible(file.stem))
        panel = {"name": panel_name, "base": base, **arms, **given}
        from_file = "" if file is None else f" from {visible(file.name)}"
        which = tuple(range(seeds)) if isinstance(seeds, int) else tuple(dict.fromkeys(seeds))
        return cls.model_validate({"title": subject + from_file, "seeds": which, "panels": (panel,), **own})

    def asks(self) -> tuple[str, str]:
        """The question of the family, about the optimizers of the panels, and how it is answered."""
        names = " or ".join(dict.fromkeys(panel.optimizer for panel in self.panels))
        adaptive = all(panel.base.optimizer.rule == "square_root" for panel in self.panels)
        words = {"optimizer": names, "rule": "square-root" if adaptive else "linear"}
        return self.question.format(**words), self.method.format(**words)

    def seeds_of(self, panel: Panel) -> tuple[Seed, ...]:
        """The seeds of one panel, in order."""
        return panel.seeds or self.seeds

    def slots(self) -> Mapping[Slot, RunSpec]:
        """The runs that belong to this experiment, by slot; panels may share runs."""
        for experiment, built in _BUILT:
            if experiment is self:
                return built
        slots = {}
        for number, panel in enumerate(self.panels):
            with refusals_of(panel, among=len(self.panels)):
                for arm, spec in panel.arms():
                    for seed in self.seeds_of(panel):
                        slot = Slot(number, arm, spec.batch_size, seed)
                        if panel.asks_for(slot):
                            slots[slot] = spec.edited({"seed": seed})
        _BUILT.append((self, slots))
        return slots

    def runs(self) -> list[RunSpec]:
        """All runs, each once."""
        return list(dict.fromkeys(self.slots().values()))

    @abstractmethod
    def asked(self) -> str:
        """The arms and the criteria for the answer, in one line."""

    def planned(self) -> str:
        """How a plan chose the runs; empty without a plan. It is announced before they start."""
        return ""

    @property
    def waits(self) -> bool:
        """Whether some of its runs can be planned only after others have ended."""
        return False

    def planned_from(self, records: Sequence[RunRecord]) -> Self:
        """The same experiment with all its runs, planned from the records of those that were known."""
        return self

    def with_plans_of(self, before: "Experiment | None") -> Self:
        """The same experiment with the plans of an earlier version of it, where they still apply."""
        return self

    @abstractmethod
    def find(self, records: Sequence[RunRecord]) -> "Finding[PanelFinding]":
        """Answer from the runs that exist; those without a result are listed as missing.

        Args:
            records: from `svag.lab.load_records`, in any order; records that no panel asked for are listed, not used.
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
    @abstractmethod
    def around(cls, base: RunSpec, known: Collection[RunSpec]) -> Panel:
        """The panel with this base that asks for as many of the known specs as it can."""


# Cache of the slots of recent experiments: a command needs them to plan, to announce and to find.
_BUILT: deque[tuple[Experiment, Mapping[Slot, RunSpec]]] = deque(maxlen=8)


@contextmanager
def refusals_of(panel: Panel, among: int) -> Iterator[None]:
    """Name the panel in a refusal if there are several; a single panel is the user's own base spec."""
    try:
        yield
    except SpecError as error:
        raise SpecError(f"{panel.name}: {error.path}" if among > 1 else error.path, error.reason) from None


def own_metric(panels: Sequence[Panel]) -> Metric:
    """The default metric for such data: test accuracy, or for a text bits per character."""
    text = any(isinstance(panel.base.data, TextSpec) for panel in panels)
    return "test_bits_per_character" if text else "test_accuracy"


def metric_of(fields: dict[str, Any]) -> Metric:
    """The default of a field `metric` that is declared after `panels`."""
    return own_metric(fields["panels"])


def described(base: RunSpec) -> str:
    """Network and data: the name of a panel without a name of its own."""
    return f"{base.model.arch} {base.model.norm} on {base.data.name}"
