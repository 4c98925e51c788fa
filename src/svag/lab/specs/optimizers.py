"""The optimizers of a spec, one class per kind. The learning rate and the weight decay are fields of the spec itself.

`settings` returns the settings of one step, which know how they scale with the batch size and how SVAG refines them
(`svag.theory`). Whether a process is defined for an optimizer is checked here too.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from svag.lab.specs.fields import NonNegative, Rate, SpecError, SpecPart
from svag.lab.specs.parts import FULL_PASS, GlsrSpec, Process, SdeSpec, SvagSpec
from svag.theory.adaptive import AdamSettings, RMSpropSettings
from svag.theory.optimizers import Rule, SGDSettings

TITLES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop"}
"""Names of the optimizers for people, by kind."""


class _OptimizerSpec(SpecPart):
    kind: str

    @property
    def title(self) -> str:
        """Its name for people."""
        return TITLES[self.kind]

    @property
    def rule(self) -> Rule:
        """The rule by which its settings change with the batch size."""
        return "square_root"

    @property
    def averages(self) -> dict[str, float]:
        """The rates β of its moving averages that the rule changes, by their names in a spec."""
        return {}


class SgdOptimizer(_OptimizerSpec):
    """torch.optim.SGD.

    >>> SgdOptimizer(momentum=0.9)
    SgdOptimizer(kind='sgd', momentum=0.9)
    """

    kind: Literal["sgd"] = "sgd"
    momentum: Rate = 0.0

    @property
    def rule(self) -> Rule:
        """The rule by which its settings change with the batch size."""
        return "linear"

    def settings(self, lr: float, weight_decay: float) -> SGDSettings:
        """The settings of one step."""
        return SGDSettings(lr=lr, weight_decay=weight_decay, momentum=self.momentum)


class _Adam(_OptimizerSpec):
    betas: tuple[Rate, Rate] = (0.9, 0.999)
    eps: NonNegative = 1e-8
    decoupled: ClassVar[bool] = False

    @property
    def averages(self) -> dict[str, float]:
        """The rates β; β₁ = 0 stays 0."""
        first, second = self.betas
        return {"betas[0]": first, "betas[1]": second} if first else {"betas[1]": second}

    def settings(self, lr: float, weight_decay: float) -> AdamSettings:
        """The settings of one step."""
        return AdamSettings(lr, self.betas, self.eps, weight_decay, self.decoupled)


class AdamOptimizer(_Adam):
    """torch.optim.Adam, with coupled weight decay: L2 regularisation, a part of the gradient.

    >>> AdamOptimizer(betas=(0.98, 0.999)).settings(lr=0.5, weight_decay=0.0).scaled(4).lr
    1.0

    Attributes:
        betas: the rates of the averages of the gradient and of its square.
        eps: added to the root of the second average.
    """

    kind: Literal["adam"] = "adam"


class AdamwOptimizer(_Adam):
    """torch.optim.AdamW: Adam with decoupled weight decay, which multiplies the weights by 1 − ηλ in every step.

    >>> AdamwOptimizer().settings(lr=0.5, weight_decay=0.25).scaled(4).weight_decay
    0.5
    """

    kind: Literal["adamw"] = "adamw"
    decoupled: ClassVar[bool] = True


class RmspropOptimizer(_OptimizerSpec):
    """torch.optim.RMSprop without momentum, with coupled weight decay.

    Attributes:
        alpha: the rate of the average of the squared gradient.
        eps: added to its root.
    """

    kind: Literal["rmsprop"] = "rmsprop"
    alpha: Rate = 0.99
    eps: NonNegative = 1e-8

    @property
    def averages(self) -> dict[str, float]:
        """The rate of its one average."""
        return {"alpha": self.alpha}

    def settings(self, lr: float, weight_decay: float) -> RMSpropSettings:
        """The settings of one step."""
        return RMSpropSettings(lr, self.alpha, self.eps, weight_decay)


Optimizer: TypeAlias = Annotated[
    SgdOptimizer | AdamOptimizer | AdamwOptimizer | RmspropOptimizer, Field(discriminator="kind")
]


def optimizer_of_a_kind(value: Any) -> Any:
    """Take an optimizer without a kind for SGD: `optimizer: {momentum: 0.9}`."""
    return {"kind": "sgd", **value} if isinstance(value, Mapping) and "kind" not in value else value


def check_process(optimizer: Optimizer, process: Process) -> None:
    """Refuse a process that is not defined for the optimizer."""
    limit = process.momentum_limit if isinstance(process, SvagSpec) else None
    if not isinstance(optimizer, SgdOptimizer):
        _check_adaptive(optimizer, process)
    elif optimizer.momentum:
        if isinstance(process, SvagSpec) and limit is None:
            raise SpecError("process.momentum_limit", "momentum has two limits: choose underdamped or overdamped")
        if isinstance(process, GlsrSpec | SdeSpec):
            raise SpecError("optimizer.momentum", f"{process.kind} is defined without momentum: set it to 0")
    elif limit is not None:
        raise SpecError("process.momentum_limit", "is named, but momentum is 0: leave it out")


def _check_adaptive(optimizer: AdamOptimizer | AdamwOptimizer | RmspropOptimizer, process: Process) -> None:
    """Adaptive optimizers have SVAG, by the square-root rule; the other processes are defined for SGD only."""
    kind = optimizer.kind
    if isinstance(process, (GlsrSpec, *FULL_PASS)):
        raise SpecError(
            "process.kind",
            f"{process.kind} is defined for SGD only: use sgd or svag with {kind}, or optimizer.kind sgd",
        )
    if not isinstance(process, SvagSpec):
        return
    if process.momentum_limit is not None:
        raise SpecError("process.momentum_limit", f"is about SGD, and {kind} has one limit: leave it out")
    if process.split > 1:
        raise SpecError("process.split", f"is defined for SGD only: leave it out with {kind}")
    if isinstance(optimizer, RmspropOptimizer) and process.ell > 1:
        raise SpecError(
            "optimizer.kind",
            "SVAG needs a warm second moment, and a run with rmsprop starts cold: use "
            f"{{kind: adam, betas: [0, {optimizer.alpha:g}]}}, which corrects for that",
        )
