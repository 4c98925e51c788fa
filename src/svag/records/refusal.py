"""How a spec is refused: the path of the field and the reason, in one sentence."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError


class SpecError(Exception):
    """A spec that makes no sense. The message begins with the path of the field.

    Not a ValueError, because pydantic would wrap one into a report of several lines.

    >>> raise SpecError("process.ell", "must be at least 1, got 0")
    Traceback (most recent call last):
    svag.records.refusal.SpecError: process.ell: must be at least 1, got 0
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def spec_error(error: ValidationError, fields: Mapping[str, Sequence[str]]) -> SpecError:
    """Turn what pydantic found into one sentence about the first problem.

    `fields` holds the names that exist, by the path of what holds them, to guess what an unknown one was meant to be.
    """
    found = error.errors()
    first = found[0]
    path = [str(part) for part in first["loc"]]
    if len(path) > 1 and path[0] in {"process", "schedule", "probe", "budget"}:
        chosen = path.pop(1)  # the kind, by which pydantic chose the sub-spec
        if first["type"] == "extra_forbidden" and path[-1] in fields[path[0]]:
            return SpecError(".".join(path), f"kind {chosen} has no such field: name another {path[0]}.kind with it")
    reason = _reason(first["type"], dict(first.get("ctx", {})), first["input"], first["msg"], path, fields)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return SpecError(".".join(path), reason + more)


def _reason(
    kind: str,
    context: dict[str, Any],
    value: object,
    message: str,
    path: list[str],
    fields: Mapping[str, Sequence[str]],
) -> str:
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"there is no such field; {near(path[-1], fields.get('.'.join(path[:-1]), ()))}"
    if kind == "union_tag_invalid":
        return f"kind must be one of {context['expected_tags'].replace(chr(39), '')}, got {shown(context['tag'])}"
    if kind == "union_tag_not_found":
        return "kind is missing"
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(chr(39), '')}, got {shown(value)}"
    if kind == "value_error":
        return str(context["error"])
    if kind in {"model_type", "model_attributes_type", "dict_type"}:
        return f"must be a mapping of fields, got {shown(value)}"
    rule, prefix = message.partition(",")[0], "Input should be "
    if not rule.startswith(prefix):
        return f"{message}: {shown(value)}"
    what = rule.removeprefix(prefix)
    return f"must be {what[:1].lower()}{what[1:]}, got {shown(value)}"


def near(name: str, known: Iterable[str]) -> str:
    """Say which of the `known` names was probably meant, or list them.

    >>> near("nrom", ["arch", "norm"])
    'did you mean norm?'
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


def shown(value: object) -> str:
    """A value as the user wrote it, not longer than a line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
