"""Commands with flags of three kinds: typer's own, those that take several values, and every field of a spec.

`--ell 1 4 16`, `--ell 1,4,16` and `--ell 1 --ell 4 --ell 16` mean the same; click itself only knows the last.
"""

import re
from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperOption

from svag.records.refusal import SpecError, shown

_NUMBERS = re.compile(r"[\d.,]+")


class ExperimentCommand(TyperCommand):
    """A command that passes the flags it does not know on as fields of a spec, wherever they stand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Let click see its own flags only; the others are left in `ctx.args`."""
        known = {name: param for param in self.params if isinstance(param, TyperOption) for name in _names(param)}
        own, fields = separate(args, known)
        super().parse_args(ctx, own)
        left: list[str] = [*ctx.args, *fields]
        ctx.args = left
        return left


def _names(option: TyperOption) -> list[str]:
    return [*option.opts, *option.secondary_opts]


def separate(args: Sequence[str], known: dict[str, TyperOption]) -> tuple[list[str], list[str]]:
    """Part the arguments into those of the command, several values spelt out, and the flags it does not know."""
    own: list[str] = []
    fields: list[str] = []
    rest = list(args)
    while rest:
        flag = rest.pop(0)
        name, equals, value = flag.partition("=")
        option = known.get(name)
        if not flag.startswith("--"):
            own.append(flag)
        elif option is None and flag != "--help":
            fields.append(flag)
            if not equals and rest:
                fields.append(rest.pop(0))
        elif option is not None and option.multiple:
            values = [value] if equals else rest[:1]
            del rest[: 0 if equals else 1]
            while rest and _NUMBERS.fullmatch(rest[0]):
                values.append(rest.pop(0))
            for one in values or [""]:
                own += [name, one]
        else:
            own.append(flag)
            if option is not None and not option.is_flag and not equals and rest:
                own.append(rest.pop(0))
    return own, fields


def whole_numbers(flag: str, values: Sequence[str]) -> tuple[int, ...]:
    """Numbers that were given apart, or with commas between them.

    >>> whole_numbers("--ell", ["1", "4,16"])
    (1, 4, 16)
    """
    found = []
    for text in ",".join(values).split(",") if values else []:
        if not text.strip().isdecimal() or int(text) < 1:
            raise SpecError(flag, f"takes whole numbers above 0, such as 1 4 16, got {shown(text)}")
        found.append(int(text))
    return tuple(found)


def shard_of(text: str | None) -> tuple[int, int] | None:
    """One of n parts of a plan, counted from 0.

    >>> shard_of("3/4")
    (3, 4)
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if not found or not int(found[1]) < int(found[2]):
        raise SpecError("--shard", f"must be i/n with i below n (0/4 is the first of four), got {shown(text)}")
    return int(found[1]), int(found[2])
