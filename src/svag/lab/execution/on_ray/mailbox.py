"""Messages from tasks to the process that carries out the plan: letters in a mailbox, and the files of a run.

Nothing here imports torch or Ray, so that the mailbox starts quickly.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from svag.lab.records.storage import CHECKPOINT, METRICS, OUTCOME, SPEC, TIMINGS, replace_file

# Each file comes after those that it refers to: a checkpoint counts the bytes of the metrics, an outcome has digests.
_ORDER = (SPEC, METRICS, TIMINGS, CHECKPOINT, OUTCOME)


def pack(folder: Path) -> dict[str, bytes]:
    """All files of a run directory."""
    return {name: (folder / name).read_bytes() for name in _ORDER if (folder / name).exists()}


def pack_to_continue(folder: Path) -> dict[str, bytes]:
    """The files that a run needs to continue elsewhere; none if it has made no checkpoint yet."""
    files = pack(folder)
    files.pop(OUTCOME, None)
    return files if CHECKPOINT in files else {}


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files into an existing run directory; if killed half-way, the run can still continue from it."""
    for name in _ORDER:
        if name in files:
            replace_file(folder / name, files[name])


class Letter(NamedTuple):
    """A report about a run.

    Attributes:
        identity: identity of the run.
        attempt: number of the attempt that reports; a node that was given up may still report on an earlier one.
        report: as from a worker, or {"event": "begins", "step": …, "mailed": …}, or {"event": "files", "files": …}.
    """

    identity: str
    attempt: int
    report: dict[str, Any]


class Mailbox:
    """Keeps letters in their order until they have been read, and hands out the files of an earlier attempt.

    It is a Ray actor on the machine that carries out the plan.
    """

    def __init__(self) -> None:
        self._letters: list[Letter] = []
        self._read = 0

    def put(self, letter: Letter) -> None:
        """Leave a letter."""
        self._letters.append(letter)

    def unread(self, read: int) -> list[Letter]:
        """All letters after the first `read`, which are thrown away.

        A reader that is interrupted before the answer arrives asks again with the same number, and loses none.
        """
        del self._letters[: read - self._read]
        self._read = read
        return list(self._letters)

    def files(self, folder: str) -> dict[str, bytes]:
        """What a run needs to continue, from its directory on this machine."""
        return pack_to_continue(Path(folder))
