"""A curve in one line of text."""

import math
from collections.abc import Sequence

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Draw values as a row of blocks; what is not finite is a gap.

    >>> sparkline([0.0, 0.5, 1.0, math.nan])
    '▁▅█ '

    Args:
        values: the curve; of more than `width` values, equally spaced ones are shown, the last among them.
        width: characters at most.
    """
    if width < 1:
        raise ValueError(f"width must be at least 1, got {width}")
    count = min(len(values), width)
    shown = [values[round(i * (len(values) - 1) / max(count - 1, 1))] for i in range(count)]
    finite = [value for value in shown if math.isfinite(value)]
    if not finite:
        return " " * count
    low, span = min(finite), max(finite) - min(finite)
    top = len(_BLOCKS) - 1
    return "".join(
        " " if not math.isfinite(value) else _BLOCKS[math.floor((value - low) / span * top + 0.5) if span else 0]
        for value in shown
    )
