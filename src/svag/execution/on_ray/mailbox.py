"""Where the tasks of a plan leave word: an actor on the machine of the one who carries out the plan."""

from pathlib import Path
from typing import Any, NamedTuple

from svag.execution.on_ray.parcel import pack_to_continue


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
    """Keeps letters in their order until they are collected, and hands out what an earlier attempt has sent."""

    def __init__(self) -> None:
        self._letters: list[Letter] = []

    def put(self, letter: Letter) -> None:
        """Leave a letter."""
        self._letters.append(letter)

    def collect(self) -> list[Letter]:
        """Take all letters."""
        letters, self._letters = self._letters, []
        return letters

    def files(self, folder: str) -> dict[str, bytes]:
        """What a run needs to continue, from its directory on this machine."""
        return pack_to_continue(Path(folder))
