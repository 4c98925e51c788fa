"""The kinds of numbers that a spec holds, and how a field is refused: its path and the reason, in one sentence."""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Annotated, Any, Self, get_args
from unicodedata import category

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, PlainValidator, ValidationError


class SpecError(ValueError):
    """A spec that makes no sense. The message begins with the path of the field.

    >>> raise SpecError("process.ell", "must be at least 1, got 0")
    Traceback (most recent call last):
    svag.lab.specs.fields.SpecError: process.ell: must be at least 1, got 0
    """

    def __init__(self, path: str, reason: str) -> None:
        path = named(path, 4096)  # a file may lie deep
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path = path
        self.reason = reason


def refusal_inside(error: ValidationError) -> SpecError | None:
    """The SpecError that a validator raised; pydantic wraps every ValueError into a report of several lines."""
    raised = (one.get("ctx", {}).get("error") for one in error.errors())
    return next((one for one in raised if isinstance(one, SpecError)), None)


class RefusesInOneSentence(BaseModel):
    """A model that refuses by the SpecError of its validators: here alone pydantic's wrapping is undone."""

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


# Sub-specs that are not chosen by their `kind`: what the chosen one is called, and the field that chooses it.
_CHOSEN_BY = {"data": ("a data set of {}", "name"), "model": ("a {}", "arch")}


def kinds_of(union: object) -> tuple[str, ...]:
    """The kinds among which a part of a spec chooses, such as `parts.Probe`."""
    members, _ = get_args(union)
    return tuple(get_args(one.model_fields["kind"].annotation)[0] for one in get_args(members))


def spec_error(
    error: ValidationError, fields: Mapping[str, Sequence[str]], kinds: Mapping[str, Sequence[str]] | None = None
) -> SpecError:
    """Turn what pydantic found into one sentence about the first problem.

    `fields` holds the names that exist, by the path of what holds them, to guess what an unknown one was meant to be;
    `kinds` those among which a part of the spec chooses.
    """
    if (refusal := refusal_inside(error)) is not None:
        return refusal
    # a default that depends on a field which is wrong is no problem of its own
    found = [one for one in error.errors() if one["type"] != "default_factory_not_called"]
    # a misspelt name leaves the right one missing: the guess is the better sentence
    misspelt = [one for one in found if one["type"] == "extra_forbidden"]
    first = misspelt[0] if misspelt and found[0]["type"] == "missing" else found[0]
    path = [named(str(part)) for part in first["loc"]]
    if len(path) > 1 and path[0] in {"process", "optimizer", "schedule", "probe", "budget", *_CHOSEN_BY}:
        chosen = path.pop(1)  # the kind, by which pydantic chose the sub-spec
        if first["type"] == "extra_forbidden" and path[-1] in fields[path[0]]:
            kind, by = _CHOSEN_BY.get(path[0], ("kind {}", "kind"))
            said = f"{kind.format(chosen)} has no such field: name another {path[0]}.{by} with it"
            return SpecError(".".join(path), said)
    reason = _reason(first["type"], dict(first.get("ctx", {})), first["input"], first["msg"], path, fields, kinds or {})
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return SpecError(".".join(path), reason + more)


def _reason(
    kind: str,
    context: dict[str, Any],
    value: object,
    message: str,
    path: list[str],
    fields: Mapping[str, Sequence[str]],
    kinds: Mapping[str, Sequence[str]],
) -> str:
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return f"there is no such field; {near(path[-1], fields.get('.'.join(path[:-1]), ()))}"
    if kind == "union_tag_invalid":
        return f"kind must be one of {context['expected_tags'].replace(chr(39), '')}, got {shown(context['tag'])}"
    if kind == "union_tag_not_found":
        choice = ", ".join(kinds.get(".".join(path), ()))
        return f"kind is missing: say which of {choice}" if choice else "kind is missing"
    if kind == "literal_error":
        return f"must be one of {context['expected'].replace(chr(39), '')}, got {shown(value)}"
    if kind == "value_error":
        return str(context["error"])
    if kind in {"model_type", "model_attributes_type", "dict_type"}:
        return f"must be a mapping of fields, got {shown(value)}"
    rule, prefix = message.partition(",")[0], "Input should be "
    if context.get("le") == STEEPEST:  # which pydantic writes with all its digits
        rule = f"{prefix}less than or equal to {STEEPEST:g}"
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


LONGEST = 80
"""Characters of a value that a message shows."""


def cut(text: str, longest: int = LONGEST) -> str:
    r"""The beginning of a text, in one line.

    >>> cut("a\nb"), len(cut("x" * 1000))
    ('a b', 80)
    """
    line = " ".join(text[: 10 * longest].split())
    line = "".join(one if one.isprintable() else "?" for one in line)
    return line if len(line) <= longest else line[: longest - 1] + "…"


