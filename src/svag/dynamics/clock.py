"""Where a run is: effective steps, the sub-steps inside one, and the settings held over them."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Clock:
    """Counts sub-steps and holds the settings that were read at the start of an effective step.

    A learning rate that changed between the sub-steps of one effective step would converge to another SDE, so what
    `held` says counts until the step ends, whatever a scheduler does meanwhile.

    >>> clock = Clock(ell=2)
    >>> clock.start([0.5]); clock.tick(); clock.start([0.1]); clock.held, clock.time
    ([0.5], 0.25)
    >>> clock.tick(); clock.effective_step, clock.time
    (1, 0.5)

    Attributes:
        ell: sub-steps in an effective step.
        effective_step: effective steps that have ended.
        substep: sub-steps done since then.
        begun: the time when the current effective step began.
        held: the learning rate of every parameter group in the current effective step.
        held_momentum: likewise the momentum.
    """

    ell: int
    effective_step: int = 0
    substep: int = 0
    begun: float = 0.0
    held: list[float] = field(default_factory=list)
    held_momentum: list[float] = field(default_factory=list)

    @property
    def boundary(self) -> bool:
        """Whether an effective step has just ended (or none has begun)."""
        return self.substep == 0

    @property
    def time(self) -> float:
        """Σ η/l over all sub-steps, η of the first parameter group; exactly Σ η at a boundary, for every l."""
        return self.begun if self.boundary else self.begun + self.held[0] * self.substep / self.ell

    @property
    def lr(self) -> float | None:
        """The held learning rate, if all parameter groups have the same."""
        return self.held[0] if len(set(self.held)) == 1 else None

    def start(self, lrs: list[float], momenta: list[float] | None = None) -> None:
        """Begin a sub-step; at a boundary, read the settings to hold."""
        if self.boundary:
            self.held, self.held_momentum = list(lrs), list(momenta or [0.0] * len(lrs))
        elif len(lrs) != len(self.held):
            raise ValueError(
                f"the optimizer had {len(self.held)} parameter groups when this effective step began and has "
                f"{len(lrs)} now: add groups when `boundary` is True"
            )

    def tick(self) -> None:
        """End a sub-step."""
        self.substep += 1
        if self.substep == self.ell:
            self.begun += self.held[0]
            self.effective_step += 1
            self.substep = 0

    def state_dict(self) -> dict[str, Any]:
        """All of it, as plain numbers."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go where `state_dict` was called."""
        if state["ell"] != self.ell:
            raise ValueError(f"the state was saved with {state['ell']} sub-steps in an effective step, not {self.ell}")
        restored = Clock(**state)
        vars(self).update(vars(restored))
