r"""The gain of the current step from the readings of a run: an average as short as the readings allow."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from svag.theory import domain
from svag.theory.estimators import NoiseEstimate
from svag.theory.gain import gain

# Largest standard error of log(gain) for an average: prices are known to no better than 30% anyway.
_ERROR = 0.1
# Minimum number of readings in an average; during these, a negative G does not yet count as "only noise".
_FEWEST = 10
# Number of readings over which the spread of single readings is averaged. It is longer than the averages themselves, so
# that one outlier does not lengthen the memory in which it stays.
_SPREAD = 100


@dataclass
class RunningGain:
    r"""Ratio of running averages of G and N, read as the gain at any batch size.

    Every reading moves the averages of Ĝ and of the noise of one example, Ŝ = N̂B/(1 − B/n), which does not depend on
    the batch size B that it was read at:

    $$\bar G_k = \bar G_{k-1} + a_k(\hat G_k - \bar G_{k-1}), \qquad a_k = \max\Bigl(\frac1{k+1}, a\Bigr),
      \qquad k = 0, 1, \dots$$

    and the same for S. At the baseline's batch size B₀ the noise is N₀ = S̄(1 − B₀/n)/B₀, and the gain of a step at
    κB₀ is that of ρ = N₀/Ḡ (`svag.theory.gain`). n is the argument `population`; without one, B/n and B₀/n are 0. No
    Ĝ is clipped before it is averaged: most of the readings of a noisy gradient would then be too large.

    **Memory.** N/G rises along a run, so a long average lags behind and costs data. To first order a reading moves
    log(gain) by a times

    $$u = \frac{(\kappa-1)(\bar G\,\Delta N - N_0\,\Delta G)}{(\bar G+N_0)(\kappa\bar G+N_0)}$$

    where ΔG and ΔN are what it differs by from the average. If v is the variance of u over single readings, the
    exponential average has se(log gain)² = v·a/(2 − a), and the shortest memory with a standard error of at most
    s = 0.1 is

    $$a = \min\Bigl(\frac1{10}, \frac{2s^2}{v+s^2}\Bigr).$$

    v is half the mean square of u for the differences between *successive* readings, which a trend hardly enters, over
    the last hundred of them. a_k uses only the readings before k, so that a reading does not affect its own weight.

    **Start.** Where Ḡ ≤ 0 the gain is κ, but min(1, κ) during the first ten readings. A run with Ḡ, N₀ ≤ 0 has no
    gradient, and the gain min(1, κ).

    >>> running = RunningGain(base_batch_size=4)
    >>> running.add(NoiseEstimate(grad_sq=1.0, noise_trace=2.0), batch_size=16)
    >>> running.gain(16)  # S = 32, N₀ = 8 and κ = 4: 4·9/12
    3.0
    >>> running.add(NoiseEstimate(grad_sq=-3.0, noise_trace=2.0), batch_size=16)
    >>> running.gain(16)  # the average of G is −1, after two readings
    1.0

    Attributes:
        base_batch_size: B₀, batch size of the baseline.
        population: n, examples that batches are drawn from without replacement.
        count: number of readings.
        grad_sq: Ḡ.
        example_noise: S̄, noise trace of a batch of one example.
        spread: v.
        last: Ĝ and Ŝ of the last reading.
    """

    base_batch_size: int
    population: int | None = None
    count: int = 0
    grad_sq: float = 0.0
    example_noise: float = 0.0
    spread: float = 0.0
    last: tuple[float, float] | None = None

    @property
    def weight(self) -> float:
        """a_k, the weight of the next reading."""
        shortest = min(1 / _FEWEST, 2 * _ERROR**2 / (self.spread + _ERROR**2))
        return max(1 / (self.count + 1), shortest)

    def add(self, found: NoiseEstimate, batch_size: int) -> None:
        """Add the reading of a step of `batch_size` examples."""
        signal, noise = found.grad_sq, found.noise_trace * batch_size / self._distinct(batch_size)
        weight, before = self.weight, self.last
        self.grad_sq += weight * (signal - self.grad_sq)
        self.example_noise += weight * (noise - self.example_noise)
        self.last, self.count = (signal, noise), self.count + 1
        if before is not None:
            moved = self._influence(signal - before[0], noise - before[1], batch_size)
            self.spread += max(1 / (self.count - 1), 1 / _SPREAD) * (moved**2 / 2 - self.spread)

    def gain(self, batch_size: int) -> float:
        """Gain of a step of `batch_size` examples; min(1, κ) before the first reading."""
        kappa = batch_size / self.base_batch_size
        signal, noise = self.grad_sq, self._base_noise(self.example_noise)
        least, most = min(1.0, kappa), max(1.0, kappa)
        if signal <= 0:
            return least if self.count <= _FEWEST or noise <= 0 else kappa
        # at κ = 1 the optimizer must take exactly its own step, in spite of rounding
        return min(max(gain(max(noise, 0.0) / signal, kappa), least), most)

    def state_dict(self) -> dict[str, Any]:
        """The averages so far, as plain numbers."""
        state = asdict(self)
        return {**{name: state[name] for name in _STATE}, "last": None if self.last is None else list(self.last)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        last = state["last"]
        signal, noise, spread = (domain.finite(name, state[name]) for name in ("grad_sq", "example_noise", "spread"))
        self.count = domain.whole("count", state["count"], at_least=0)
        self.grad_sq, self.example_noise, self.spread = signal, noise, spread
        self.last = None if last is None else (float(last[0]), float(last[1]))

    def _distinct(self, batch_size: int) -> float:
        """1 − B/n, the share of the noise that remains when drawing without replacement."""
        return 1.0 if self.population is None else 1 - batch_size / self.population

    def _base_noise(self, example_noise: float) -> float:
        return example_noise * self._distinct(self.base_batch_size) / self.base_batch_size

    def _influence(self, signal: float, noise: float, batch_size: int) -> float:
        """The change of log(gain) if the averages changed by these differences in Ĝ and Ŝ."""
        kappa, g, n = batch_size / self.base_batch_size, max(self.grad_sq, 0.0), self._base_noise(self.example_noise)
        if n <= 0:
            return 0.0
        return (kappa - 1) * (g * self._base_noise(noise) - n * signal) / ((g + n) * (kappa * g + n))


_STATE = ("count", "grad_sq", "example_noise", "spread", "last")
