"""Specs as YAML text and as nested mappings that dotted paths edit: `model.norm`."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from svag.records.fields import SpecError, shown


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a key may not be given twice: the first would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if isinstance(key, str) and keys.count(key) > 1:
                raise SpecError(key, f"is given twice (line {node.start_mark.line + 1} and below)")
        return super().construct_mapping(node, deep=deep)


def parse(text: str) -> dict[str, Any]:
    """Fields from YAML text."""
    value = parse_value(text)
    if not isinstance(value, dict):
        raise SpecError("", f"a spec must be a mapping of fields, got {shown(value)}")
    return value


def parse_value(text: str) -> Any:
    """One value of YAML: a number, a word, a list, a mapping."""
    try:
        return yaml.load(text, Loader=_Loader)  # derived from SafeLoader
    except yaml.YAMLError as error:
        raise SpecError("", f"not YAML: {' '.join(str(error).split())}") from None
    except (ValueError, RecursionError) as error:  # a date that does not exist, brackets without end
        raise SpecError("", f"not YAML: {type(error).__name__} {' '.join(str(error).split())[:80]}") from None


def read(path: Path) -> dict[str, Any]:
    """Fields from a YAML file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(str(path), "is not a text file in UTF-8") from None
    try:
        return parse(text)
    except SpecError as error:
        raise SpecError(str(path), str(error)) from None


def write(fields: Mapping[str, Any]) -> str:
    """YAML text of the fields, in their order."""
    text: str = yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)
    return text


def edited(fields: Mapping[str, Any], edits: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the fields in which dotted paths have new values.

    A new `kind` drops what belonged to the old one, whatever the order of the edits.

    >>> edited({"lr": 0.1, "schedule": {"kind": "cosine", "floor": 0.5}}, {"schedule.kind": "constant", "lr": 0.2})
    {'lr': 0.2, 'schedule': {'kind': 'constant'}}
    """
    result = _copy(fields)
    for path, value in sorted(edits.items(), key=lambda edit: (edit[0].count("."), not edit[0].endswith(".kind"))):
        *parents, name = path.split(".")
        inside = result
        for parent in parents:
            below = inside.get(parent)
            inside[parent] = inside = below if isinstance(below, dict) else {}
        if name == "kind" and inside.get("kind") != value:
            inside.clear()
        inside[name] = value
    return result


def _copy(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in fields.items()}
