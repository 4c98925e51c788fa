"""How many readings of a correlated series are worth one independent reading."""

import numpy as np
from numpy.typing import ArrayLike

from svag.stats.samples import finite_row


def integrated_autocorrelation_time(series: ArrayLike, window: float = 5.0) -> float:
    r"""Integrated autocorrelation time τ of a stationary series, in readings; 1 for independent readings.

    $$\hat\tau = 1 + 2\sum_{t=1}^{M}\hat\rho(t), \quad M \text{ the first with } M \ge c\,\hat\tau(M)$$

    where c is the argument `window`. Var(mean) = τ·Var/n. The shortfall of ρ̂ that comes from subtracting the sample
    mean, a factor 1 + (2M + 1)/n, is put back. A constant series, and one whose readings alternate (τ < 1), count as
    independent: never trust a mean more than that.

    >>> integrated_autocorrelation_time([1.0, 1.0, 1.0, 1.0])
    1.0
    >>> blocks_of_ten = np.repeat(np.random.default_rng(0).normal(size=2000), 10)
    >>> 9 < integrated_autocorrelation_time(blocks_of_ten) < 11
    True

    Reference: Sokal (1997), section 3; Wolff (2004) for the factor.
    """
    row = finite_row("series", series, at_least=2)
    centred = row - row.mean()
    scale = np.abs(centred).max()
    if scale <= 1e-14 * np.abs(row).max():  # constant up to the rounding of its mean
        return 1.0
    n = row.size
    spectrum = np.fft.rfft(centred / scale, n=1 << (2 * n - 1).bit_length())
    autocovariance = np.fft.irfft(spectrum * spectrum.conj())[:n]
    tau = 2 * np.cumsum(autocovariance / autocovariance[0]) - 1
    lags = np.arange(n)
    stop = int(
        np.argmax(lags >= window * np.maximum(tau, 1.0))
    )  # there is one: τ̂(n − 1) = 0. Fewer than 6 readings: lag 0
    return max(1.0, float(tau[stop]) * (1 + (2 * stop + 1) / n))
