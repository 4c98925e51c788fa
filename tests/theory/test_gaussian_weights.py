"""The amplitude of per-example Gaussian weights, against the covariance of enumerated batches."""

from itertools import combinations, product

import numpy as np
import pytest

from svag.theory.weights import IndependentSampling, noise_amplitude


@pytest.mark.parametrize("sampling", ["without_replacement", "with_replacement"])
@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_the_covariance_is_that_of_all_batches(sampling: IndependentSampling, batch_size: int) -> None:
    g = np.array([0.3, -1.0, 2.5, 0.8])
    n = g.size
    draws = combinations(g, batch_size) if sampling == "without_replacement" else product(g, repeat=batch_size)
    variance = np.var([np.mean(batch) for batch in draws])
    for refine in (1, 5):
        alpha = noise_amplitude(batch_size, n, sampling=sampling, refine=refine)
        # Var Σ α(z_i − z̄)g_i = α² Σ(g_i − ḡ)²
        assert alpha**2 * np.square(g - g.mean()).sum() == pytest.approx(refine * variance, rel=1e-12, abs=1e-15)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="must not exceed dataset_size=4"):
        noise_amplitude(5, 4)
    with pytest.raises(ValueError, match="sampling must be one of"):
        noise_amplitude(2, 4, sampling="shuffle")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="dataset_size must be a whole number of at least 2"):
        noise_amplitude(1, 1)
