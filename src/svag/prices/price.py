"""One row of the price list: what one batch size costs, and the settings that this price belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass

from svag.as_json import json_fields_of
from svag.prices.estimate import Estimate
from svag.prices.linear import LinearRow
from svag.prices.plan import GainPlan
from svag.printed import Printed
from svag.theory import domain
from svag.theory.gain import Factors

Throughput = Mapping[int, float | Estimate]


@dataclass(frozen=True, repr=False)
class Price(Printed):
    """What one batch size costs, at the learning rate of the gain rule.

    >>> from svag import Reading, price_list
    >>> readings = [Reading(1.0, 8.0, 1.0, 32, 4, step=k, lr=0.1, optimizer="SGD") for k in range(400)]
    >>> price = price_list(readings).prices([128])[0]
    >>> price.kappa, round(price.gain, 6), price.settings  # D = (4 + 8)/(1 + 8) = 4/3
    (4.0, 3.0, '0.3')
    >>> round(price.examples.value, 6), price.plan.steps(400)
    (1.333333, 134)

    Attributes:
        batch_size: the batch that is priced.
        kappa: κ, how many times the batch of the run it is; may be below 1.
        examples: how many times as many examples the run takes, ∫D dτ/T of the plan. Its ends are the range seen on
            committed ladders, and do not depend on a confidence level; an end that is not known is infinite, or 0.
        distortion: D of the window's N/G, with the sampling interval alone.
        time: relative to the batch of the run, with the ranges of `examples` and of the measured speeds; None without
            a throughput.
        plan: the gain along the steps of the run.
        settings: learning rate for the table, the main one and that of the first phase, as "0.27 (0.19 at first)".
        factors: what the settings are multiplied by, at `gain`.
        linear: what is known of the linear (Adam: square-root) rule there.
    """

    batch_size: int
    kappa: float
    examples: Estimate
    distortion: Estimate
    time: Estimate | None
    plan: GainPlan
    settings: str
    factors: Factors
    linear: LinearRow

    @property
    def gain(self) -> float:
        """κ over `examples`: the factor in the learning rate (Adam: its square), on average over the run."""
        return self.kappa / self.examples.value

    @property
    def steps(self) -> float:
        """`examples` over κ: the factor in the number of steps."""
        return self.examples.value / self.kappa

    def to_dict(self) -> dict[str, object]:
        """Return everything for a JSON document; infinity is null."""
        numbers = json_fields_of(self, "batch_size", "kappa", "examples", "gain", "steps", "distortion", "time")
        return {**numbers, **json_fields_of(self, "settings", "factors", "plan", "linear")}

    def row(self) -> dict[str, object]:
        """Return one flat row for a DataFrame."""
        return {
            "batch_size": self.batch_size,
            "kappa": self.kappa,
            "settings": self.settings,
            **_cells("examples", self.examples),
            "gain": self.gain,
            "steps": self.steps,
            **_cells("distortion", self.distortion),
            **_cells("time", self.time),
            "linear_settings": self.linear.settings,
            "linear_ruled_out": self.linear.ruled_out,
        }

    def __str__(self) -> str:
        time = "" if self.time is None else f" in {self.time.value:.2f}× the time"
        return f"{self.batch_size}: {self.examples.value:.2f}× the examples{time}, learning rate {self.settings}"


def _cells(name: str, found: Estimate | None) -> dict[str, float | None]:
    """A number and its limits as three cells of a flat row."""
    value, low, high = (None, None, None) if found is None else (found.value, found.low, found.high)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def checked_throughput(throughput: Throughput | None, batch_size: int) -> dict[int, Estimate]:
    """Speeds with their spread; that of the run must be among them."""
    speeds = {}
    for size, speed in (throughput or {}).items():
        exact = speed if isinstance(speed, Estimate) else Estimate(speed, speed, speed)
        domain.positive(f"throughput[{size}]", exact.low)
        speeds[size] = exact
    if speeds and batch_size not in speeds:
        raise ValueError(f"throughput must also hold the batch size of the run, {batch_size}, to compare with")
    return speeds


def relative_time(examples: Estimate, size: int, base: int, speeds: Mapping[int, Estimate]) -> Estimate | None:
    """Examples × speed at the batch of the run over speed at this one, or None when the speed there is unknown.

    >>> exact = {32: Estimate(100.0, 100.0, 100.0), 64: Estimate(200.0, 160.0, 250.0)}
    >>> print(relative_time(Estimate(1.5, 1.0, 2.0), 64, 32, exact))
    0.75 [0.4, 1.25]
    """
    if size not in speeds:
        return None
    small, large = speeds[base], speeds[size]
    if size == base:
        return Estimate(1.0, 1.0, 1.0)
    return Estimate(
        examples.value * small.value / large.value,
        examples.low * small.low / large.high,
        examples.high * small.high / large.low,
    )
