"""The flags that commands share: those of an experiment and of its execution, and every field of a spec.

`--ell 1 4 16`, `--ell 1,4,16` and `--ell 1 --ell 4 --ell 16` mean the same; click itself accepts only the last. A flag
that a command does not know is a field of its spec: `--lr 0.1 --model.norm batch --process '{kind: svag, ell: 4}'`.
"""

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args

import typer
from typer.core import TyperCommand, TyperOption

from svag.lab.cli.errors import aloud, reported
from svag.lab.execution.execution import Device, Execution, Executor
from svag.lab.experiments.experiment import Experiment, Metric
from svag.lab.experiments.ladder import LadderRule
from svag.lab.records.identity import module_file
from svag.lab.report.tracking import Tracker
from svag.lab.specs.documents import parse_value
from svag.lab.specs.fields import SpecError, near, shown
from svag.lab.specs.spec import FIELDS, RunSpec
from svag.lab.training.watching import somebody_watches
from svag.theory.optimizers import MomentumLimit

BaseFile = Annotated[Path, typer.Argument(metavar="BASE", help="YAML spec of your run.")]
Out = Annotated[
    Path | None,
    typer.Option(help="Output folder (default: experiments/<name>)."),
]
Seeds = Annotated[int, typer.Option(min=1, metavar="N", help="Seeds per arm.")]
Ell = Annotated[
    list[str] | None,
    typer.Option("--ell", metavar="N...", help="Values of SVAG's ell: --ell 1 4 16 (1 is the optimizer itself)."),
]
RuleFlag = Annotated[
    LadderRule,
    typer.Option(
        metavar="RULE",
        help="gain: end at the same training loss, at a price that the smallest batch predicts. linear (SGD) or "
        "square_root (Adam, AdamW, RMSprop): the rules of the paper.",
    ),
]
Within = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="Find the SDE's result and the gap to ±X (percentage points of accuracy, or units of loss); a pilot "
        "chooses ell, split and seeds.",
    ),
]

# The flag of each option of an experiment: a new one is a row here.
OPTIONS: dict[str, Any] = {
    "measured": Annotated[
        bool, typer.Option("--measured", help="Measure the gain while training, instead of planning it beforehand.")
    ],
    "ells": Ell,
    "split": Annotated[
        int, typer.Option(min=1, metavar="N", help="SVAG draws batches of 1/N of the size, to save examples.")
    ],
    "momentum_limit": Annotated[
        MomentumLimit | None,
        typer.Option(
            "--momentum-limit",
            metavar="LIMIT",
            help="With momentum, the limit that SVAG follows: underdamped or overdamped.",
        ),
    ],
    "tolerance": Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Scaling fails where the test error exceeds the lowest by this fraction (default: 0.2; 0.02 for bits "
            "per character of text).",
        ),
    ],
    "c2": Annotated[float, typer.Option(metavar="X", help="C²: the factor by which training statistics may change.")],
    "glsr": Annotated[
        list[str] | None,
        typer.Option(metavar="N...", help="Also run the coupled ladder, each batch cut into N parts: --glsr 2 4."),
    ],
    "ngd": Annotated[bool, typer.Option("--ngd", help="Also run noisy gradient descent (NGD), to explain the gap.")],
    "margin": Annotated[
        float, typer.Option(metavar="X", help="Largest gap that would not matter to you, in units of the metric.")
    ],
    "metric": Annotated[
        Metric | None,
        typer.Option(
            metavar="METRIC",
            help="test_accuracy (default), test_loss, train_loss or test_bits_per_character (default for text).",
        ),
    ],
}
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Details = Annotated[bool, typer.Option("--details", help="Print everything that was found.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the number of runs and the expected time, then stop.")]

HOW = "Where and how it runs"  # these flags have their own box in the help
TrustCode = Annotated[
    bool,
    typer.Option("--trust-code", help="Run the code of your own network without asking.", rich_help_panel=HOW),
]
Workers = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Runs at a time (default: one per core).", rich_help_panel=HOW)
]
Threads = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Torch threads per run; more than 1 helps large networks only.", rich_help_panel=HOW
    ),
]
DeviceFlag = Annotated[Device, typer.Option(help="Device to train on.", rich_help_panel=HOW)]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder with the data files (default: $SVAG_DATA or the user cache).", rich_help_panel=HOW),
]


Track = Annotated[
    Tracker | None,
    typer.Option(metavar="NAME", help="Also log the runs to tensorboard, wandb or mlflow.", rich_help_panel=HOW),
]

