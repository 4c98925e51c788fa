r"""The range of a price: how far measured prices were from predicted ones on committed ladders.

A ladder is one network and data set trained at several batch sizes. Its pairs (baseline, larger batch) each give a
ratio, examples needed over price. Pairs of one ladder are alike, so a new run is compared with ladders rather than
pairs: with L ladders, each pair of a ladder with n pairs has weight 1/((L + 1)n). The remaining weight, 1/(L + 1),
belongs to the new run and may lie beyond either end. With probability p at least, the ratio of a pair of a new ladder
is then at most the smallest ratio up to which the weights add up to p. A pair that never reached the baseline's loss
counts as an infinite ratio. The range is the same for every price.

`ranges.json` holds the ratios; `tools/make_ranges.py` writes it from the records in `results/`.

Reference: Lee, Barber and Willett (2023), hierarchical conformal prediction.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.resources import files
from statistics import NormalDist

from svag.stats.samples import probability
from svag.theory import domain


@dataclass(frozen=True)
class Calibration:
    """Ratios of measured to predicted prices, by ladder.

    Attributes:
        rule: what the larger batches were trained with.
        ladders: ratios of the pairs of each ladder; infinite where the baseline's loss was never reached.
        log_error: median standard error of the logarithm of their prices, from sampling N/G.
    """

    rule: str
    ladders: tuple[tuple[float, ...], ...]
    log_error: float = 0.0

    def upper(self, level: float) -> float:
        """Ratio below which a new ladder's lies with probability at least `level`; infinite if unknown.

        >>> Calibration("", ((0.9,), (1.0, 1.2), (1.5,))).upper(0.5)  # 1/4 and 1/8 are not enough, 1/4 + 1/8 + 1/8 are
        1.2
        """
        return _quantile(self.ladders, level)

    def lower(self, level: float) -> float:
        """Ratio above which a new ladder's lies with probability at least `level`; 0 if unknown.

        >>> Calibration("", ((0.9,), (1.0, 1.2), (1.5,))).lower(0.75), Calibration("", ((0.9,),)).lower(0.75)
        (0.9, 0.0)
        """
        found = _quantile([[-ratio for ratio in ladder] for ladder in self.ladders], level)
        return 0.0 if math.isinf(found) else -found


def price_range(
    *, log_error: float = 0.0, level: float = 0.8, calibration: Calibration | None = None
) -> tuple[float, float]:
    r"""Lower and upper factor on a price: what it takes lies between them with probability `level`.

    $$\left[q_{(1-p)/2}\,e^{-z s},\; q_{(1+p)/2}\,e^{z s}\right], \qquad s^2 = \max(\sigma^2 - \sigma_c^2, 0)$$

    where p is the argument `level`, σ is `log_error`, σ_c the calibration's own and z the normal quantile of (1 + p)/2.
    The ratios of the calibration already contain the sampling error of its own prices, so only a larger error of this
    price widens the range. An end that is not known is 0 or infinite.

    >>> low, high = price_range(level=0.5, calibration=Calibration("", ((0.9,), (1.0, 1.2), (1.5,))))
    >>> low, high
    (0.9, 1.5)

    Args:
        log_error: standard error of the logarithm of the price (`History.log_error`).
        level: probability, two-sided.
        calibration: ratios to use; those of the committed ladders by default.
    """
    calibration = committed() if calibration is None else calibration
    excess = math.sqrt(max(domain.non_negative("log_error", log_error) ** 2 - calibration.log_error**2, 0.0))
    one_sided = (1 + probability("level", level)) / 2
    widening = math.exp(NormalDist().inv_cdf(one_sided) * excess)
    return calibration.lower(one_sided) / widening, calibration.upper(one_sided) * widening


@cache
def committed() -> Calibration:
    """Return the ratios of the committed ladders.

    >>> len(committed().ladders) > 8
    True
    """
    saved = json.loads(files("svag.prices").joinpath("ranges.json").read_text(encoding="utf-8"))
    ladders = (tuple(math.inf if ratio is None else ratio for ratio in ratios) for ratios in saved["ladders"].values())
    return Calibration(saved["rule"], tuple(ladders), saved["log_error"])


def _quantile(ladders: Sequence[Sequence[float]], level: float) -> float:
    """The smallest ratio at which the weights reach `level`, with the new ladder's own weight beyond all of them."""
    # exact: nine ladders reach 0.9, and nine times 0.1 in floating point does not
    wanted = Fraction(probability("level", level)).limit_denominator(10**6)
    points = [(ratio, Fraction(1, (len(ladders) + 1) * len(ladder))) for ladder in ladders for ratio in ladder]
    total = Fraction(0)
    for ratio, weight in sorted(points):
        total += weight
        if total >= wanted:
            return ratio
    return math.inf
