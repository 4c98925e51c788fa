"""How an error crosses from a worker to the one who started it: as the kind of error and a sentence."""

from typing import Any

from svag.lab.data.errors import DataError
from svag.lab.run import RunFailed
from svag.records.files import DiskError
from svag.records.refusal import SpecError
from svag.records.run_lock import FolderInUse


class PlanFailed(RunFailed):
    """A plan that could not be carried out; the message is one sentence."""


def to_message(error: Exception) -> dict[str, Any]:
    """What a worker reports of an error: refused (wrong for all runs), elsewhere (another process has it) or failed."""
    sentence = " ".join(str(error).split()) or type(error).__name__
    match error:
        case FolderInUse():
            return {"event": "elsewhere"}
        case SpecError():
            return {"event": "refused", "kind": "spec", "path": error.path, "sentence": error.reason}
        case DataError():
            return {"event": "refused", "kind": "data", "sentence": sentence}
        case DiskError():
            return {"event": "refused", "kind": "disk", "sentence": sentence}
        case ValueError():
            return {"event": "refused", "kind": "value", "sentence": sentence}
        case RunFailed():
            return {"event": "failed", "recorded": True, "sentence": sentence}
    return {"event": "failed", "recorded": False, "sentence": f"{type(error).__name__}: {sentence}"}


def from_message(message: dict[str, Any]) -> Exception:
    """The error that a worker refused its run with."""
    sentence = str(message["sentence"])
    match message["kind"]:
        case "spec":
            return SpecError(str(message["path"]), sentence)
        case "data":
            return DataError(sentence)
        case "disk":
            return DiskError(sentence)
    return ValueError(sentence)