# The fields of `Execution` that are flags of every command that carries out runs.
EXECUTION: dict[str, Any] = {
    "workers": Workers,
    "threads": Threads,
    "device": DeviceFlag,
    "data_dir": DataDir,
    "shard": Annotated[
        str | None,
        typer.Option(
            metavar="I/N", help="Compute only part I of N of the runs, counted from 0: 0/4 to 3/4.", rich_help_panel=HOW
        ),
    ],
    "executor": Annotated[
        Executor, typer.Option(help="Run on this machine, or on a Ray cluster.", rich_help_panel=HOW)
    ],
    "address": Annotated[
        str | None,
        typer.Option(
            help="Address of the Ray cluster; auto: this machine's (default: $RAY_ADDRESS, or a new local Ray).",
            rich_help_panel=HOW,
        ),
    ],
}


@dataclass(frozen=True)
class Setup:
    """The flags that all commands which carry out runs have in common."""

    execution: Execution
    dry_run: bool = False
    as_json: bool = False
    details: bool = False
    trust_code: bool = False
    track: Tracker | None = None


Command: TypeAlias = Callable[..., None]


def in_place_of(
    parameter: str, flags: Mapping[str, tuple[Any, Any]], value_of: Callable[[dict[str, Any]], object]
) -> Callable[[Command], Command]:
    """Give a command flags in place of one of its parameters.

    Args:
        parameter: the name of the parameter.
        flags: annotation and default of each flag.
        value_of: what the command gets, from the values of the flags.
    """
    shown = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in flags.items()
    ]

    def decorated(command: Command) -> Command:
        own = inspect.signature(command).parameters
        every = [flag for name in own for flag in (shown if name == parameter else [own[name]])]

        @wraps(command)
        def with_flags(**given: Any) -> None:
            value = value_of({name: given.pop(name) for name in flags})
            command(**given, **{parameter: value})

        with_flags.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        with_flags.__annotations__ = {flag.name: flag.annotation for flag in every}
        return with_flags

    return decorated


def with_setup(command: Command) -> Command:
    """Give a command the flags of `Execution` and of `Setup` in place of its parameter `setup`.

    Errors that a user can do something about are reported in one sentence.
    """
    default = {field.name: field.default for field in fields(Execution)}
    flags: dict[str, tuple[Any, Any]] = {name: (flag, default[name]) for name, flag in EXECUTION.items()}
    switches = {"trust_code": TrustCode, "dry_run": DryRun, "details": Details, "as_json": AsJson}
    flags |= {"track": (Track, None), **{name: (switch, False) for name, switch in switches.items()}}

    def setup_of(given: dict[str, Any]) -> Setup:
        return Setup(execution_from({name: given.pop(name) for name in EXECUTION}), **given)

    return reported()(in_place_of("setup", flags, setup_of)(command))


def with_options(family: type[Experiment]) -> Callable[[Command], Command]:
    """Give a command the flags of an experiment's options in place of its parameter `options`.

    The experiment lists the options, and its fields have the defaults.
    """
    panel = get_args(family.model_fields["panels"].annotation)[0]
    known = {**panel.model_fields, **family.model_fields}
    default = {name: known[name].default for name in family.options.__annotations__}
    # an empty tuple, or a default that depends on the other fields, is a flag that was not given
    flags = {
        name: (OPTIONS[name], value if isinstance(value, bool | int | float) else None)
        for name, value in default.items()
    }

    def options_of(given: dict[str, Any]) -> dict[str, Any]:
        lists = given.keys() & {"ells", "glsr"}
        return given | {name: whole_numbers(f"--{name.removesuffix('s')}", given[name] or []) for name in lists}

    return in_place_of("options", flags, options_of)


def execution_from(flags: dict[str, Any]) -> Execution:
    """The execution that the flags describe; an invalid value is refused by the name of its flag."""
    try:
        return Execution(**{**flags, "shard": shard_of(flags["shard"])})
    except SpecError as error:
        raise SpecError(f"--{error.path.replace('_', '-')}", error.reason) from None


def shard_of(text: str | None) -> tuple[int, int] | None:
    """Part i of n of a plan, counted from 0.

    >>> shard_of("3/4")
    (3, 4)
    """
    if text is None:
        return None
    parts = re.fullmatch(r"(\d+)/(\d+)", text)
    if not parts:
        raise SpecError("shard", f"must be i/n, such as 0/4 for the first of four, got {shown(text)}")
    return int(parts[1]), int(parts[2])


def somebody_is_there() -> bool:
    """Whether a person can see and answer a question; under torchrun nothing is asked."""
    asked = sys.stdin is not None and sys.stdin.isatty() and somebody_watches()
    return os.environ.get("WORLD_SIZE", "1") == "1" and asked


