"""The types of numbers in a spec, and how a field is refused: by its path and the reason, in one sentence."""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Annotated, Any, Self, get_args
from unicodedata import category

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError
from pydantic_core import ErrorDetails


class SpecError(ValueError):
    """A spec is invalid. The message begins with the path of the field.

    >>> raise SpecError("process.ell", "must be at least 1, got 0")
    Traceback (most recent call last):
    svag.lab.specs.fields.SpecError: process.ell: must be at least 1, got 0
    """

    def __init__(self, path: str, reason: str) -> None:
        path = named(path, 4096)  # the path of a file may be long
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def refusal_inside(error: ValidationError) -> SpecError | None:
    """The SpecError that a validator raised; pydantic wraps every ValueError into a report of several lines."""
    raised = (found.get("ctx", {}).get("error") for found in error.errors())
    return next((inside for inside in raised if isinstance(inside, SpecError)), None)


class SpecPart(BaseModel):
    """A part of a spec: frozen, and with unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RefusesInOneSentence(SpecPart):
    """A model that raises the SpecError of its validators, without pydantic's wrapping."""

    def __init__(self, **fields: Any) -> None:
        with _unwrapped():
            super().__init__(**fields)

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Self:
        """Make one from plain values."""
        with _unwrapped():
            return super().model_validate(obj, **options)


@contextmanager
def _unwrapped() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        refusal = refusal_inside(error)
        if refusal is None:
            raise
        raise refusal from None


# Sub-specs that are not chosen by a field `kind`: the name of the chosen one, and the field that chooses it.
_CHOSEN_BY = {"data": ("a data set of {}", "name"), "model": ("a {}", "arch")}


def members_of(union: object) -> tuple[type[BaseModel], ...]:
    """The classes of a part of a spec that is one of several, such as `parts.Probe`."""
    members, _ = get_args(union)
    return get_args(members)


def kinds_of(union: object) -> tuple[str, ...]:
    """The kinds that such a part can have."""
    return tuple(get_args(member.model_fields["kind"].annotation)[0] for member in members_of(union))


def fields_of(*models: type[BaseModel]) -> tuple[str, ...]:
    """The names of the fields of some classes, each once."""
    return tuple(dict.fromkeys(name for model in models for name in model.model_fields))


def spec_error(
    error: ValidationError, fields: Mapping[str, Sequence[str]], kinds: Mapping[str, Sequence[str]] | None = None
) -> SpecError:
    """Turn the errors of pydantic into one sentence about the first of them.

    Args:
        error: what pydantic raised.
        fields: names of the fields of each part of the spec, by its path, to suggest one for an unknown name.
        kinds: the kinds that a part of the spec can have, by its path.
    """
    if (refusal := refusal_inside(error)) is not None:
        return refusal
    # a default that depends on an invalid field is not an error of its own
    found = [problem for problem in error.errors() if problem["type"] != "default_factory_not_called"]
    # a misspelt name also leaves the right one missing; the suggestion is more helpful
    misspelt = [problem for problem in found if problem["type"] == "extra_forbidden"]
    first = misspelt[0] if misspelt and found[0]["type"] == "missing" else found[0]
    path = [named(str(part)) for part in first["loc"]]
    if len(path) > 1 and path[0] in {"process", "optimizer", "schedule", "probe", "budget", *_CHOSEN_BY}:
        chosen = path.pop(1)  # the kind, by which pydantic chose the sub-spec
        if first["type"] == "extra_forbidden" and path[-1] in fields[path[0]]:
            kind, by = _CHOSEN_BY.get(path[0], ("kind {}", "kind"))
            said = f"{kind.format(chosen)} has no such field: name another {path[0]}.{by} with it"
            return SpecError(".".join(path), said)
    reason = _reason(first, path, fields, kinds or {})
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return SpecError(".".join(path), reason + more)


# What a value must be, by the type of pydantic's error; the names in braces are those of its context.
_MUST_BE = {
    "greater_than": "greater than {gt:.12g}",
    "greater_than_equal": "greater than or equal to {ge:.12g}",
    "less_than": "less than {lt:.12g}",
    "less_than_equal": "less than or equal to {le:.12g}",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "too_long": "a list of at most {max_length} values",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "a mapping of fields",
    "model_attributes_type": "a mapping of fields",
    "dict_type": "a mapping of fields",
}


