"""Every figure of the paper by its label: an experiment at one of the sizes, or a check of the theory.

What the paper proves or draws without training a network has an exact answer. fig:app_exotic_lr draws schedules,
fig:diagram and fig:app_proof_overview are drawings with numbers, sec:app_heayvtailed looks at a network's gradients,
and `svag verify` checks the rest.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from svag.lab.experiments.arms import matched
from svag.lab.experiments.bases import FASHION
from svag.lab.experiments.compare import Compare
from svag.lab.experiments.experiment import Experiment, Size
from svag.lab.experiments.wording import Judgement
from svag.lab.records.record import RunHeader, RunRecord, load_headers, read_record
from svag.lab.specs.fields import SpecError, shown
from svag.lab.specs.parts import NoProbe
from svag.lab.specs.spec import RunSpec
from svag.paper.figures import compare, ladder, ngd
from svag.paper.figures.bases import CIFAR, smoke

THEORY = {
    "thm:sde_svag": "SVAG is an order-1 weak approximation of the Itô SDE",
    "fig:proof_concept": "SVAG and SGD beside the SDE on an Ornstein–Uhlenbeck problem",
    "lem:D": "moments of one SVAG step",
    "lem:Dtil": "moments of the SDE over the time of one step",
    "thm:one_step_to_multi_steps": "errors of single steps add up to C/l",
    "app:lem:ito_taylor": "the Itô–Taylor expansion to first order",
    "lem:u_eta_estimate": "the error of one step for a smooth function",
    "app:lem:delta_prod_estimate": "moments of the increment of the SDE",
    "lem:sgd_moment_estimate": "moments bounded uniformly in l and in the step",
    "lem:sc": "gradients are orthogonal to the weights and scale like 1/c",
    "cor:sc": "the noise is orthogonal to the weights and scales like 1/c",
    "lem:2nd_sde_hessian": "xᵀ∇²L∇L = −|∇L|²",
    "eq:norm_sgd_wd": "the weight norm of SGD, step by step",
    "eq:norm_sde_wd": "the weight norm of the SDE in time",
    "eq:noisy_gd": "noisy gradient descent has the covariance of SGD",
    "sec:counterexample": "Poisson gradients: linear scaling holds, the SDE does not",
    "subsec:app_levy_sde": "the ladder tends to a Lévy SDE",
    "thm:eq_sde_sgd": "where SGD and SDE cannot be C-close",
    "thm:lsr_condition": "N/G of the large run rules out linear scaling, without a baseline",
    "thm:lsr_kappa_bound": "N/G of the baseline bounds κ",
    "thm:app_1st_2nd_sde": "where the two SDEs cannot be C-close",
    "thm:2nd_order_sde": "the second-order SDE has weak order 2 in η",
    "thm:test": "the tail-index estimator",
    "thm:test_on_gaussian": "what the tail-index estimator reads on correlated Gaussians",
    "sec:app_heayvtailed": "are the gradients of a network heavy-tailed?",
    "fig:app_exotic_lr": "the triangular and the cosine schedule",
    "fig:diagram": "which process tends to which SDE",
    "fig:app_proof_overview": "the idea of the proof: SVAG first, then the SDE",
}
"""What each label says, in a line."""

UNVERIFIED = ("sec:app_heayvtailed", "fig:app_exotic_lr", "fig:diagram", "fig:app_proof_overview")
"""Labels that `svag verify` has no check for: there is something to look at."""


def trained(size: Size) -> RunSpec:
    """The run whose gradients sec:app_heayvtailed looks at; the paper size has the paper's network on CIFAR-10."""
    match size:
        case "smoke":
            return FASHION.edited({"data.subset": 320, "model.width": 0.25, "budget": 10})
        case "small":
            return FASHION.edited({"budget": {"epochs": 10}})
        case "medium":
            raise _without_medium("sec:app_heayvtailed")
        case "paper":
            return CIFAR.edited({"model.norm": "group"})


def until(spec: RunSpec, shares: Sequence[float] = (0.1, 0.4)) -> list[RunSpec]:
    """A run stopped after these shares of its budget, and the whole of it: moments to look at its gradients.

    Moments at which its schedule has changed the learning rate are left out, since a shorter run has another schedule.

    >>> [(one.budget, one.schedule.kind) for one in until(trained("smoke"))]
    [(1, 'constant'), (4, 'constant'), (10, 'steps')]
    """
    steps = spec.steps()
    counts = [max(1, round(share * steps)) for share in shares]
    early = [count for count in dict.fromkeys(counts) if _unchanged(spec, count)]
    return [*(spec.edited({"budget": count, "schedule": {"kind": "constant"}}) for count in early), spec]


def _unchanged(spec: RunSpec, count: int) -> bool:
    """Whether the first steps of a run all have the learning rate of its spec."""
    steps = spec.steps()
    return count < steps and all(spec.schedule.multiplier(step, steps) == 1 for step in range(count))


