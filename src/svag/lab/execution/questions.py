"""`ladder`, `compare` and `ngd` of `svag.lab`: a question about one SGD run, from its base spec to its answer."""

from collections.abc import Sequence
from pathlib import Path

from svag.lab.execution.conduct import carry_out, conduct, plan_from_pilot
from svag.lab.execution.execution import HERE, Execution
from svag.lab.experiments.base import MARGIN, Metric, MomentumLimit
from svag.lab.experiments.compare import ELLS, Compare
from svag.lab.experiments.compare_finding import CompareFinding
from svag.lab.experiments.ladder import C2, Ladder, LadderRule
from svag.lab.experiments.ladder_finding import LadderFinding
from svag.lab.experiments.ngd import Ngd
from svag.lab.experiments.ngd_finding import NgdFinding
from svag.lab.specs.fields import visible
from svag.lab.specs.spec import Base, RunSpec


def ladder(
    base: Base,
    batch_sizes: Sequence[int],
    *,
    seeds: int | Sequence[int] = Ladder.default_seeds,
    rule: LadderRule | None = "gain",
    measured: bool = False,
    ells: Sequence[int] = (),
    split: int = 1,
    momentum_limit: MomentumLimit | None = None,
    tolerance: float | None = None,
    c2: float = C2,
    out: str | Path = "ladder",
    execution: Execution = HERE,
) -> LadderFinding:
    """Train at several batch sizes, by the gain rule or along a scaling rule: what did a larger batch cost?

    With the gain rule, the smallest batch size runs first, with all seeds, and its readings set the learning rates and
    budgets of the others. The plans are saved, so that the same call continues with them.

    Runs that are already in the folder are not repeated: after an interruption, the same call continues.

    >>> import tempfile
    >>> base = '''
    ... data: {name: fashion-small, subset: 200}
    ... model: {arch: mlp, norm: layer, width: 0.0625}
    ... batch_size: 20
    ... lr: 0.1
    ... budget: {epochs: 4}
    ... '''
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     here = Execution(workers=1, device="cpu", progress=False)
    ...     found = ladder(RunSpec.from_yaml(base), [20, 40], seeds=1, rule="linear", out=folder, execution=here)
    >>> [(rung.batch_size, rung.lr) for rung in found.panels[0].rungs]
    [(20, 0.1), (40, 0.2)]

    Args:
        base: the run in question, which gives the learning rate at its own batch size: a spec, a mapping of its
            fields, or the path of a YAML file. Without a probe it gets one.
        batch_sizes: the batch sizes to run at.
        seeds: number of seeds per batch size (3 means 0, 1 and 2), or the seeds themselves.
        rule: "gain", or the rule of the paper: "linear" for SGD, "square_root" for Adam, AdamW and RMSprop; None is
            whichever of these two the optimizer has.
        measured: with the gain rule, measure the gain while training instead of planning it.
        ells: also run SVAG at these ell and every batch size: the SDE limit.
        split: SVAG draws batches of 1/split of the size.
        momentum_limit: which limit SVAG follows when the base has momentum.
        tolerance: scaling fails where the test error exceeds the lowest one by this fraction of it; when None, 0.2, or
            0.02 for the bits per character of a text.
        c2: C² of the predictions: by what factor a statistic may change.
        out: folder of the experiment.
        execution: how the runs are carried out.
    """
    spec, name, file = _origin(base)
    experiment = Ladder.of(
        spec,
        batch_sizes,
        seeds,
        rule=rule,
        measured=measured,
        ells=ells,
        split=split,
        momentum_limit=momentum_limit,
        tolerance=tolerance,
        c2=c2,
        name=name,
        title=Ladder.title_from(file),
    )
    planned, done = carry_out(experiment, Path(out), execution)
    return planned.find(done.records)


