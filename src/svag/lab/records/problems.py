"""Problems of run directories: a code for each, and its sentence."""

from enum import StrEnum

from svag.lab.records.storage import COMPRESSED_METRICS, METRICS, OUTCOME, SPEC


class Problem(StrEnum):
    """Why a run has no result, or why its record cannot be used."""

    NOT_BEGUN = "not_begun"
    FAILED = "failed"
    DIVERGED = "diverged"
    OUTCOME_DAMAGED = "outcome_damaged"
    OUTCOME_INVALID = "outcome_invalid"
    SPEC_CHANGED = "spec_changed"
    SPEC_MISSING = "spec_missing"
    CONTENT_INVALID = "content_invalid"
    METRICS_UNREADABLE = "metrics_unreadable"
    METRICS_UNPACKABLE = "metrics_unpackable"
    METRICS_CHANGED = "metrics_changed"
    METRICS_LINE_DAMAGED = "metrics_line_damaged"
    METRICS_INCOMPLETE = "metrics_incomplete"
    DIGEST_MISSING = "digest_missing"


# The run was damaged after it had ended: a copy, or computing it again, gives the same numbers.
_RESTORE = "restore it from a copy, or remove the folder to run it again"
# The files may belong to another program, so the sentence does not suggest to remove them.
_ELSEWHERE = "restore it from a copy, or use another folder"

_SENTENCES = {
    Problem.NOT_BEGUN: "not begun yet",
    Problem.FAILED: "{detail}",
    Problem.DIVERGED: "{detail}",
    Problem.OUTCOME_DAMAGED: f"{OUTCOME} is damaged: {_RESTORE}",
    Problem.OUTCOME_INVALID: f"{OUTCOME} was not written by a run ({{detail}}): {_ELSEWHERE}",
    Problem.SPEC_CHANGED: f"{SPEC} is damaged, it is not what it was when the run ended: {_RESTORE}",
    Problem.SPEC_MISSING: f"{SPEC} is missing or cannot be read: {_ELSEWHERE}",
    Problem.CONTENT_INVALID: f"{SPEC} or {METRICS} was not written by a run ({{detail}}): {_ELSEWHERE}",
    Problem.METRICS_UNREADABLE: f"{METRICS} cannot be read ({{detail}}): {_RESTORE}",
    Problem.METRICS_UNPACKABLE: f"{COMPRESSED_METRICS} is damaged: {_RESTORE}",
    Problem.METRICS_CHANGED: f"{METRICS} is damaged, it is not what it was when the run ended: {_RESTORE}",
    Problem.METRICS_LINE_DAMAGED: f"line {{detail}} of {METRICS} is damaged: {_RESTORE}",
    Problem.METRICS_INCOMPLETE: f"{METRICS} ends before the run did, {{detail}}: {_RESTORE}",
    Problem.DIGEST_MISSING: f"{OUTCOME} has lost the digest of {METRICS}: {_RESTORE}",
}


def sentence(code: Problem | None, detail: str = "") -> str:
    """Say what is wrong, and for a record that cannot be used what to do; empty if nothing is wrong.

    >>> sentence(Problem.METRICS_LINE_DAMAGED, "4")
    'line 4 of metrics.jsonl is damaged: restore it from a copy, or remove the folder to run it again'
    >>> sentence(Problem.FAILED, "RuntimeError: no room")
    'RuntimeError: no room'

    Args:
        code: what is wrong; None if nothing is.
        detail: what the sentence names: a line, an error, the reason why a run failed or diverged.
    """
    return "" if code is None else _SENTENCES[code].replace("{detail}", detail)
