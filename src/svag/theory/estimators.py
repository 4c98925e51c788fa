r"""Unbiased estimates of G and N from a few batch gradients at one point, used by every probe.

Everything follows from two sums over n gradients, $\sum|g_i|^2$ and $|\sum g_i|^2$, which a stream can keep; parts of
different sizes also need their weights. The gradients must belong to the same x: from successive steps the estimate of
G tends to −G instead.
"""

from dataclasses import dataclass

from svag.theory import domain


@dataclass(frozen=True)
class NoiseEstimate:
    """Unbiased estimates of G and N. A negative one is valid, and must not be clipped before it is averaged.

    Attributes:
        grad_sq: estimate of G = |∇L|².
        noise_trace: estimate of N = Tr Σ at the batch size that the function which made it names.
    """

    grad_sq: float
    noise_trace: float


def u_statistic(sum_sq: float, sq_sum: float, n: int) -> NoiseEstimate:
    r"""Estimates from n independent batches of one size; N is that of one of these batches.

    $$\hat N = s^2 = \frac{\sum|g_i|^2 - |\sum g_i|^2/n}{n-1}, \qquad
      \hat G = \Bigl|\tfrac1n\sum g_i\Bigr|^2 - \frac{s^2}n = \frac{|\sum g_i|^2 - \sum|g_i|^2}{n(n-1)}$$

    where $\sum|g_i|^2$ is the argument `sum_sq` and $|\sum g_i|^2$ is `sq_sum`. For n = 2 they are |g₁ − g₂|²/2 and
    ⟨g₁, g₂⟩.

    >>> u_statistic(sum_sq=1.0 + 9.0, sq_sum=16.0, n=2)  # the gradients 1 and 3
    NoiseEstimate(grad_sq=3.0, noise_trace=2.0)

    Reference: McCandlish et al. (2018), appendix A, has the same estimator with all small batches used.
    """
    if domain.whole("n", n) < 2:
        raise ValueError(f"n must be at least 2, got {n}: one gradient cannot tell signal from noise")
    domain.non_negative("sum_sq", sum_sq)
    domain.non_negative("sq_sum", sq_sum)
    spread = (sum_sq - sq_sum / n) / (n - 1)
    # spread is negative only by rounding, when all gradients are equal
    return NoiseEstimate(grad_sq=(sq_sum - sum_sq) / (n * (n - 1)), noise_trace=max(spread, 0.0))


def disjoint_parts(
    sum_sq: float, sq_sum: float, n: int, *, part_size: float, batch_size: int, population: int | None = None
) -> NoiseEstimate:
    r"""Estimates from n disjoint parts of a shuffled data set, with N at `batch_size`.

    $$\hat G = \hat G_U + \frac bP s^2, \qquad \hat N = \frac bB\Bigl(1 - \frac BP\Bigr)s^2$$

    where b is the argument `part_size`, B is `batch_size`, P is `population` (None: so large that the parts are as good
    as independent) and $\hat G_U$, s² are the `u_statistic` of the parts. Disjoint parts repel each other, which lowers
    the product of any two gradients by (b/P)s².

    - The k micro-batches of one step: n = k parts of b = B/k.
    - Several batches of one shuffled epoch: b = B.

    >>> disjoint_parts(10.0, 16.0, 2, part_size=4, batch_size=8)  # two halves of one batch
    NoiseEstimate(grad_sq=3.0, noise_trace=1.0)
    >>> disjoint_parts(10.0, 16.0, 2, part_size=4, batch_size=8, population=16)
    NoiseEstimate(grad_sq=3.5, noise_trace=0.5)
    >>> disjoint_parts(10.0, 16.0, 2, part_size=8, batch_size=8, population=16)  # the whole epoch: |ḡ|² is exact
    NoiseEstimate(grad_sq=4.0, noise_trace=1.0)
    """
    estimate = u_statistic(sum_sq, sq_sum, n)
    share = domain.positive("part_size", part_size) / domain.whole("batch_size", batch_size)
    if population is None:
        return NoiseEstimate(estimate.grad_sq, share * estimate.noise_trace)
    domain.population(population, batch_size)
    if n * part_size > population:
        raise ValueError(
            f"{n} parts of {part_size:g} examples cannot be disjoint in a population of {population}: "
            "leave out population when batches are drawn independently of each other"
        )
    return NoiseEstimate(
        estimate.grad_sq + part_size / population * estimate.noise_trace,
        share * (1 - batch_size / population) * estimate.noise_trace,
    )


def weighted_parts(
    sum_sq: float, sq_sum: float, weights_sq: float, *, batch_size: int | None = None, population: int | None = None
) -> NoiseEstimate:
    r"""Estimates from the parts of one batch that count with different weights, with N at the whole batch.

    $$\hat G = \frac{|\sum c_i|^2 - \sum|c_i|^2}{1 - \sum w_i^2}, \qquad \hat N = |\sum c_i|^2 - \hat G$$

    where $c_i = w_i g_i$ is what part i adds to the gradient of the step, with weights of sum 1 such as its share of
    the tokens; $\sum|c_i|^2$ is the argument `sum_sq`, $|\sum c_i|^2$ is `sq_sum` and $\sum w_i^2$ is
    `weights_sq`. They are unbiased for parts of any variances, if the parts are independent, share one mean, and the
    weights are independent of the gradients. With equal weights 1/n this is the `u_statistic`. Otherwise a single N may
    be negative, too.

    With a `population` P the parts are disjoint in it, `batch_size` is B, and the weights are the shares of its
    examples: then $\hat G + (B/P)\hat N$ and $(1 - B/P)\hat N$ take their place.

    >>> weighted_parts(sum_sq=0.25 + 2.25, sq_sum=4.0, weights_sq=0.5)  # the gradients 1 and 3, half each
    NoiseEstimate(grad_sq=3.0, noise_trace=1.0)
    >>> weighted_parts(sum_sq=0.0625 + 5.0625, sq_sum=6.25, weights_sq=0.625)  # weights 1/4 and 3/4
    NoiseEstimate(grad_sq=3.0, noise_trace=3.25)
    """
    if not 0 < domain.finite("weights_sq", weights_sq) < 1:
        raise ValueError(
            f"the squares of the weights must add up to a number between 0 and 1, got {weights_sq:g}: a batch has at "
            "least two parts, of positive weight, and their weights add up to 1"
        )
    domain.non_negative("sum_sq", sum_sq)
    grad_sq = (domain.non_negative("sq_sum", sq_sum) - sum_sq) / (1 - weights_sq)
    noise_trace = sq_sum - grad_sq
    if population is None:
        return NoiseEstimate(grad_sq, noise_trace)
    if batch_size is None:
        raise ValueError("population is given, and batch_size is not: how much of it a batch takes must be known")
    taken = domain.whole("batch_size", batch_size) / domain.population(population, batch_size)
    return NoiseEstimate(grad_sq + taken * noise_trace, (1 - taken) * noise_trace)
