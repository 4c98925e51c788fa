"""The files of a run directory as bytes: how a run travels between machines that share no folder.

Without torch, so that the mailbox starts quickly.
"""

from collections.abc import Mapping
from pathlib import Path

from svag.records.files import replace_file
from svag.records.record import CHECKPOINT, METRICS, OUTCOME, SPEC, TIMINGS

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
