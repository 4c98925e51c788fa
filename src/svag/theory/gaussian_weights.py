"""Per-example weights whose weighted gradient has exactly the covariance of a batch (eq:noisy_gd, eq:em)."""

import math
from typing import Literal, get_args

from svag.theory import domain

IndependentSampling = Literal["without_replacement", "with_replacement"]


def noise_amplitude(
    batch_size: float,
    dataset_size: int,
    *,
    sampling: IndependentSampling = "without_replacement",
    refine: int = 1,
) -> float:
    r"""Amplitude α of the weights 1/n + α(z_i − z̄), z ~ N(0, I), that make a full pass a noisy gradient.

    $$\alpha = \sqrt{\frac{s}{nB}}\;\Bigl[\sqrt{\tfrac{n-B}{n-1}}\text{ without replacement}\Bigr]$$

    where B is the argument `batch_size`, n is `dataset_size` and s is `refine`: the covariance of the weighted gradient
    is then s times that of a batch of B. Infinite B has no noise.

    >>> noise_amplitude(4, 16, sampling="with_replacement")
    0.125
    >>> noise_amplitude(4, 16, sampling="with_replacement", refine=4)
    0.25
    >>> noise_amplitude(math.inf, 16), noise_amplitude(16, 16)
    (0.0, 0.0)
    """
    n, s = domain.whole("dataset_size", dataset_size, at_least=2), domain.whole("refine", refine)
    if sampling not in get_args(IndependentSampling):
        raise ValueError(f"sampling must be one of {', '.join(get_args(IndependentSampling))}, got {sampling!r}")
    if batch_size == math.inf:
        return 0.0
    B = domain.whole("batch_size", batch_size)
    if sampling == "with_replacement":
        return math.sqrt(s / (n * B))
    if n < B:
        raise ValueError(f"batch_size must not exceed dataset_size={n} without replacement, got {batch_size}")
    return math.sqrt(s / (n * B) * (n - B) / (n - 1))
