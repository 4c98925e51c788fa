"""What the measured run used: its batch size, its optimizer and the optimizer's settings."""

from dataclasses import dataclass

from svag.as_json import JsonRow
from svag.prices.averages import Averages
from svag.theory.gain import Factors
from svag.theory.optimizers import OptimizerKind, Rule, optimizer_kind


@dataclass(frozen=True)
class RunSetting(JsonRow):
    """Batch size, optimizer and those of its settings that have a single value.

    >>> setting = RunSetting(32, optimizer="SGD", lr=0.1)
    >>> setting.rate_at(2.7), setting.rate_at(2.7, first=1.9)
    ('0.27', '0.27 (0.19 at first)')
    >>> RunSetting(32, optimizer="AdamW").rate_at(4.0, first=2.25)
    '× 2 (× 1.5 at first)'

    Attributes:
        batch_size: B of the run.
        optimizer: its kind, or None when unknown.
        lr: η, or None when it varied or is unknown.
        weight_decay: λ, or None when unknown.
        momentum: β of SGD, 0 when there is none.
        betas: rates of the averages of Adam, (0, alpha) of RMSprop; None when they varied or are unknown.
        eps: of the same optimizers; None when it varied or is unknown.
        population: number of examples that batches are drawn from without replacement, or None.
    """

    batch_size: int
    optimizer: str | None = None
    lr: float | None = None
    weight_decay: float | None = None
    momentum: float = 0.0
    betas: tuple[float, float] | None = None
    eps: float | None = None
    population: int | None = None

    @classmethod
    def of(cls, averages: Averages) -> "RunSetting":
        """Return what the averaged readings have in common."""
        shared = averages.shared
        return cls(
            shared.batch_size,
            shared.optimizer,
            averages.lr,
            shared.weight_decay,
            averages.momentum,
            averages.betas,
            averages.eps,
            shared.population,
        )

    @property
    def kind(self) -> OptimizerKind:
        """What is known of the optimizer."""
        return optimizer_kind(self.optimizer)

    @property
    def rule(self) -> Rule:
        """How a gain changes the settings; an unknown optimizer is treated as plain gradient steps."""
        return self.kind.rule or "linear"

    def factors(self, gain: float) -> Factors:
        """What the settings are multiplied by at a gain."""
        return Factors.at(gain, self.rule, decoupled=self.kind.decoupled)

    def rate_at(self, gain: float, first: float | None = None) -> str:
        """The learning rate at a gain, and that of the first phase if it differs; factors if η has no single value."""
        rate = self._rate(gain)
        start = rate if first is None else self._rate(first)
        return rate if start == rate else f"{rate} ({start} at first)"

    def _rate(self, gain: float) -> str:
        factor = self.factors(gain).lr
        return f"{self.lr * factor:.2g}" if self.lr else f"× {factor:.2g}"

    def diverges_at(self, gain: float) -> bool:
        """Whether weight decay alone makes the weights diverge at this gain."""
        factors = self.factors(gain)
        felt = self.kind.decoupled or self.kind.family == "sgd"
        decay = (self.lr or 0.0) * factors.lr * (self.weight_decay or 0.0) * factors.weight_decay
        return felt and decay >= 2

    def linear_settings(self, kappa: float) -> str:
        """All settings that the linear (square-root) rule asks for at κ times the batch."""
        return self.kind.settings_at(kappa, lr=self.lr, weight_decay=self.weight_decay, betas=self.betas, eps=self.eps)

    def linear_rate(self, kappa: float) -> str:
        """The learning rate alone of that rule; a dash where no rule is known."""
        return "–" if self.kind.rule is None else self._rate(kappa)
