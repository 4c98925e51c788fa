"""`ladder`, `compare` and `ngd` of `svag.lab`: a question about one SGD run, from its base spec to its answer."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from svag.lab.execution.conduct import carry_out, conduct, plan_from_pilot
from svag.lab.execution.execution import HERE, Execution
from svag.lab.experiments.compare import ELLS, Compare, CompareOptions
from svag.lab.experiments.compare_finding import CompareFinding
from svag.lab.experiments.ladder import Ladder, LadderOptions, LadderRule
from svag.lab.experiments.ladder_finding import LadderFinding
from svag.lab.experiments.ngd import Ngd, NgdOptions
from svag.lab.experiments.ngd_finding import NgdFinding
from svag.lab.specs.spec import Base, RunSpec


def ladder(
    base: Base,
    batch_sizes: Sequence[int],
    *,
    seeds: int | Sequence[int] = Ladder.default_seeds,
    rule: LadderRule | None = "gain",
    out: str | Path = "ladder",
    execution: Execution = HERE,
    **options: Unpack[LadderOptions],
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
        out: the folder of the experiment.
        execution: how the runs are carried out.
        **options: see below.

    Keyword Args:
        measured (bool): with the gain rule, measure the gain while training instead of planning it.
        ells (Iterable[int]): also run SVAG at these ell and every batch size, for the SDE limit.
        split (int): into how many parts SVAG cuts the batch; 1 by default.
        momentum_limit (MomentumLimit): which limit SVAG follows when the base has momentum.
        tolerance (float): scaling fails where the test error exceeds the lowest one by this fraction of it; by default
            0.2, or 0.02 of the bits per character of a text.
        c2 (float): C² of the predictions, the factor by which a statistic may change; 2 by default.
    """
    spec, origin = _origin(base)
    experiment = Ladder.of(spec, batch_sizes, seeds, rule=rule, **origin, **options)
    planned, done = carry_out(experiment, Path(out), execution)
    return planned.find(done.records)


def compare(
    base: Base,
    ells: Sequence[int] = ELLS,
    *,
    seeds: int | Sequence[int] = Compare.default_seeds,
    within: float | None = None,
    out: str | Path = "compare",
    execution: Execution = HERE,
    **options: Unpack[CompareOptions],
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
        seeds: how many seeds of each (5 means 0 to 4), or which.
        within: find the SDE's value, and the gap, to within this: percentage points of an accuracy, units of a loss.
            Then `ells`, `seeds`, `split` and `margin` are chosen from a short pilot, for the fewest examples.
        out: folder of the experiment.
        execution: how the runs are carried out.
        **options: see below.

    Keyword Args:
        margin (float): the gap in `metric` that would not matter, in its units (accuracies are fractions); 0.01 by
            default.
        split (int): into how many parts SVAG cuts the batch; 1 by default.
        glsr (Iterable[int]): also run the coupled ladder (def:glsr) with these numbers of parts.
        ngd (bool): also run noisy gradient descent, for the decomposition of the gap.
        momentum_limit (MomentumLimit): which limit SVAG follows when the base has momentum.
        metric (Metric): what is compared: "test_accuracy" (the default), "test_loss", "train_loss" or
            "test_bits_per_character" (the default for a text).
    """
    spec, origin = _origin(base)
    if within is not None:
        limit, metric = options.get("momentum_limit"), options.get("metric")
        pilot = Compare.pilot(spec, momentum_limit=limit, metric=metric, **origin)
        planned = plan_from_pilot(pilot, within, Path(out), execution)
        return planned.find(conduct(planned, Path(out), execution).records)
    experiment = Compare.of(spec, ells, seeds, **origin, **options)
    return experiment.find(conduct(experiment, Path(out), execution).records)


def ngd(
    base: Base,
    *,
    seeds: int | Sequence[int] = Ngd.default_seeds,
    out: str | Path = "ngd",
    execution: Execution = HERE,
    **options: Unpack[NgdOptions],
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
        seeds: how many seeds of each (3 means 0, 1 and 2), or which.
        out: the folder of the experiment.
        execution: how the runs are carried out.
        **options: see below.

    Keyword Args:
        margin (float): the gap in `metric` that would not matter, in its units (accuracies are fractions); 0.01 by
            default.
        metric (Metric): what is compared: "test_accuracy" (the default), "test_loss", "train_loss" or
            "test_bits_per_character" (the default for a text).
    """
    spec, origin = _origin(base)
    experiment = Ngd.of(spec, seeds, **origin, **options)
    return experiment.find(conduct(experiment, Path(out), execution).records)


class _Origin(TypedDict):
    """Where a base comes from, as `of` takes it."""

    name: str | None
    file: Path | None


def _origin(base: Base) -> tuple[RunSpec, _Origin]:
    """The spec, and the file that it comes from; a base that was not read from a file is called base."""
    file = Path(base) if isinstance(base, str | Path) else None
    return RunSpec.of(base), {"name": "base" if file is None else None, "file": file}
