"""`svag compare`, `ladder`, `ngd` and `demo`: the commands that carry out experiments."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from svag.lab.cli.errors import aloud, echo, reported
from svag.lab.cli.flags import (
    AsJson,
    BaseFile,
    Details,
    Ell,
    Out,
    RuleFlag,
    Seeds,
    Setup,
    Within,
    Workers,
    ask_about_code,
    default_out,
    load_base,
    whole_numbers,
    with_options,
    with_setup,
)
from svag.lab.cli.report import at_work, tell
from svag.lab.execution.estimate import Announcement
from svag.lab.execution.execution import Execution
from svag.lab.execution.plan import plan_runs
from svag.lab.experiments.compare import ELLS, Compare, CompareOptions
from svag.lab.experiments.experiment import Experiment
from svag.lab.experiments.ladder import Ladder, LadderOptions
from svag.lab.experiments.ngd import Ngd, NgdOptions
from svag.lab.experiments.sde_plan import PILOT_ELL, PILOT_SEEDS
from svag.lab.records.storage import make_folder
from svag.lab.report.tracking import following
from svag.lab.specs.fields import SpecError, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from svag.lab.report.write import Judge

    Learned = Callable[[Any], Iterable[str]]  # from the finding of its experiment


@with_setup
@with_options(Compare)
def compare(
    context: typer.Context,
    base: BaseFile,
    ell: Ell = None,
    seeds: Seeds = Compare.default_seeds,
    out: Out = None,
    *,
    options: CompareOptions,
    within: Within = None,
    setup: Setup,
) -> None:
    """Does the SDE describe my training? Train with SGD and with SVAG at several ell, and compare the results.

    If the spec has Adam or AdamW, that optimizer takes the place of SGD.

    With --within, a short pilot chooses ell and seeds so that the answer takes the fewest examples. Add --dry-run after
    the pilot to see the cost.

    Every field of the spec is also a flag: --lr 0.1 --model.norm group. If interrupted, run the same command again: it
    continues where it stopped.

    Example: svag compare base.yaml --within 0.5

    Example: svag compare base.yaml --ell 1 4 16 --seeds 5 --margin 0.01
    """
    folder = out or default_out(base, "compare")
    if within is not None:
        _refuse_beside_within(context)
        limit, metric = options["momentum_limit"], options["metric"]
        pilot = Compare.pilot(load_base(base, context), momentum_limit=limit, metric=metric, file=base)
        _answer_within(pilot, within, folder, setup)
        return
    ells = whole_numbers("--ell", ell) if ell else ELLS
    answer(Compare.of(load_base(base, context), ells, seeds, file=base, **options), folder, setup)


def _refuse_beside_within(context: typer.Context) -> None:
    """Refuse flags that choose arms, as a plan chooses them itself."""
    for name in ("ell", "seeds", "split", "margin", "glsr", "ngd"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise SpecError(f"--{name}", "--within chooses the arms, their seeds and the margin: leave one of them out")


def _answer_within(pilot: Compare, within: float, out: Path, setup: Setup) -> None:
    """Run the pilot, then the plan made from it; a dry run prints the cost of whichever comes next."""
    from svag.lab.execution.conduct import plan_from_pilot

    pilot_of = f"{PILOT_SEEDS} seeds of SGD and of SVAG at ell={PILOT_ELL}"
    typer.echo(f"Planning for --within {within:g} from a pilot: {pilot_of}.", err=True)
    experiment = plan_from_pilot(pilot, within, out, setup.execution, run=not setup.dry_run)
    if setup.dry_run and not experiment.planned():
        typer.echo("The pilot has not been run yet. It will cost:", err=True)
    answer(experiment, out, setup)


@with_setup
@with_options(Ladder)
def ladder(
    context: typer.Context,
    base: BaseFile,
    batch_sizes: Annotated[
        list[str] | None, typer.Option(metavar="N...", help="Batch sizes to run: --batch-sizes 16 32 64 128.")
    ] = None,
    seeds: Seeds = Ladder.default_seeds,
    out: Out = None,
    rule: RuleFlag = "gain",
    *,
    options: LadderOptions,
    setup: Setup,
) -> None:
    """Is the price list right? Train at several batch sizes and compare what was predicted with what they needed.

    The smallest batch size runs first, by the settings of the spec. Its readings set the learning rates and budgets of
    the others (the gain rule). With --rule linear, or square_root for Adam, AdamW and RMSprop, settings scale with the
    batch size instead and budgets stay, as in the paper; with --ell, SVAG then runs at every batch size too and shows
    the SDE limit.

    Every field of the spec is also a flag: --lr 0.1 --model.norm group. If interrupted, run the same command again: it
    continues where it stopped.

    Example: svag ladder base.yaml --batch-sizes 16 32 64 128 256 --seeds 3
    """
    sizes = whole_numbers("--batch-sizes", batch_sizes or [])
    if not sizes:
        raise SpecError("--batch-sizes", "is missing: list the batch sizes, such as --batch-sizes 16 32 64 128")
    experiment = Ladder.of(load_base(base, context), sizes, seeds, rule=rule, file=base, **options)
    answer(experiment, out or default_out(base, "ladder"), setup)


@with_setup
@with_options(Ngd)
def ngd(
    context: typer.Context,
    base: BaseFile,
    seeds: Seeds = Ngd.default_seeds,
    out: Out = None,
    *,
    options: NgdOptions,
    setup: Setup,
) -> None:
    """Does Gaussian noise do what SGD's noise does? Train with SGD, noisy gradient descent (NGD) and gradient descent.

    NGD has Gaussian noise with the covariance of SGD's. The network must not have BatchNorm, and the data must not be
    augmented. Every field of the spec is also a flag.

    Example: svag ngd base.yaml --seeds 3 --data.augment false
    """
    experiment = Ngd.of(load_base(base, context), seeds, file=base, **options)
    answer(experiment, out or default_out(base, "ngd"), setup)


def answer(
    experiment: Experiment,
    out: Path,
    setup: Setup,
    learned: "Learned | None" = None,
    judge: "Judge | None" = None,
) -> None:
    """Carry out an experiment and print its answer; exit code 1 when a run failed.

    Args:
        experiment: what is asked.
        out: the folder of its runs and its page.
        setup: how it is carried out and printed.
        learned: what to print after the answer.
        judge: compares the finding with claims made elsewhere.
    """
    from svag.lab.execution.conduct import carry_out, known_plans, preview

    if setup.dry_run:
        experiment = known_plans(experiment, out)
        announce(preview(experiment, out, setup.execution), setup)
        if experiment.waits:
            typer.echo("The larger batches are planned from these runs: their cost is known after them.", err=True)
        return
    code = [spec for spec in experiment.runs() if spec.model.is_callable]
    left = [run.spec for run in plan_runs(code, out) if run.record().to_do]
    ask_about_code(left, trusted=setup.trust_code)

    with following(out, setup.track):
        experiment, done = carry_out(experiment, out, setup.execution)
    if done.left:
        sentence = f"{done.left} of {len(done.plan)} runs belong to other shards; run without --shard for the answer"
        if experiment.waits:
            sentence = (
                f"{done.left} of {len(done.plan)} runs at the smallest batch size belong to other shards; the larger "
                "ones are planned from all of them, so run this command again when they are done"
            )
        counts = {"runs": len(done.plan), "left": done.left, **({"planned": False} if experiment.waits else {})}
        typer.echo(json.dumps(counts) if setup.as_json else sentence)
    else:
        from svag.lab.report.write import no_claims, report_on, write_files

        with at_work("Reading the runs"):
            finding = experiment.find(done.records)
            made = report_on(experiment, finding, done.records, judge or no_claims)
            written = write_files(made, out / "report", formats=())
        lines = () if learned is None else tuple(learned(finding))
        tell(made, written, as_json=setup.as_json, details=setup.details, learned=lines)
    for failure in done.failures:
        aloud(f"Error: {failure}")
    if done.failures:
        raise typer.Exit(1)


def announce(announcement: Announcement, setup: Setup) -> None:
    """Print what is about to be done: on standard output in a dry run, otherwise on standard error."""
    if setup.dry_run and setup.as_json:
        echo(json.dumps(announcement.to_dict(), indent=2, ensure_ascii=False))
    else:
        echo(str(announcement), err=not setup.dry_run)


Question = Annotated[
    Literal["scaling", "train", "sde"],
    typer.Option(
        help="scaling: what does a larger batch cost? train: train at batch 128 and end where batch 8 ended. sde: does "
        "the SDE describe my training?"
    ),
]


def demo(
    question: Question = "scaling",
    out: Annotated[Path | None, typer.Option(help="Output folder (default: demo-<question>).")] = None,
    workers: Workers = None,
    details: Details = False,
    as_json: AsJson = False,
) -> None:
    """See it work on embedded data: a few minutes on two cores, ending with a page.

    Trains a small batch and prices larger ones from it, then trains those too, to see whether the price was right. With
    --question train, batch 128 trains by the gain rule beside batch 8, measuring as it goes. With --question sde it
    compares SGD with its SDE at a batch that is too large for linear scaling.

    Example: svag demo --question train
    """
    from svag.lab.experiments.demo import SCALING, SDE, TRAIN, learned

    setup = Setup(Execution(workers=workers), details=details, as_json=as_json)
    folder = out or Path(f"demo-{question}")
    with reported():
        if question == "sde":
            answer(SDE, folder, setup, learned)
            return
        ladder = TRAIN if question == "train" else SCALING
        _predict_first(ladder, folder, setup.execution)
        answer(ladder, folder, setup, learned)


def _predict_first(experiment: Ladder, folder: Path, execution: Execution) -> None:
    """Train only the smallest batch size, and print its prediction before the others are trained."""
    from svag.lab.execution.conduct import execute
    from svag.lab.experiments.baseline import predict_from_runs
    from svag.lab.experiments.demo import baseline_runs
    from svag.lab.experiments.gain_finding import baseline_prices

    make_folder(folder)  # a place that cannot be written is refused before a worker has started
    plan = plan_runs(baseline_runs(experiment), folder)
    size = plan[0].spec.batch_size
    typer.echo(
        f"1. The price: train at batch size {size} ({len(plan)} seeds) and measure the gradient noise.", err=True
    )
    records = execute(plan, execution)
    found = predict_from_runs(records).brief(f"svag predict {visible(str(folder))} --details")
    echo(f"\n{found}\n", err=True)
    for larger, price in baseline_prices(experiment, records).items():
        typer.echo(f"Price of batch size {larger}: {price:.2f}× the examples of batch size {size}.", err=True)
    typer.echo("\n2. The check: the same training at larger batches. Was the price right?", err=True)