def _reason(
    error: ErrorDetails, path: list[str], fields: Mapping[str, Sequence[str]], kinds: Mapping[str, Sequence[str]]
) -> str:
    """What is wrong with one field, by the type of pydantic's error and its context; never by its text."""
    context, value = error.get("ctx", {}), shown(error["input"])
    match error["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return f"there is no such field; {near(path[-1], fields.get('.'.join(path[:-1]), ()))}"
        case "union_tag_invalid":
            return f"kind must be one of {_unquoted(context['expected_tags'])}, got {shown(context['tag'])}"
        case "union_tag_not_found":
            choice = ", ".join(kinds.get(".".join(path), ()))
            return f"kind is missing: say which of {choice}" if choice else "kind is missing"
        case "literal_error":
            return f"must be one of {_unquoted(context['expected'])}, got {value}"
        case "value_error":
            return str(context["error"])
        case kind if kind in _MUST_BE:
            return f"must be {_MUST_BE[kind].format(**context)}, got {value}"
    return f"{error['msg']}: {value}"


def _unquoted(choices: str) -> str:
    return choices.replace("'", "")


def near(name: str, known: Iterable[str]) -> str:
    """Suggest which of the `known` names was meant, or list them.

    >>> near("nrom", ["arch", "norm"])
    'did you mean norm?'
    """
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


LONGEST = 80
"""Number of characters of a value that a message shows."""


def cut(text: str, longest: int = LONGEST) -> str:
    r"""The beginning of a text, in one line.

    >>> cut("a\nb"), len(cut("x" * 1000))
    ('a b', 80)
    """
    line = " ".join(text[: 10 * longest].split())
    line = "".join(char if char.isprintable() else "?" for char in line)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def shown(value: object) -> str:
    """At most 80 characters of the `repr` of a value, without computing the rest of it.

    >>> shown({"ell": [1, 2]}), shown("x" * 1000)[-4:], shown(10**5000)
    ("{'ell': [1, 2]}", 'xxx…', 'a number of 5001 digits')
    """
    text = ""
    for piece in _pieces(value):
        text += piece
        if len(text) > LONGEST:
            return text[: LONGEST - 1] + "…"
    return text


def _pieces(value: object) -> Iterator[str]:
    """The parts of `repr(value)`, one at a time: a mapping may contain itself, or 10^40 words."""
    match value:
        case dict():
            yield "{"
            for place, (key, inside) in enumerate(value.items()):
                yield ", " if place else ""
                yield from _pieces(key)
                yield ": "
                yield from _pieces(inside)
            yield "}"
        case list() | tuple():
            yield "[" if isinstance(value, list) else "("
            for place, inside in enumerate(value):
                yield ", " if place else ""
                yield from _pieces(inside)
            yield "]" if isinstance(value, list) else ",)" if len(value) == 1 else ")"
        case str() | bytes():
            yield repr(value[: LONGEST + 1])
        case int() if value.bit_length() > 4 * LONGEST:  # Python refuses to print the longest
            yield f"a number of {int(value.bit_length() * 0.30103) + 1} digits"
        case _:
            yield cut(repr(value), LONGEST + 1)


def named(name: str, longest: int = LONGEST) -> str:
    r"""The name of a field or a file, for a message; one that is not printable is shown as its `repr`.

    Of a long path the end is shown, which tells files apart.

    >>> named("model.norm"), named("a\x1bb"), named("folder/" * 99 + "mine.npz")[-17:]
    ('model.norm', "'a\\x1bb'", 'r/folder/mine.npz')
    """
    if name.isprintable() and len(name) <= longest:
        return name
    return f"…{name[1 - longest :]}" if name.isprintable() and "/" in name else shown(name)


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"must be a number, got {shown(value)}")
    return value


def _whole(value: object) -> object:
    """Accept 1e3, which YAML reads as text."""
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            number = float(value)
            return int(number) if number == int(number) else number
    return _no_bool(value)


MOST_VALUES = 10_000
"""Largest number of values in a spec, mappings and lists included. Real specs have a few dozen."""


