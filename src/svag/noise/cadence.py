"""Which steps are measured: every k-th, with k given or chosen so that a run slows down by about 3%."""

import math
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Literal

from svag.theory import domain

Every = int | Literal["auto"]

# The share of a run that a probe may cost with "auto", the seconds of it that calls take in a step that is not measured
# (of a tiny network, nearly all of the share), and what readings may cost even there.
_SHARE, _CALLS, _LEAST = 0.028, 20e-6, 0.005
# Number of steps that are timed, and the distance between those that are measured.
TIMED, APART = 50, 5
# The first steps allocate memory, compile, and check the loss.
_WARM_UP = APART


class Cadence:
    """Decides for every step whether it is measured.

    With "auto" the first 50 steps are timed, from the end of one step to the end of the next, and every fifth of them
    is measured. From the lower quartiles of both kinds, k is the smallest number for which measuring every k-th step
    costs what calls in the other steps leave of 3%, but 0.5% at least. The ten steps measured so far count as well:
    measuring pauses until the run is within this budget.

    >>> Cadence(10).next(20), Cadence(10).next(21)
    (True, False)

    Args:
        every: k, or "auto".
        wait: waits until the device has finished a step; called in timed steps only.
        agree: what the first rank has chosen, on all ranks.

    Attributes:
        every: k; None while "auto" is still timing.
    """

    def __init__(
        self, every: Every, *, wait: Callable[[], None] = lambda: None, agree: Callable[[int], int] = lambda k: k
    ) -> None:
        self.auto = every == "auto"
        self.every = None if every == "auto" else domain.whole("every", every)
        self._wait, self._agree = wait, agree
        self._first = 0  # measure every k-th step from here on
        self._begun: int | None = None
        self._ended: float | None = None
        self._times: tuple[list[float], list[float]] = ([], [])

    def next(self, step: int) -> bool:
        """Whether `step` is measured; call it once for each step, when the previous one is over."""
        if self.every is None:
            self._time(step)
        if self.every is None:
            return (step - (self._begun or 0)) % APART == 0
        return step >= self._first and (step - self._first) % self.every == 0

    def _time(self, step: int) -> None:
        """Record the time of the step that has just ended; after the last timed step, choose k."""
        self._wait()
        now = perf_counter()
        if self._begun is None:
            self._begun = step
        passed = step - self._begun
        if self._ended is not None and passed > _WARM_UP:
            self._times[(passed - 1) % APART == 0].append(now - self._ended)
        self._ended = now
        if passed >= TIMED:
            # lower quartiles, as other work on the machine can only make a step slower
            plain, measured = (sorted(times)[len(times) // 4] for times in self._times)
            self.every = self._agree(chosen(plain, measured))
            self._first = self._begun + max(TIMED, TIMED // APART * self.every)

    def readings(self, steps: int) -> int:
        """How many of the first `steps` are measured, once k is known."""
        assert self.every is not None
        timed = TIMED // APART if self.auto else 0
        return timed + max(0, math.ceil((steps - self._first) / self.every))

    def state_dict(self) -> dict[str, Any]:
        """The k that "auto" has chosen."""
        return {"every": self.every, "first": self._first}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Restore the chosen k; time again if none was chosen yet. A k that was given is kept."""
        if self.auto:
            self._begun = self._ended = None
            self._times = ([], [])
            self.every, self._first = (None, 0) if state is None else (state["every"], state["first"])


def chosen(plain: float, measured: float) -> int:
    """The smallest k at which measuring keeps to its share of the run, from the seconds of both kinds of step.

    >>> chosen(0.1, 0.29), chosen(0.1, 0.102), chosen(0.1, 0.09), chosen(0.0003, 0.0009)
    (69, 1, 1, 400)
    """
    if plain <= 0:
        return 1
    spent = max(_LEAST, _SHARE - _CALLS / plain)
    return max(1, math.ceil(round((measured - plain) / (spent * plain), 9)))
