"""The headline numbers of a price list for a logger, cheap enough to compute during a run."""

import math
from collections.abc import Iterable

from svag.noise.reading import Reading
from svag.prices.averages import Averages, of_one_batch_size
from svag.prices.basis import MeasuredRatio
from svag.prices.windows import choose_window
from svag.theory.bounds import b_simple, critical_batch_size
from svag.theory.gain import gain

_FACTORS = (2, 4)


def logged_numbers(readings: Iterable[Reading]) -> dict[str, float]:
    """The headline numbers of `svag.price_list` over all `readings`, for a logger; from N/G, without the history.

    Unresolved numbers are left out, so none is NaN or infinite. If only G is not resolved, the lower limit of N/G
    remains.

    >>> readings = [
    ...     Reading(g, n, param_sq=1.0, batch_size=128, n=4) for g, n in [(0.9, 9.0), (1.1, 11.0), (1.0, 10.0)] * 100
    ... ]
    >>> {name: round(value, 2) for name, value in logged_numbers(readings).items()}
    {'noise_to_signal': 10.0, 'noise_to_signal_low': 10.0, 'critical_batch': 1536.0, 'b_simple': 1280.0, \
'distortion_2x': 1.09, 'gain_2x': 1.83, 'distortion_4x': 1.27, 'gain_4x': 3.14}
    >>> logged_numbers(readings[:3])
    {}
    """
    given = of_one_batch_size(list(readings))
    if not given:
        return {}
    averages = Averages.over(choose_window(given, (0.0, 1.0)).readings)
    plain = MeasuredRatio.plain(averages)
    ratio, low = plain.estimate.value, plain.estimate.low
    if not plain.resolved:
        return {"noise_to_signal_low": low} if plain.one_sided and 0 < low < math.inf else {}
    batch, population = averages.shared.batch_size, averages.shared.population
    numbers = {
        "noise_to_signal": ratio,
        "noise_to_signal_low": low,
        "critical_batch": critical_batch_size(batch, ratio),
        "b_simple": b_simple(batch, ratio, population),
    }
    for factor in _FACTORS:
        if population is None or factor * batch <= population:
            numbers |= {f"distortion_{factor}x": factor / gain(ratio, factor), f"gain_{factor}x": gain(ratio, factor)}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}
