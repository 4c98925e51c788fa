"""A disk that is full: this process may not make a file longer than some bytes."""

import resource  # not on Windows
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_at(size: int) -> Iterator[None]:
    """Let writes beyond `size` bytes of a file fail, in the middle if need be, as on a disk without space."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))  # Python ignores SIGXFSZ
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
