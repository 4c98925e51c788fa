"""One reading of the gradient noise, G, N and R at one moment of a run, and the files that hold readings.

In `metrics.jsonl` a reading is a row without the fields that have their default. A file of readings has one JSON object
per line, and several runs may append to it at once. Nothing here needs torch, so that prices can be computed from a
file alone.
"""

import errno
import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from operator import itemgetter
from pathlib import Path
from typing import Any

from svag.printed import Printed
from svag.theory import domain


@dataclass(frozen=True, repr=False)
class Reading(Printed):
    """Unbiased estimates of G = |∇L|² and N = Tr Σ at one point x, with the batch size that N belongs to.

    A single G may well be negative: average readings first, divide last (`svag.price_list` does).

    >>> reading = Reading(0.5, noise_trace=8.0, param_sq=100.0, batch_size=128, n=4, lr=0.5)
    >>> Reading(**reading.to_dict()) == reading
    True
    >>> print(reading)
    G = 0.5, N = 8 at batch size 128, R = 100 (4 gradients)

    Attributes:
        grad_sq: estimate of G, the squared norm of the full gradient; unbiased, so it may be negative.
        noise_trace: estimate of N, the trace of the covariance of one batch gradient at `batch_size`; the
            without-replacement one when `population` is given. Negative only from parts of different weights.
        param_sq: R, the squared norm of the measured parameters.
        batch_size: B, examples averaged by one optimizer step, over all micro-batches and ranks.
        n: how many gradients the estimates are made of (2 for a pair, k for k parts of a batch).
        step: effective step of the run, counted from 0.
        lr: η, the learning rate of the run (SVAG divides it by `ell` itself).
        weight_decay: λ, coupled L2 as in torch.optim.SGD.
        momentum: β of torch.optim.SGD.
        optimizer: kind of optimizer, by its class ("SGD", "AdamW", …).
        population: number of examples that batches are drawn from without replacement; None means with replacement,
            or too many to matter.
        ell: SVAG's refinement; 1 is SGD.
        velocity_sq: |v|² of the momentum buffer of torch.optim.SGD.
        param_dot_grad: ⟨x, ĝ⟩, 0 for a scale-invariant loss (lem:sc).
        relative_error: half-width of the 95% interval of N/G, relative to N/G; only a frozen reading knows it.
        approximate: the parts had other BatchNorm statistics than the batch, so N and G are not exactly the run's.
        parts_ratio: N/G of such parts divided by that of whole batches, if they were compared.
        run: which run the reading belongs to, when several share a file.
        second_moment: V, the sum of v̂ of Adam, AdamW or RMSprop over the measured parameters: the second moment of the
            gradient that the next step would divide by, bias-corrected where the optimizer does so. None before the
            first step.
        betas: rates of the averages of the gradient and of its square; (0, alpha) for RMSprop.
        eps: what the optimizer adds to the root of v̂.
        dimension: number of entries of the measured parameters, if V is known; √(V/dimension) is the root mean square
            of what eps is added to.
        weights_sq: Σw² over the weights of the parts, if they had any; None if all parts counted the same.
    """

    grad_sq: float
    noise_trace: float
    param_sq: float
    batch_size: int
    n: int
    step: int | None = None
    lr: float | None = None
    weight_decay: float | None = None
    momentum: float | None = None
    optimizer: str | None = None
    population: int | None = None
    ell: int = 1
    velocity_sq: float | None = None
    param_dot_grad: float | None = None
    relative_error: float | None = None
    approximate: bool = False
    parts_ratio: float | None = None
    run: str = ""
    second_moment: float | None = None
    betas: tuple[float, float] | None = None
    eps: float | None = None
    dimension: int | None = None
    weights_sq: float | None = None

    def __post_init__(self) -> None:
        given = vars(self)
        for name, value in given.items():
            # defaults need no check, and most fields of most readings have theirs
            if value is not _DEFAULTS[name]:
                given[name] = _CHECKS[name](name, value)
        if self.weights_sq is None and self.noise_trace < 0:
            raise ValueError(f"noise_trace must not be negative, got {self.noise_trace}")
        if self.population is not None:
            domain.population(self.population, self.batch_size)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; `Reading(**fields)` reads them back."""
        return dict(vars(self))

    def __str__(self) -> str:
        return (
            f"G = {self.grad_sq:.4g}, N = {self.noise_trace:.4g} at batch size {self.batch_size}, "
            f"R = {self.param_sq:.4g} ({self.n} gradients)"
        )


def _number(value: Any) -> float:
    """A number of Python, numpy or torch as a float; NaN for text, booleans and anything else."""
    if not hasattr(value, "__float__") or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except (ArithmeticError, TypeError, ValueError, RuntimeError):
        return math.nan


def _whole(at_least: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        number = _number(value)
        if not (number.is_integer() and number >= at_least):
            raise ValueError(f"{name} must be a whole number from {at_least} on, got {domain.shown(value)}")
        return int(value)

    return check


def _real(what: str, inside: Callable[[float], bool] = math.isfinite) -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        number = _number(value)
        if not (math.isfinite(number) and inside(number)):
            raise ValueError(f"{name} must be {what}, got {domain.shown(value)}")
        return number

    return check


def _of_type(kind: type, what: str) -> Callable[[str, Any], Any]:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, kind):
            raise ValueError(f"{name} must be {what}, got {domain.shown(value)}")
        return value

    return check


def _betas(name: str, value: Any) -> tuple[float, float]:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"{name} must be two rates, got {domain.shown(value)}")
    return _rate(name, value[0]), _rate(name, value[1])


_finite = _real("a finite number")
_non_negative = _real("a finite number that is not negative", lambda x: x >= 0)
_positive = _real("a positive finite number", lambda x: x > 0)
_rate = _real("a rate in [0, 1)", lambda x: 0 <= x < 1)
_text = _of_type(str, "text")


def _printable(name: str, value: Any) -> str:
    if not _text(name, value).isprintable():  # it is shown in terminals and charts, where an escape code would act
        raise ValueError(f"{name} must be the name of a class, got {domain.shown(value)}")
    return str(value)


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Reading)}
_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "grad_sq": _finite,
    "noise_trace": _finite,
    "param_sq": _non_negative,
    "batch_size": _whole(1),
    "n": _whole(2),
    "step": _whole(0),
    "lr": _non_negative,
    "weight_decay": _non_negative,
    "momentum": _rate,
    "optimizer": _printable,
    "population": _whole(1),
    "ell": _whole(1),
    "velocity_sq": _non_negative,
    "param_dot_grad": _finite,
    "relative_error": _non_negative,
    "approximate": _of_type(bool, "true or false"),
    "parts_ratio": _positive,
    "run": _text,
    "second_moment": _non_negative,
    "betas": _betas,
    "eps": _non_negative,
    "dimension": _whole(1),
    "weights_sq": _real("a number in (0, 1)", lambda x: 0 < x < 1),
}
_NEEDED = [field.name for field in fields(Reading)][:5]


KIND = "reading"


def row_of(reading: Reading) -> dict[str, Any]:
    """The row of a reading.

    >>> row_of(Reading(0.5, 8.0, 100.0, 128, 4, step=7))
    {'kind': 'reading', 'grad_sq': 0.5, 'noise_trace': 8.0, 'param_sq': 100.0, 'batch_size': 128, 'n': 4, 'step': 7}
    """
    return {"kind": KIND, **{name: value for name, value in vars(reading).items() if value != _DEFAULTS[name]}}


def columns_of(readings: Sequence[Reading]) -> dict[str, list[Any]]:
    """Many readings as one list per field, without the fields that all leave at their default: for a checkpoint.

    >>> columns_of([Reading(0.5, 8.0, 100.0, 128, 4), Reading(0.25, 8.0, 100.0, 128, 4)])["grad_sq"]
    [0.5, 0.25]
    """
    found = [vars(reading) for reading in readings]
    columns = {name: list(map(itemgetter(name), found)) for name in _CHECKS}
    return {name: column for name, column in columns.items() if column.count(_DEFAULTS[name]) < len(found)}


def readings_of(saved: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]) -> list[Reading]:
    """The readings of `columns_of`, or of rows, which version 0.1.0 wrote."""
    if not isinstance(saved, Mapping):
        return [reading_of(row) for row in saved]
    return [reading_of(dict(zip(saved, values, strict=True))) for values in zip(*saved.values(), strict=True)]


def reading_of(row: Mapping[str, Any]) -> Reading:
    """Make the reading of a row; refuse a missing or unknown field by name."""
    given = {name: value for name, value in row.items() if name != "kind"}
    for name in given:
        if name not in _CHECKS:
            raise ValueError(f"{domain.shown(name)} is no field of a reading")
    for name in _NEEDED:
        if name not in given:
            raise ValueError(f"{name} is missing")
    return Reading(**given)


class PartialWriteError(OSError):
    """The first `readings` of those given are in the file for good: undoing a write that was cut short failed, too."""

    readings = 0


def append_readings(path: str | Path, readings: Iterable[Reading]) -> None:
    """Append `readings` to a file in one write, so that runs which share the file do not cut each other's lines.

    Either all are written or none: if the disk is full, a partial write is undone before the error is raised. Where
    that fails, too, `PartialWriteError` says how many are written.

    >>> import tempfile
    >>> reading = Reading(grad_sq=0.5, noise_trace=8.0, param_sq=100.0, batch_size=128, n=4, run="seed 0")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     append_readings(f"{folder}/readings.jsonl", [reading])
    ...     append_readings(f"{folder}/readings.jsonl", [reading])
    ...     len(load_readings(f"{folder}/readings.jsonl"))
    2
    """
    lines = "".join(json.dumps(reading.to_dict()) + "\n" for reading in readings)
    with os.fdopen(open_to_append(Path(path)), "r+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        torn = size > 0 and file.seek(size - 1) >= 0 and file.read(1) != b"\n"  # a crash cut the last line
        content = (("\n" if torn else "") + lines).encode()
        left, written = memoryview(content), 0
        try:
            while left:
                done = file.write(left)  # the system may write less than it was given
                left, written = left[done:], written + done
        except BaseException as error:  # an interrupt too
            with suppress(OSError):
                if file.seek(0, os.SEEK_END) == size + written:  # unless another run has appended its own
                    file.truncate(size)
                    written = 0
            if written and isinstance(error, OSError):
                partly = PartialWriteError(error.errno, error.strerror, str(path))
                partly.readings = (content[:written] + b"\n").count(b"}\n")  # a line is read without its end, too
                raise partly from error
            raise


def open_to_append(path: Path) -> int:
    """Open a file to read it and append to it, made if it is not there; a link or a pipe in its place is refused."""
    binary, no_link = getattr(os, "O_BINARY", 0), getattr(os, "O_NOFOLLOW", 0)  # neither is on every system
    return regular(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | binary | no_link, 0o666), path)


def regular(handle: int, path: Path) -> int:
    """Return an open file, or close and refuse what is not a regular one."""
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


LARGEST = 2**30
"""More bytes than the metrics of a run or any readings have: longer files are not read."""


def load_readings(path: str | Path) -> list[Reading]:
    """Read the readings of a file in the order in which they were written.

    A line that a crash cut short is left out; anything else that is not a reading is refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "readings.jsonl").write_text("")
    ...     load_readings(f"{folder}/readings.jsonl")
    []
    """
    if "\0" in os.fspath(path):
        raise ValueError("the name of a file has no NUL character in it: give another path")
    if Path(path).exists() and not Path(path).is_file():  # a pipe or a device may never end
        raise ValueError(f"{path} is not a plain file: a file of readings has one JSON object a line")
    if (size := Path(path).stat().st_size) > LARGEST:
        raise ValueError(f"{path} has {size:,} bytes, more than {LARGEST:,}: split it, or give the file of one run")
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text: a file of readings has one JSON object a line") from error
    return [_parse(line, path, number) for number, line in enumerate(lines, start=1) if line and not _torn(line)]


def _torn(line: str) -> bool:
    # a reading is a flat object, so a truncated one never ends in a brace
    return line.startswith("{") and not line.endswith("}")


def _parse(line: str, path: str | Path, number: int) -> Reading:
    where = f"line {number} of {path}"
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON ({error.msg}); remove it to read the others") from error
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply; remove it to read the others") from None
    except ValueError:  # Python refuses to parse a number with thousands of digits
        raise ValueError(f"{where} is not a reading: a number in it has too many digits") from None
    if not isinstance(row, dict):
        raise ValueError(f"{where} is not a reading: it is no JSON object")
    try:
        return reading_of(row)
    except ValueError as error:
        raise ValueError(f"{where} is not a reading: {error}") from None
