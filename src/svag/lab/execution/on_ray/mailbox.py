"""What tasks and the one who gave them out send each other: letters, left in a mailbox, and the files of a run.

Without torch and Ray, so that the mailbox starts quickly.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from svag.lab.records.files import replace_file
from svag.lab.records.record import CHECKPOINT, METRICS, OUTCOME, SPEC, TIMINGS

# A checkpoint counts the bytes of the metrics, and an outcome says that all is there: each after what it is about.
_ORDER = (SPEC, METRICS, TIMINGS, CHECKPOINT, OUTCOME)


def pack(folder: Path) -> dict[str, bytes]:
    """Everything that a run directory holds."""
    return {name: (folder / name).read_bytes() for name in _ORDER if (folder / name).exists()}


def pack_to_continue(folder: Path) -> dict[str, bytes]:
    """What a run needs to go on elsewhere; nothing if it has made no checkpoint yet."""
    files = pack(folder)
    files.pop(OUTCOME, None)
    return files if CHECKPOINT in files else {}


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    """Put the files into a run directory that is there; killed on the way, it holds a state that continues."""
    for name in _ORDER:
        if name in files:
            replace_file(folder / name, files[name])


class Letter(NamedTuple):
    """A report about a run.

    Attributes:
        identity: of the run.
        attempt: of the attempt that reports; a node that was given up may still write about an earlier one.
        report: as from a worker, or {"event": "begins", "step": …, "mailed": …}, or {"event": "files", "files": …}.
    """

    identity: str
    attempt: int
    report: dict[str, Any]


class Mailbox:
    """Keeps letters in their order until they are known to be read, and hands out what an earlier attempt has sent.

    An actor on the machine of the one who carries out the plan.
    """

    def __init__(self) -> None:
        self._letters: list[Letter] = []
        self._read = 0

    def put(self, letter: Letter) -> None:
        """Leave a letter."""
        self._letters.append(letter)

    def unread(self, read: int) -> list[Letter]:
        """All letters after the first `read`, which are thrown away.

        Whoever is interrupted while these are on their way asks again with the same number, and loses none.
        """
        del self._letters[: read - self._read]
        self._read = read
        return list(self._letters)

    def files(self, folder: str) -> dict[str, bytes]:
        """What a run needs to continue, from its directory on this machine."""
        return pack_to_continue(Path(folder))
