"""One reading of the gradient noise: G, N and R at one moment of a run, and what the optimizer was doing then."""

from dataclasses import asdict
from functools import wraps
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from svag.records.refusal import spec_error
from svag.theory import domain

Finite = Annotated[float, Field(allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


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
class Reading:
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
            without-replacement one when `population` is given.
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
    """

    grad_sq: Finite
    noise_trace: NonNegative
    param_sq: NonNegative
    batch_size: Annotated[int, Field(ge=1)]
    n: Annotated[int, Field(ge=2)]
    step: Annotated[int, Field(ge=0)] | None = None
    lr: NonNegative | None = None
    weight_decay: NonNegative | None = None
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = None
    optimizer: str | None = None
    population: Annotated[int, Field(ge=1)] | None = None
    ell: Annotated[int, Field(ge=1)] = 1
    velocity_sq: NonNegative | None = None
    param_dot_grad: Finite | None = None
    relative_error: NonNegative | None = None
    approximate: bool = False
    parts_ratio: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    run: str = ""

    @model_validator(mode="after")
    def _holds_a_batch(self) -> Self:
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