_FIGURES: dict[str, tuple[compare.CompareRow | ladder.LadderRow | ngd.NgdRow, ...]] = {
    "compare": compare.ROWS,
    "ladder": ladder.ROWS,
    "ngd": ngd.ROWS,
}
_ROWS = {row.label: row for rows in _FIGURES.values() for row in rows}
MEDIUM = tuple(label for label, row in _ROWS.items() if row.medium)
"""The figures that have a medium size."""

LABELS = {row.label: kind for kind, rows in _FIGURES.items() for row in rows} | dict.fromkeys(THEORY, "theory")
"""Every label, and which family of experiments it belongs to, or that it is theory."""


def family(label: str) -> str:
    """Which kind of answer a label has.

    >>> family("fig:svag_accs"), family("thm:sde_svag")
    ('compare', 'theory')
    >>> family("svag_accs")
    Traceback (most recent call last):
    svag.lab.specs.fields.SpecError: svag_accs: no figure or theorem has this label; did you mean fig:svag_accs?
    """
    if label not in LABELS:
        close = get_close_matches(label, LABELS, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else "svag list figures shows all"
        raise SpecError(label, f"no figure or theorem has this label; {hint}")
    return LABELS[label]


def figure(label: str, size: Size) -> Experiment:
    """The experiment behind a figure, at a size.

    >>> [panel.base.batch_size for panel in figure("fig:svag_accs", "paper").panels]
    [64, 1024]
    """
    if family(label) == "theory":
        raise SpecError(label, "belongs to the theory and trains nothing: svag verify checks it")
    if size not in get_args(Size):
        raise SpecError("size", f"must be one of {', '.join(get_args(Size))}, got {shown(size)}")
    if size == "medium" and label not in MEDIUM:
        raise _without_medium(label)
    return smoke(_ROWS[label].at("small")) if size == "smoke" else _ROWS[label].at(size)


def _without_medium(label: str) -> SpecError:
    return SpecError("size", f"{label} has no medium size: use small or paper, or one of {', '.join(MEDIUM)}")


def judged(experiment: Experiment, finding: Any) -> tuple[Judgement, ...]:
    """Every claim that the paper makes with a figure, compared with the runs of an experiment.

    None for what is no figure or has other panels than it, nor for a smoke test, which shows nothing about a claim.

    Args:
        experiment: any.
        finding: what it found.
    """
    label, size = experiment.label, experiment.size
    if label not in _ROWS or size is None or size == "smoke":
        return ()
    own = [panel.name for panel in figure(label, size).panels]
    if [panel.name for panel in experiment.panels] != own:
        return ()
    remarks: tuple[Judgement, ...] = ()
    if label == compare.WITH_NORMS and isinstance(experiment, Compare):
        remarks = compare.norms_judged(experiment, finding)
    return (*_ROWS[label].judged(finding, size), *remarks)


def printed_beside(experiment: Experiment, finding: Any) -> tuple[tuple[str, float, float], ...]:
    """The numbers that the paper prints with a figure: what of, the paper's, and ours; none where it prints none."""
    row = _ROWS.get(experiment.label or "")
    return row.beside(finding) if isinstance(row, ngd.NgdRow) else ()


def folder_name(label: str) -> str:
    """What the folder of a label is called.

    >>> folder_name("fig:svag_accs")
    'fig-svag_accs'
    """
    return label.replace(":", "-")


def kept_records(experiment: Experiment, results: Path, headers: Sequence[RunHeader] | None = None) -> list[RunRecord]:
    """The records that a folder of results has of an experiment, one a run; none unless every run has ended there.

    They are found by what `matched` compares. All are of one version of the numerics, the newest that has all runs.
    Where a run was kept more than once, the record of the probe that is asked for counts, then that with the most
    readings, then that in the figure's own folder.

    Args:
        experiment: any.
        results: looked through at any depth, such as `results` in a checkout of this project.
        headers: of all its runs, where several experiments are asked about.
    """
    wanted = {matched(spec): spec.probe for spec in experiment.slots().values()}
    home = results / "figures" / folder_name(experiment.label or "")

    def fitness(record: RunRecord) -> tuple[bool, int, bool]:
        assert record.spec is not None
        probe = wanted[matched(record.spec)]
        return (
            not isinstance(probe, NoProbe) and record.spec.probe == probe,
            len(record.readings),
            home in record.path.parents,
        )

    offered: dict[int, dict[RunSpec, list[Path]]] = {}
    for header in load_headers(results) if headers is None else headers:
        if (spec := matched(header.spec)) in wanted:
            offered.setdefault(header.numerics, {}).setdefault(spec, []).append(header.path)
    for _, places in sorted(offered.items(), reverse=True):
        if places.keys() == wanted.keys():
            several = [[record for path in paths if (record := read_record(path)).ended] for paths in places.values()]
            if all(several):
                return [max(same_run, key=fitness) for same_run in several]
    return []
