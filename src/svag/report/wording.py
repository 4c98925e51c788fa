"""Numbers in words: metrics in their units, differences, intervals and batch sizes, the same on every page."""

import math

UNITS = {"test_accuracy": "test accuracy", "test_loss": "test loss (nats)", "train_loss": "train loss (nats)"}


def is_share(metric: str) -> bool:
    """Whether a metric is a fraction, said in percent."""
    return metric == "test_accuracy"


def value(number: float, metric: str) -> str:
    """A metric in its units.

    >>> value(0.8534, "test_accuracy"), value(0.41234, "test_loss")
    ('85.34%', '0.4123')
    """
    if not math.isfinite(number):
        return "unknown"
    return f"{100 * number:.2f}%" if is_share(metric) else f"{number:.4g}"


def within(number: float, metric: str) -> float:
    """A limit of an interval, kept inside what the metric can be.

    >>> within(1.02, "test_accuracy"), within(1.02, "test_loss")
    (1.0, 1.02)
    """
    return min(max(number, 0.0), 1.0) if is_share(metric) and math.isfinite(number) else number


def difference(number: float, metric: str) -> str:
    """A difference of metrics, signed; of fractions in percentage points.

    >>> difference(-0.0123, "test_accuracy"), difference(math.nan, "test_loss")
    ('−1.23 points', 'unknown')
    """
    if math.isnan(number):
        return "unknown"
    return f"{_signed(number, metric)} points" if is_share(metric) else _signed(number, metric)


def interval(low: float, high: float, metric: str) -> str:
    """An interval of a difference; open where it is unbounded.

    >>> interval(-0.01, math.inf, "test_accuracy")
    '[−1.00, ∞)'
    """
    left = f"[{_signed(low, metric)}" if math.isfinite(low) else "(−∞"
    right = f"{_signed(high, metric)}]" if math.isfinite(high) else "∞)"
    return f"{left}, {right}"


def _signed(number: float, metric: str) -> str:
    text = f"{100 * number:+.2f}" if is_share(metric) else f"{number:+.3g}"
    return text.replace("-", "−")


def plain(number: float) -> str:
    """A number without units.

    >>> plain(1.2345), plain(math.inf)
    ('1.23', '∞')
    """
    return f"{number:.3g}" if math.isfinite(number) else "∞"


def batch(number: float | None) -> str:
    """A batch size that was estimated.

    >>> batch(1536.4), batch(98.72), batch(math.inf), batch(None)
    ('1,536', '98.7', '∞', 'none')
    """
    if number is None or math.isnan(number):
        return "none"
    if math.isinf(number):
        return "∞"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def batch_interval(low: float, high: float) -> str:
    """An interval of batch sizes; open where it is unbounded.

    >>> batch_interval(103.2, 132.5), batch_interval(64.0, math.inf), batch_interval(0.0, 32.0)
    ('[103, 132]', '[64, ∞)', '(0, 32]')
    """
    left = f"[{batch(low)}" if low > 0 else "(0"
    return f"{left}, {batch(high)}]" if math.isfinite(high) else f"{left}, ∞)"


def count(number: int, noun: str) -> str:
    """A number of things.

    >>> count(1, "run"), count(3, "run")
    ('1 run', '3 runs')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"