def refuse_endless(fields: object) -> None:
    """Refuse specs that could not be written to a file: huge numbers, deep nesting, far too many values.

    >>> refuse_endless({"schedule": {"at": [1, 10**5000]}})
    Traceback (most recent call last):
    svag.lab.specs.fields.SpecError: schedule.at.1: no field is that large, got a number of 5001 digits
    """
    waiting: list[tuple[tuple[object, ...], object]] = [((), fields)]
    for _ in range(MOST_VALUES):
        if not waiting:
            return
        path, value = waiting.pop()
        where = ".".join(part if isinstance(part, str) else shown(part) for part in path)
        if isinstance(value, int) and value.bit_length() > 14_000:
            raise SpecError(where, f"no field is that large, got {shown(value)}")
        if isinstance(value, Mapping | list | tuple):
            if len(path) > 8:
                raise SpecError(str(path[0]), "no field is nested that deeply")
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            waiting += [((*path, name), inside) for name, inside in islice(items, MOST_VALUES)]
    raise SpecError("", f"a spec with more than {MOST_VALUES} values is not read")


MOST = 10**12
"""Largest count in a spec."""

STEEPEST = 1e30
"""Largest rate in a spec: the weights are float32, which ends at 3e38."""

LARGEST = 2 * 10**9
"""Largest number of weights: at four bytes each, and as many for the gradient, more would not fit into 16 GB."""

DEEPEST, WIDEST = 2000, 100_000
"""Largest number of layers (the deepest residual network in the literature has 1202), and of channels of the first
stage or features of a transformer."""


def time_point(value: object) -> int | float:
    """A time in a run: a whole number is a step, a number with a decimal point is a fraction of the budget.

    >>> time_point(500), time_point(0.5), time_point("0.5")
    (500, 0.5, 0.5)
    """
    if isinstance(value, str):
        for reads in (int, float):
            with suppress(ValueError):
                value = reads(value)
                break
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a step (500) or a fraction of the budget (0.5), got {shown(value)}")
    if isinstance(value, float) and not 0 <= value <= 1:  # catches nan too
        raise ValueError(f"a fraction of the budget must lie in [0, 1], got {value}: a step has no decimal point")
    if value < 0:
        raise ValueError(f"must not be negative, got {shown(value)}")
    if value > MOST:
        raise ValueError(f"must be at most {MOST:.0e}, got {shown(value)}")
    return value


def step_of(when: float, steps: int) -> int:
    """The effective step that a time stands for in a run of `steps`.

    >>> step_of(500, 4000), step_of(0.5, 4000)
    (500, 2000)
    """
    return when if isinstance(when, int) else round(when * steps)


def _writable(name: str) -> str:
    try:
        if "\0" not in name:
            name.encode()  # fails for half a character
            return name
    except UnicodeEncodeError:
        pass
    raise ValueError(f"is not the name of a file, got {shown(name)}")


def _not_never(every: float) -> float:
    if every == 0:
        raise ValueError("must be positive: 1 is every step")
    return every


FileName = Annotated[str, AfterValidator(_writable)]
When = Annotated[int | float, PlainValidator(time_point)]
Spacing = Annotated[When, AfterValidator(_not_never)]
Positive = Annotated[float, Field(gt=0, le=STEEPEST, allow_inf_nan=False), BeforeValidator(_no_bool)]
Factor = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False), BeforeValidator(_no_bool)]
NonNegative = Annotated[float, Field(ge=0, le=STEEPEST, allow_inf_nan=False), BeforeValidator(_no_bool)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(_no_bool)]
Rate = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False), BeforeValidator(_no_bool)]
Count = Annotated[int, Field(ge=1, le=MOST), BeforeValidator(_whole)]
Whole = Annotated[int, Field(ge=0, le=MOST), BeforeValidator(_whole)]
Several = Annotated[int, Field(ge=2, le=10**9), BeforeValidator(_whole)]
Seed = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(_whole)]


def visible(text: str, *, lines: bool = False) -> str:
    r"""Text that is safe to show in a terminal, a table or a chart: control characters are written as in JSON.

    All text from outside passes through here before it is shown: names of folders, runs, panels, networks, errors.

    >>> print(visible("\x1b[2J\x9bm η\n"), visible("two\nlines", lines=True), sep="|")
    \u001b[2J\u009bm η\n|two
    lines

    Args:
        text: any text.
        lines: keep line ends and tabs, for text made by svag in which every name is visible already.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(_as_json(char) if category(char) in _ACTING and char not in kept else char for char in text)


# control characters, marks that change the direction of text, surrogates, unassigned code points, other line ends
_ACTING = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}


def _as_json(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]
