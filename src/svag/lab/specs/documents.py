"""Specs as YAML text, and as nested mappings that are edited by dotted paths such as `model.norm`."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from svag.lab.specs.fields import LONGEST, MOST_VALUES, SpecError, cut, named, shown

# Largest number of characters of a spec. Real specs have a few hundred.
_LONGEST = 50_000


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice, as the first value would be lost silently.

    It also refuses aliases that multiply: ten lines can stand for more values than fit into memory.
    """

    def get_single_data(self) -> Any:
        node = self.get_single_node()
        if node is None:
            return None
        _written_out(node, {})
        return self.construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str):
                if key in seen:
                    raise SpecError(named(key), f"is given twice (line {node.start_mark.line + 1} and below)")
                seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _written_out(node: yaml.Node, known: dict[int, int]) -> int:
    """Number of values of a node with its aliases written out; each node is visited once."""
    if id(node) in known:
        if known[id(node)] == 0:
            raise SpecError("", f"not YAML: an alias in line {node.start_mark.line + 1} contains itself")
        return known[id(node)]
    known[id(node)] = 0
    below = node.value if isinstance(node, yaml.CollectionNode) else []
    children = (child for pair in below for child in (pair if isinstance(pair, tuple) else (pair,)))
    count = 1 + sum(_written_out(child, known) for child in children)
    if count > MOST_VALUES:
        raise SpecError("", f"a spec with more than {MOST_VALUES} values, aliases written out, is not read")
    known[id(node)] = count
    return count


def parse(text: str) -> dict[str, Any]:
    """Fields from YAML text."""
    value = parse_value(text)
    if not isinstance(value, dict):
        raise SpecError("", f"a spec must be a mapping of fields, got {shown(value)}")
    return value


def parse_value(text: str) -> Any:
    """One value of YAML: a number, a word, a list, a mapping."""
    if len(text) > _LONGEST:
        raise SpecError("", f"a spec of more than {_LONGEST} characters is not read")
    try:
        return yaml.load(text, Loader=_Loader)  # derived from SafeLoader
    except yaml.YAMLError as error:
        raise SpecError("", f"not YAML: {cut(str(error), 3 * LONGEST)}") from None
    except SpecError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        # PyYAML itself fails on a date that does not exist, `!!int ''` or endless brackets
        raise SpecError("", f"not YAML: {type(error).__name__} {cut(str(error))}") from None


def read(path: Path) -> dict[str, Any]:
    """Fields from a YAML file."""
    try:
        with path.open(encoding="utf-8") as file:  # it may be a pipe, <(…): read no more than a spec can have
            text = file.read(_LONGEST + 1)
    except OSError as error:
        raise SpecError(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SpecError(str(path), "is not a text file in UTF-8") from None
    except ValueError:
        raise SpecError(str(path), "is not the name of a file") from None
    try:
        return parse(text)
    except SpecError as error:
        raise SpecError(str(path), str(error)) from None


def write(fields: Mapping[str, Any]) -> str:
    """The fields as YAML text, in their order."""
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
