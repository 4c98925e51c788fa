"""Every field of a spec as a flag: `--lr 0.1 --model.norm batch --process '{kind: svag, ell: 4}'`."""

from collections.abc import Sequence
from typing import Any

from svag.records.documents import parse_value
from svag.records.refusal import SpecError, near
from svag.records.spec import FIELDS

KNOWN = [f"{above}.{name}" if above else name for above, names in FIELDS.items() for name in names]


def edits_from(arguments: Sequence[str], also: Sequence[str] = ()) -> dict[str, Any]:
    """Read flags of the form `--path value` and `--path=value`; values are YAML.

    >>> edits_from(["--lr", "0.1", "--model.norm=batch", "--schedule.at", "[0.5]"])
    {'lr': 0.1, 'model.norm': 'batch', 'schedule.at': [0.5]}

    `also` names flags that the command takes itself: a misspelt one is guessed too.
    """
    edits: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        flag = rest.pop(0)
        if not flag.startswith("--"):
            raise SpecError(flag, "one spec at a time; a field is set by --name value")
        path, equals, text = flag[2:].partition("=")
        path = path.replace("-", "_")
        if path not in KNOWN:
            raise SpecError(f"--{path}", f"there is no such field; {near(path, [*also, *KNOWN])}")
        if not equals:
            if not rest:
                raise SpecError(f"--{path}", "needs a value")
            text = rest.pop(0)
        if path in edits:
            raise SpecError(f"--{path}", "is given twice")
        edits[path] = parse_value(text)
    return edits