def ask_about_code(specs: Iterable[RunSpec], *, trusted: bool, quiet: bool = False) -> None:
    """Print which modules the networks of the specs import, and continue only with --trust-code or a confirmation.

    A spec may come from anybody, and importing a module runs its code. Python callers already run their own code and
    are not asked; nor are workers, which run what has been confirmed.
    """
    for module in dict.fromkeys(spec.model.arch.partition(":")[0] for spec in specs if spec.model.is_callable):
        file = module_file(module, Path.cwd())
        if not trusted and not somebody_is_there():
            reason = f"runs the code of {module} ({file}): give --trust-code if you trust it"
            raise SpecError("model.arch", reason)
        if not quiet:
            aloud(f"Note: model.arch runs the code of {module} ({file}).")
        if not trusted and not typer.confirm("Run it?", err=True):
            raise SpecError("model.arch", f"{module} was not imported, and nothing ran")


_NUMBERS = re.compile(r"[\d.,]+")


class ExperimentCommand(TyperCommand):
    """A command that accepts unknown flags anywhere, as fields of a spec."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let click parse its own flags; the others are left in `ctx.args`."""
        known = {name: param for param in self.params if isinstance(param, TyperOption) for name in _names(param)}
        own, fields = separate(args, known)
        super().parse_args(ctx, own)
        left: list[str] = [*ctx.args, *fields]
        ctx.args = left
        return left


def _names(option: TyperOption) -> list[str]:
    return [*option.opts, *option.secondary_opts]


def separate(args: Sequence[str], known: dict[str, TyperOption]) -> tuple[list[str], list[str]]:
    """Split the arguments into those of the command, with repeated flags for several values, and unknown flags."""
    own: list[str] = []
    fields: list[str] = []
    rest = list(args)
    while rest:
        flag = rest.pop(0)
        name, equals, value = flag.partition("=")
        option = known.get(name)
        if not flag.startswith("--"):
            own.append(flag)
        elif option is None and flag != "--help":
            fields.append(flag)
            if not equals and rest:
                fields.append(rest.pop(0))
        elif option is not None and option.multiple:
            values = [value] if equals else rest[:1]
            del rest[: 0 if equals else 1]
            while rest and _NUMBERS.fullmatch(rest[0]):
                values.append(rest.pop(0))
            for given in values or [""]:
                own += [name, given]
        else:
            own.append(flag)
            if option is not None and not option.is_flag and not equals and rest:
                own.append(rest.pop(0))
    return own, fields


def whole_numbers(flag: str, values: Sequence[str]) -> tuple[int, ...]:
    """Numbers given as separate arguments, or separated by commas.

    >>> whole_numbers("--ell", ["1", "4,16"])
    (1, 4, 16)
    """
    numbers = []
    for text in ",".join(values).split(",") if values else []:
        if not text.strip().isdecimal() or int(text) < 1:
            raise SpecError(flag, f"takes whole numbers above 0, such as 1 4 16, got {shown(text)}")
        numbers.append(int(text))
    return tuple(numbers)


KNOWN = [f"{above}.{name}" if above else name for above, names in FIELDS.items() for name in names]


def edits_from(arguments: Sequence[str], also: Sequence[str] = ()) -> dict[str, Any]:
    """Read flags of the form `--path value` and `--path=value`; values are YAML.

    >>> edits_from(["--lr", "0.1", "--model.norm=batch", "--schedule.at", "[0.5]"])
    {'lr': 0.1, 'model.norm': 'batch', 'schedule.at': [0.5]}

    `also` names the flags of the command itself, so that these are suggested too for a misspelt one.
    """
    edits: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        flag = rest.pop(0)
        if not flag.startswith("--"):
            raise SpecError(flag, "give one spec; set a field with --name value")
        path, equals, text = flag[2:].partition("=")
        path = path.replace("-", "_")
        if path not in KNOWN:
            raise SpecError(f"--{path}", f"there is no such field; {near(path, [*also, *KNOWN])}")
        if not equals:
            if not rest:
                raise SpecError(f"--{path}", "needs a value")
            text = rest.pop(0)
        if path in edits:
            raise SpecError(f"--{path}", "is given twice")
        edits[path] = parse_value(text)
    return edits


def load_base(path: Path, context: typer.Context) -> RunSpec:
    """Read the base of an experiment, with the unknown flags of the command as its fields."""
    return RunSpec.load(path, field_edits(context))


def field_edits(context: typer.Context) -> dict[str, Any]:
    """The fields that the flags replace in every base of an experiment."""
    own = [name for option in context.command.params for name in option.opts if name.startswith("--")]
    edits = edits_from(context.args, also=[name.removeprefix("--") for name in own])
    if "seed" in edits:
        raise SpecError("--seed", "every arm runs with the same seeds: set their number with --seeds")
    return edits


def default_out(base: Path, experiment: str) -> Path:
    """The default folder of an experiment."""
    return Path("experiments") / f"{base.stem}-{experiment}"