def shown(value: object) -> str:
    """A value as the user wrote it, at most 80 characters of it: it is not written any further than that.

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
    """The parts of `repr(value)`, one after the other: a mapping may hold itself, or 10^40 words."""
    match value:
        case dict():
            yield "{"
            for place, (key, one) in enumerate(value.items()):
                yield ", " if place else ""
                yield from _pieces(key)
                yield ": "
                yield from _pieces(one)
            yield "}"
        case list() | tuple():
            yield "[" if isinstance(value, list) else "("
            for place, one in enumerate(value):
                yield ", " if place else ""
                yield from _pieces(one)
            yield "]" if isinstance(value, list) else ",)" if len(value) == 1 else ")"
        case str() | bytes():
            yield repr(value[: LONGEST + 1])
        case int() if value.bit_length() > 4 * LONGEST:  # Python refuses to write the longest of them
            yield f"a number of {int(value.bit_length() * 0.30103) + 1} digits"
        case _:
            yield cut(repr(value), LONGEST + 1)


def named(name: str, longest: int = LONGEST) -> str:
    r"""The name of a field or of a file in a message: one that is not printable is shown as a value.

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
    """What YAML takes for text, 1e3, is a whole number to a person."""
    if isinstance(value, str):
        with suppress(ValueError, OverflowError):
            number = float(value)
            return int(number) if number == int(number) else number
    return _no_bool(value)


MOST_VALUES = 10_000
"""Values of a spec, its mappings and lists included. Real ones have a few dozen."""


def refuse_endless(fields: object) -> None:
    """Refuse what could not even be written down: numbers of thousands of digits, lists in lists, far too many values.

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
            waiting += [((*path, name), one) for name, one in islice(items, MOST_VALUES)]
    raise SpecError("", f"a spec with more than {MOST_VALUES} values is not read")


MOST = 10**12
"""No count in a spec is larger."""

STEEPEST = 1e30
"""No rate in a spec is larger: the weights are float32, which end at 3e38."""

LARGEST = 2 * 10**9
"""Weights of a network: at four bytes each, and as many for the gradient, it would not fit into 16 GB."""

DEEPEST, WIDEST = 2000, 100_000
"""Layers of a network, of which the deepest residual one in the literature has 1202, and channels of its first stage
or features of a transformer."""


def time_point(value: object) -> int | float:
    """A time in a run: a whole number is an effective step, a number with a point is a fraction of the budget.

    >>> time_point(500), time_point(0.5), time_point("0.5")
    (500, 0.5, 0.5)
    """
    if isinstance(value, str):
        for reads in (int, float):
            with suppress(ValueError):
                value = reads(value)
                break
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be an effective step (500) or a fraction of the budget (0.5), got {shown(value)}")
    if isinstance(value, float) and not 0 <= value <= 1:  # catches nan too
        raise ValueError(f"a fraction of the budget must lie in [0, 1], got {value}: an effective step has no point")
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
            name.encode()  # half a character cannot be written down
            return name
    except UnicodeEncodeError:
        pass
    raise ValueError(f"is not the name of a file, got {shown(name)}")


FileName = Annotated[str, AfterValidator(_writable)]
When = Annotated[int | float, PlainValidator(time_point)]
Positive = Annotated[float, Field(gt=0, le=STEEPEST, allow_inf_nan=False), BeforeValidator(_no_bool)]
Factor = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False), BeforeValidator(_no_bool)]
NonNegative = Annotated[float, Field(ge=0, le=STEEPEST, allow_inf_nan=False), BeforeValidator(_no_bool)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(_no_bool)]
Count = Annotated[int, Field(ge=1, le=MOST), BeforeValidator(_whole)]
Whole = Annotated[int, Field(ge=0, le=MOST), BeforeValidator(_whole)]
Several = Annotated[int, Field(ge=2, le=10**9), BeforeValidator(_whole)]
Seed = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(_whole)]


def visible(text: str, *, lines: bool = False) -> str:
    r"""Text for people, in a terminal, a table or a chart: what would act there is shown as JSON writes it.

    Everything that somebody else has named passes here before it is shown: folders, runs, panels, networks, errors.

    >>> print(visible("\x1b[2J\x9bm η\n"), visible("two\nlines", lines=True), sep="|")
    \u001b[2J\u009bm η\n|two
    lines

    Args:
        text: anything.
        lines: let ends of lines and tabs be: for a text of ours, in which every name is visible already.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(_as_json(char) if category(char) in _ACTING and char not in kept else char for char in text)


# control characters, marks that change the direction of what follows, halves of characters, what is no character, other
# ends of lines
_ACTING = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}


def _as_json(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]
