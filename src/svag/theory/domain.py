"""Checks of arguments; a refusal names the argument, its value and the reason."""

import math
import reprlib
from collections.abc import Collection
from typing import SupportsFloat, SupportsIndex


def number(name: str, value: float) -> float:
    """Return `value` as a float, which may be infinite or NaN; refuse anything but a number."""
    if isinstance(value, bool) or not isinstance(value, int | float | SupportsFloat | SupportsIndex):
        raise TypeError(f"{name} must be a number, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a finite number, got one beyond 1e308") from None
    except Exception:  # arrays of several numbers raise different errors in different libraries
        raise TypeError(f"{name} must be a number, got {shown(value)}") from None


def finite(name: str, value: float) -> float:
    """Return `value`, or refuse NaN, infinity and what is not a number."""
    plain = number(name, value)
    if not math.isfinite(plain):
        raise ValueError(f"{name} must be a finite number, got {plain}")
    return plain


def shown(value: object) -> str:
    """A value on one line of at most 80 characters; only its type if it is large or cannot be printed.

    >>> shown("sharp"), shown([0] * 10**6), shown(10**5000)
    ("'sharp'", '[0, 0, 0, 0, 0, 0, ...]', 'a int')
    """
    try:
        text = " ".join(reprlib.repr(value).split())
    except Exception:  # too many digits, or a class that cannot be printed
        text = ""
    return text if 0 < len(text) <= 80 else f"a {type(value).__name__}"


def one_of(name: str, value: object, words: Collection[str]) -> None:
    """Refuse a value that is not one of the words."""
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, got {shown(value)}")


def positive(name: str, value: float) -> float:
    """Return `value`, or refuse what is not a finite number above 0."""
    if finite(name, value) <= 0:
        raise ValueError(f"{name} must be positive, got {value}")
    return float(value)


def non_negative(name: str, value: float) -> float:
    """Return `value`, or refuse what is not a finite number of at least 0."""
    if finite(name, value) < 0:
        raise ValueError(f"{name} must not be negative, got {value}")
    return float(value)


def whole(name: str, value: float, at_least: int = 1) -> int:
    """Return `value` as an int, or refuse what is not a whole number of at least `at_least`."""
    if finite(name, value) != int(value) or value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value}")
    return int(value)


MOST = 10**6
"""The largest refinement: a single effective step then takes as many gradients as a whole training."""


def refinement(name: str, value: float) -> int:
    """Return l, or refuse what is not a whole number from 1 to a million."""
    if whole(name, value) > MOST:
        raise ValueError(
            f"{name} must be at most {MOST}, got {value:.4g}: one effective step takes that many sub-steps"
        )
    return int(value)


def population(size: float, batch_size: float) -> int:
    """Return the number of examples, or refuse one that a batch exhausts: the full batch has no noise."""
    if whole("population", size) <= batch_size:
        raise ValueError(f"population ({size}) must exceed batch_size ({batch_size}): the full batch has no noise")
    return int(size)


def scaled_batch(kappa: float, batch_size: float) -> int:
    """Return κB, or refuse one that is not a whole number of examples up to rounding."""
    batch = finite("kappa × batch_size", positive("kappa", kappa) * whole("batch_size", batch_size))
    if round(batch) < 1 or not math.isclose(batch, round(batch), rel_tol=1e-9):
        raise ValueError(f"kappa × batch_size must be a whole number, got {kappa} × {batch_size} = {batch}")
    return round(batch)


def closeness(c2: float) -> float:
    """Return C², or refuse C² ≤ 1, for which no two processes are C-close (def:c_close)."""
    if finite("c2", c2) <= 1:
        raise ValueError(f"c2 (the square of the closeness constant C) must exceed 1, got {c2}")
    return float(c2)


def noise_to_signal(value: float) -> float:
    """Return N/G, or refuse a negative one; infinity (G = 0) is allowed."""
    if math.isnan(number("noise_to_signal", value)) or value < 0:
        raise ValueError(
            f"noise_to_signal is N/G and must be at least 0, got {value}; "
            "a negative estimate of G means that G is not resolved: average more readings before dividing"
        )
    return float(value)


def scale_up(kappa: float) -> float:
    """Return κ, or refuse κ < 1: the certificates compare a run with one of a larger batch."""
    if finite("kappa", kappa) < 1:
        raise ValueError(f"kappa must be at least 1, got {kappa}; exchange the two runs to scale down")
    return float(kappa)


def decay_per_step(lr_wd: float) -> float:
    """Return ηλ, or refuse ηλ outside [0, 2), where weight decay alone makes the weights grow."""
    if not 0 <= finite("lr_wd", lr_wd) < 2:
        raise ValueError(f"lr × weight_decay must lie in [0, 2), got {lr_wd}; beyond 2 weight decay itself diverges")
    return float(lr_wd)


def momentum(beta: float) -> float:
    """Return β, or refuse a momentum outside [0, 1)."""
    if not 0 <= finite("momentum", beta) < 1:
        raise ValueError(f"momentum must lie in [0, 1), got {beta}")
    return float(beta)
