"""What an experiment asks, and where it is kept: a folder with `experiment.json` and one run directory per run.

The three kinds differ in how the runs of a panel vary its base spec. `svag.experiments` turns an experiment into specs,
`svag.findings` reads the answer off the records; both read this.
"""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from svag.records.fields import Count, Positive, Seed, Several, SpecError, spec_error
from svag.records.files import replace_file
from svag.records.spec import RunSpec
from svag.theory.domain import closeness
from svag.theory.optimizers import MomentumLimit

EXPERIMENT, RUNS = "experiment.json", "runs"

Size = Literal["smoke", "small", "paper"]
Metric = Literal["test_accuracy", "test_loss", "train_loss"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Panel(_Frozen):
    """What all panels have.

    Attributes:
        name: what the panel is called.
        base: the SGD run in question; of a ladder, the run at the reference batch size.
        seeds: of every arm of this panel; those of the experiment if empty.
    """

    name: str
    base: RunSpec
    seeds: tuple[Seed, ...] = ()


class ComparePanel(_Panel):
    """SGD and SVAG from one base spec.

    Attributes:
        ells: refinements of SVAG; ell = 1 is SGD and is always run.
        split: of all SVAG arms with ell > 1.
        glsr: numbers of parts of the coupled ladder (def:glsr), for the decomposition over it; none if empty.
        ngd: whether to run NGD too, for the paper's decomposition (eq:noise_decomposition).
        momentum_limit: which limit the SVAG arms of a base with momentum follow.
    """

    ells: tuple[Count, ...]
    split: Count = 1
    glsr: tuple[Count, ...] = ()
    ngd: bool = False
    momentum_limit: MomentumLimit | None = None


class LadderPanel(_Panel):
    """Batch sizes along the linear scaling rule from one base spec, which gives the rate at its own batch size.

    Attributes:
        batch_sizes: the rungs.
        ells: refinements of SVAG run at every rung besides SGD: the SDE limit against B; none if empty.
        split: of the SVAG arms.
        momentum_limit: which limit the SVAG arms of a base with momentum follow.
        probe_batches: batches of each reading at frozen weights, rung by rung; those of the base if empty.
    """

    batch_sizes: tuple[Count, ...]
    ells: tuple[Count, ...] = ()
    split: Count = 1
    momentum_limit: MomentumLimit | None = None
    probe_batches: tuple[Several, ...] = ()


class NgdPanel(_Panel):
    """SGD, NGD with matching covariance, and GD from one base spec."""


class _Experiment(_Frozen):
    """What all experiments have.

    Attributes:
        title: one line.
        label: the figure of the paper it reproduces.
        size: at which size.
        note: how it differs from the paper, for the caption.
        seeds: of every arm, unless a panel has its own.
    """

    title: str
    label: str | None = None
    size: Size | None = None
    note: str = ""
    seeds: tuple[Seed, ...] = Field(min_length=1)

    def seeds_of(self, panel: _Panel) -> tuple[Seed, ...]:
        """The seeds of one panel, in order."""
        return panel.seeds or self.seeds


class Compare(_Experiment):
    """Does SVAG converge in ell, and is SGD where it converges to?

    Attributes:
        margin: the gap in `metric` that would not matter, in its units (accuracies are fractions).
        metric: what is compared.
    """

    kind: Literal["compare"] = "compare"
    panels: tuple[ComparePanel, ...] = Field(min_length=1)
    margin: Positive = 0.01
    metric: Metric = "test_accuracy"


class Ladder(_Experiment):
    """Up to which batch size does linear scaling hold, and what did each rung predict?

    Attributes:
        tolerance: linear scaling fails where the test error exceeds the lowest by this fraction of it.
        c2: C² of the predictions.
    """

    kind: Literal["ladder"] = "ladder"
    panels: tuple[LadderPanel, ...] = Field(min_length=1)
    tolerance: Positive = 0.2
    c2: Annotated[Positive, AfterValidator(closeness)] = 2.0


class Ngd(_Experiment):
    """Does Gaussian noise of the same covariance do what SGD's noise does?"""

    kind: Literal["ngd"] = "ngd"
    panels: tuple[NgdPanel, ...] = Field(min_length=1)
    margin: Positive = 0.01
    metric: Metric = "test_accuracy"


Experiment: TypeAlias = Annotated[Compare | Ladder | Ngd, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[Compare | Ladder | Ngd] = TypeAdapter(Experiment)


def experiment_from(fields: Any) -> Compare | Ladder | Ngd:
    """Make an experiment from plain values; refuse nonsense in one sentence.

    >>> experiment_from({"kind": "ladder", "title": "t", "seeds": [0]})
    Traceback (most recent call last):
    svag.records.fields.SpecError: ladder.panels: is missing
    """
    try:
        return _ADAPTER.validate_python(fields)
    except ValidationError as error:
        raise spec_error(error, {}) from None


def save_experiment(experiment: Compare | Ladder | Ngd, folder: Path) -> None:
    """Write `experiment.json`; what was asked before is replaced, the runs stay."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(experiment.model_dump(mode="json"), indent=2, ensure_ascii=False)
    replace_file(folder / EXPERIMENT, text.encode() + b"\n")


def load_experiment(folder: Path) -> Compare | Ladder | Ngd | None:
    """What was asked in this folder; None if it is a mere folder of runs."""
    path = folder / EXPERIMENT
    if not path.exists():
        return None
    try:
        return experiment_from(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise SpecError(str(path), f"cannot be read: {' '.join(str(error).split())}") from None