def compare(
    base: Base,
    ells: Sequence[int] = ELLS,
    *,
    margin: float = MARGIN,
    seeds: int | Sequence[int] = Compare.default_seeds,
    split: int = 1,
    glsr: Sequence[int] = (),
    ngd: bool = False,
    momentum_limit: MomentumLimit | None = None,
    metric: Metric | None = None,
    within: float | None = None,
    out: str | Path = "compare",
    execution: Execution = HERE,
) -> CompareFinding:
    """Run SGD and SVAG at several ell: does SGD end where its SDE ends?

    Runs that are already in the folder are not repeated: after an interruption, the same call continues.

    >>> import tempfile
    >>> base = {
    ...     "data": {"name": "fashion-small", "subset": 200},
    ...     "model": {"arch": "mlp", "norm": "layer", "width": 0.0625},
    ...     "batch_size": 20,
    ...     "lr": 0.1,
    ...     "budget": {"epochs": 2},
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     here = Execution(workers=1, device="cpu", progress=False)
    ...     found = compare(base, [1, 4], margin=0.2, seeds=2, out=folder, execution=here)
    >>> [str(arm.arm) for arm in found.panels[0].arms]
    ['SGD', 'SVAG ell=4']

    Args:
        base: the SGD run in question: a spec, a mapping of its fields, or the path of a YAML file.
        ells: refinements of SVAG; ell = 1 is SGD, which is run in any case.
        margin: the gap in `metric` that would not matter, in its units (accuracies are fractions).
        seeds: number of seeds per arm (5 means 0 to 4), or the seeds themselves.
        split: SVAG draws batches of 1/split of the size.
        glsr: also run the coupled ladder (def:glsr) with these numbers of parts.
        ngd: also run noisy gradient descent, for the decomposition of the gap.
        momentum_limit: which limit SVAG follows when the base has momentum.
        metric: what is compared: "test_accuracy", "test_loss", "train_loss" or "test_bits_per_character"; when None the
            first, and the last for a text.
        within: find the SDE's value, and the gap, to within this: percentage points of an accuracy, units of a loss.
            Then `ells`, `seeds`, `split` and `margin` are chosen from a short pilot, for the fewest examples.
        out: folder of the experiment.
        execution: how the runs are carried out.
    """
    spec, name, file = _origin(base)
    if within is not None:
        pilot = Compare.pilot(
            spec, momentum_limit=momentum_limit, metric=metric, name=name, title=Compare.title_from(file)
        )
        planned = plan_from_pilot(pilot, within, Path(out), execution)
        return planned.find(conduct(planned, Path(out), execution).records)
    experiment = Compare.of(
        spec,
        ells,
        seeds,
        split=split,
        glsr=glsr,
        ngd=ngd,
        momentum_limit=momentum_limit,
        margin=margin,
        metric=metric,
        name=name,
        title=Compare.title_from(file),
    )
    return experiment.find(conduct(experiment, Path(out), execution).records)


def ngd(
    base: Base,
    *,
    margin: float = MARGIN,
    seeds: int | Sequence[int] = Ngd.default_seeds,
    metric: Metric | None = None,
    out: str | Path = "ngd",
    execution: Execution = HERE,
) -> NgdFinding:
    """Run SGD, noisy gradient descent and gradient descent: does Gaussian noise do what SGD's noise does?

    The noise has the covariance of SGD's. The network must not use batch norm, and the data must not be augmented.

    >>> base = RunSpec.from_yaml('''
    ... data: {name: cifar10, augment: false}
    ... model: {arch: preresnet32, norm: batch}
    ... batch_size: 125
    ... lr: 0.8
    ... budget: {epochs: 160}
    ... ''')
    >>> ngd(base)
    Traceback (most recent call last):
    svag.lab.specs.fields.SpecError: model.norm: ngd needs a loss for every example, which batch norm mixes: use group

    Args:
        base: the SGD run in question: a spec, a mapping of its fields, or the path of a YAML file.
        margin: the gap in `metric` that would not matter, in its units (accuracies are fractions).
        seeds: number of seeds per arm (3 means 0, 1 and 2), or the seeds themselves.
        metric: what is compared: "test_accuracy", "test_loss", "train_loss" or "test_bits_per_character"; when None the
            first, and the last for a text.
        out: folder of the experiment.
        execution: how the runs are carried out.
    """
    spec, name, file = _origin(base)
    experiment = Ngd.of(spec, seeds, margin=margin, metric=metric, name=name, title=Ngd.title_from(file))
    return experiment.find(conduct(experiment, Path(out), execution).records)


def _origin(base: Base) -> tuple[RunSpec, str, Path | None]:
    """The spec, the name of its panel, and the file that it comes from."""
    file = Path(base) if isinstance(base, str | Path) else None
    return RunSpec.of(base), "base" if file is None else visible(file.stem), file
