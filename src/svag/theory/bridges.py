"""From N/G to the quantities other people report: the gradient noise scale and AdaScale's gain."""

import math

from svag.theory import domain


def b_simple(batch_size: float, noise_to_signal: float, population: int | None = None) -> float:
    """Gradient noise scale of McCandlish et al.: B_simple = B·N/G with N the with-replacement trace.

    When N was measured on batches drawn without replacement, give the number of examples as `population`: the trace
    is then divided by 1 − B/n.

    >>> b_simple(128, 10.0)
    1280.0
    >>> b_simple(100, 10.0, population=1000)
    1111.111111111111
    """
    scale = domain.positive("batch_size", batch_size) * domain.noise_to_signal(noise_to_signal)
    if population is None:
        return scale
    domain.population(population, batch_size)
    return scale / (1 - batch_size / population)


def adascale_gain(noise_to_signal: float, scale: float = math.inf) -> float:
    """AdaScale's gain at `scale` times the batch, (ρ + 1)/(ρ/scale + 1); its limit is 1 + ρ.

    >>> adascale_gain(10.0)
    11.0
    >>> adascale_gain(10.0, scale=10.0)
    5.5
    """
    rho = domain.noise_to_signal(noise_to_signal)
    if math.isnan(scale) or scale < 1:
        raise ValueError(f"scale must be at least 1, got {scale}")
    if math.isinf(rho):
        return scale
    return (rho + 1) / (rho / scale + 1)
