"""What is known about an answer besides its numbers, as codes: one enumeration, worded in `svag.prices.wording`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from svag.printed import Printed

Value = float | int | str | bool | None


class Code(StrEnum):
    """Everything that can be known about a price list or the linear rule, in the order of `wording.SENTENCES`."""

    # too little is known for an answer
    PARTS_FAR = "parts_far"
    NEGATIVE_SIGNAL = "negative_signal"
    RUNS_DIFFER = "runs_differ"
    TOO_FEW_FROZEN = "too_few_frozen"
    TOO_FEW_READINGS = "too_few_readings"
    SIGNAL_UNRESOLVED = "signal_unresolved"
    # what the price rests on
    UNTESTED_OPTIMIZER = "untested_optimizer"
    WINDOW = "window"
    WINDOW_ONLY = "window_only"
    FEW_BLOCKS = "few_blocks"
    PARTS_UNCHECKED = "parts_unchecked"
    PARTS_NEAR = "parts_near"
    STEPS_TOO_SHORT = "steps_too_short"
    MISSES_START = "misses_start"
    NO_STEPS = "no_steps"
    ONE_PHASE = "one_phase"
    # why no theorem applies to the linear rule
    ONLY_SGD = "only_sgd"
    NOT_COVERED = "not_covered"
    SVAG_READINGS = "svag_readings"
    SETTINGS_UNKNOWN = "settings_unknown"
    MIXED_SETTINGS = "mixed_settings"
    ZERO_RATE = "zero_rate"
    NO_WEIGHT_DECAY = "no_weight_decay"
    ONLY_GROWS = "only_grows"
    NOT_BALANCED = "not_balanced"
    DRIFTS = "drifts"
    INVARIANCE_UNTESTED = "invariance_untested"
    X_NOT_MEASURED = "x_not_measured"
    X_UNRESOLVED = "x_unresolved"
    NOT_INVARIANT = "not_invariant"
    RATE_VARIES = "rate_varies"
    MOMENTUM_VARIES = "momentum_varies"
    VELOCITY_MISSING = "velocity_missing"
    # what else is known of the linear rule
    PROVED = "proved"
    SDE_RULED_OUT = "sde_ruled_out"
    PULL = "pull"
    NEARLY_INVARIANT = "nearly_invariant"
    X_MEASURED = "x_measured"
    X_ESTIMATED = "x_estimated"
    X_NEGATIVE = "x_negative"
    SECOND_MOMENT_UNKNOWN = "second_moment_unknown"
    SECOND_MOMENT_SETTLED = "second_moment_settled"
    SECOND_MOMENT_OFF = "second_moment_off"
    RULE_ENDS = "rule_ends"
    EPS_FELT = "eps_felt"


DOUBTS = frozenset(
    (
        Code.PARTS_FAR,
        Code.NEGATIVE_SIGNAL,
        Code.RUNS_DIFFER,
        Code.TOO_FEW_FROZEN,
        Code.TOO_FEW_READINGS,
        Code.SIGNAL_UNRESOLVED,
    )
)
"""An answer with one of these is not resolved."""

NO_THEOREM = frozenset(
    (
        Code.ONLY_SGD,
        Code.UNTESTED_OPTIMIZER,
        Code.NOT_COVERED,
        Code.SVAG_READINGS,
        Code.SETTINGS_UNKNOWN,
        Code.MIXED_SETTINGS,
        Code.ZERO_RATE,
        Code.NO_WEIGHT_DECAY,
        Code.ONLY_GROWS,
        Code.NOT_BALANCED,
        Code.DRIFTS,
        Code.INVARIANCE_UNTESTED,
        Code.X_NOT_MEASURED,
        Code.X_UNRESOLVED,
        Code.NOT_INVARIANT,
        Code.RATE_VARIES,
        Code.MOMENTUM_VARIES,
        Code.VELOCITY_MISSING,
    )
)
"""Each of these says that a premise of all theorems is not met."""


@dataclass(frozen=True, repr=False)
class Reason(Printed):
    """One thing that is known about an answer; `str(reason)` says it.

    >>> reason = Reason(Code.TOO_FEW_READINGS, {"readings": 12, "blocks": 2, "needed": 120})
    >>> reason.code, reason.values["needed"]
    (<Code.TOO_FEW_READINGS: 'too_few_readings'>, 120)
    >>> print(reason)
    Too few readings: 12, and a reliable list needs about 120.

    Attributes:
        code: which one.
        values: its numbers and names.
    """

    code: Code
    values: Mapping[str, Value] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Return code, values and the sentence for a JSON document."""
        return {"code": self.code.value, "values": dict(self.values), "text": str(self)}

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return f"<svag.Reason {self.code}{': ' * bool(values)}{values}>"

    def __str__(self) -> str:
        from svag.prices.wording import sentence  # which imports the codes

        return sentence(self)
