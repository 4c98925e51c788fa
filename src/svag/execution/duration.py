"""A time that is only known roughly, in words."""


def roughly(seconds: float) -> str:
    """Seconds in the unit that a person would use.

    >>> [roughly(seconds) for seconds in (0.4, 42, 300, 9000, 200_000)]
    ['1 s', '42 s', '5 min', '2.5 h', '2.3 days']
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86_400:.1f} days"
