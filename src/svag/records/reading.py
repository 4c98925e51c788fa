"""One reading of the gradient noise, G, N and R at one moment of a run, and the files that hold readings.

In `metrics.jsonl` a reading is a row without what it leaves at its default. A file of readings has one JSON object a
line, and may be appended to by several runs at once.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from svag.printed import Printed
from svag.records.fields import spec_error
from svag.records.files import open_to_append
from svag.theory import domain

Finite = Annotated[float, Field(allow_inf_nan=False)]
_NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Rate = Annotated[float, Field(ge=0, lt=1)]


def _in_one_sentence(made: Any) -> Any:
    """Let a class refuse bad values by a ValueError of one line, instead of pydantic's report of several."""
    check = made.__init__

    @wraps(check)
    def init(self: object, *values: Any, **named: Any) -> None:
        try:
            check(self, *values, **named)
        except ValidationError as error:
            raise ValueError(str(spec_error(error, {}))) from None

    made.__init__ = init
    return made


@_in_one_sentence
@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Reading(Printed):
    """Unbiased estimates of G = |∇L|² and N = Tr Σ at one point x, with the batch size that N belongs to.

    A single G may well be negative: average readings first, divide last (`svag.predict_critical_batch` does).

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
        parts_ratio: how much larger N/G of such parts was than that of whole batches, where this was compared.
        run: which run the reading belongs to, when several share a file.
        second_moment: V, the sum of v̂ of Adam, AdamW or RMSprop over the measured parameters: the second moment of the
            gradient that the next step would divide by, bias-corrected where the optimizer does so. None before the
            first step.
        betas: rates of the averages of the gradient and of its square; (0, alpha) for RMSprop.
        eps: what the optimizer adds to the root of v̂.
        dimension: how many numbers the measured parameters are, where V is known: √(V/dimension) is what eps is added
            to in the root mean square.
        weights_sq: Σw² over the weights of the parts, where they had different ones; None where all counted the same.
    """

    grad_sq: Finite
    noise_trace: Finite
    param_sq: _NonNegative
    batch_size: Annotated[int, Field(ge=1)]
    n: Annotated[int, Field(ge=2)]
    step: Annotated[int, Field(ge=0)] | None = None
    lr: _NonNegative | None = None
    weight_decay: _NonNegative | None = None
    momentum: _Rate | None = None
    optimizer: str | None = None
    population: Annotated[int, Field(ge=1)] | None = None
    ell: Annotated[int, Field(ge=1)] = 1
    velocity_sq: _NonNegative | None = None
    param_dot_grad: Finite | None = None
    relative_error: _NonNegative | None = None
    approximate: bool = False
    parts_ratio: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    run: str = ""
    second_moment: _NonNegative | None = None
    betas: tuple[_Rate, _Rate] | None = None
    eps: _NonNegative | None = None
    dimension: Annotated[int, Field(ge=1)] | None = None
    weights_sq: Annotated[float, Field(gt=0, lt=1)] | None = None

    @model_validator(mode="after")
    def _holds_a_batch(self) -> Self:
        if self.weights_sq is None and self.noise_trace < 0:
            raise ValueError(f"noise_trace must not be negative, got {self.noise_trace}")
        if self.population is not None:
            domain.population(self.population, self.batch_size)
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; `Reading(**fields)` reads them back."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"G = {self.grad_sq:.4g}, N = {self.noise_trace:.4g} at batch size {self.batch_size}, "
            f"R = {self.param_sq:.4g} ({self.n} gradients)"
        )


KIND = "reading"
_DEFAULTS = {field.name: field.default for field in fields(Reading)}


def row_of(reading: Reading) -> dict[str, Any]:
    """The row of a reading.

    >>> row_of(Reading(0.5, 8.0, 100.0, 128, 4, step=7))
    {'kind': 'reading', 'grad_sq': 0.5, 'noise_trace': 8.0, 'param_sq': 100.0, 'batch_size': 128, 'n': 4, 'step': 7}
    """
    return {"kind": KIND, **{name: value for name, value in reading.to_dict().items() if value != _DEFAULTS[name]}}


def reading_of(row: dict[str, Any]) -> Reading:
    """The reading of a row."""
    return Reading(**{name: value for name, value in row.items() if name != "kind"})


_READING = TypeAdapter(Reading)


def append_readings(path: str | Path, readings: Iterable[Reading]) -> None:
    """Append `readings` to a file in one write, so that runs which share the file do not cut each other's lines.

    >>> import tempfile
    >>> reading = Reading(grad_sq=0.5, noise_trace=8.0, param_sq=100.0, batch_size=128, n=4, run="seed 0")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     append_readings(f"{folder}/readings.jsonl", [reading])
    ...     append_readings(f"{folder}/readings.jsonl", [reading])
    ...     len(load_readings(f"{folder}/readings.jsonl"))
    2
    """
    lines = "".join(json.dumps(reading.to_dict()) + "\n" for reading in readings)
    handle = open_to_append(Path(path))
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and os.pread(handle, 1, size - 1) != b"\n"  # a crash cut the last line: start a new one
        os.write(handle, (("\n" if torn else "") + lines).encode())
    finally:
        os.close(handle)


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
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not text: a file of readings has one JSON object a line") from error
    return [_parse(line, path, number) for number, line in enumerate(lines, start=1) if line and not _torn(line)]


def _torn(line: str) -> bool:
    # a reading is one flat object, so that no proper beginning of it ends in a brace
    return line.startswith("{") and not line.endswith("}")


def _parse(line: str, path: str | Path, number: int) -> Reading:
    try:
        return _READING.validate_python(json.loads(line))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part)[:40] for part in first["loc"]) or "the line"
        raise ValueError(f"line {number} of {path} is not a reading: {where}: {first['msg']}") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number} of {path} is not JSON ({error.msg}); remove it to read the others") from error
    except RecursionError:
        raise ValueError(f"line {number} of {path} is nested too deeply; remove it to read the others") from None
    except ValueError:  # Python reads no number of thousands of digits
        raise ValueError(f"line {number} of {path} is not a reading: a number in it has too many digits") from None
