"""Hostile specs: what somebody might send to make a program hang, crash or lie. The same seed gives the same ones."""

import copy
import datetime as dt
import random
import signal
import string
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from tests.lab.specs.specs import BASE

from svag.lab.records.identity import identity
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import FIELDS, RunSpec

Hostile: TypeAlias = str | dict[Any, Any]

PATHS = [f"{above}.{name}" if above else name for above, names in FIELDS.items() for name in names]

# No refusal is longer: the path of a field, 80 characters of a value, and what to do.
LONGEST = 500


def hostile_specs(seed: int, count: int) -> Iterator[Hostile]:
    """`count` specs, as YAML texts and as mappings; a few are valid, and most are small changes of a valid one."""
    choose = random.Random(seed)
    for _ in range(count):
        yield choose.choice(_MAKERS)(choose)


def refusal(hostile: Hostile) -> str | None:
    """The sentence that refuses a spec, None if it is accepted; anything but a short sentence is an error.

    An accepted spec is also named, written and read back, which is what every command does first.
    """
    try:
        spec = RunSpec.from_yaml(hostile) if isinstance(hostile, str) else RunSpec.from_dict(hostile)
        identity(spec, Path("/"))
    except SpecError as error:
        sentence = str(error)
        assert sentence.isprintable(), f"not one line of text: {sentence!r}"
        assert 0 < len(sentence) <= LONGEST, sentence
        return sentence
    assert RunSpec.from_yaml(spec.to_yaml()) == spec
    assert RunSpec.from_dict(spec.to_dict()) == spec
    return None


@contextmanager
def answers_within(seconds: float) -> Iterator[None]:
    """Turn what never ends into a failure; generous, since it says nothing about speed."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def recursive() -> dict[str, Any]:
    """A mapping that holds itself."""
    made: dict[str, Any] = {"kind": "svag"}
    made["ell"] = made
    return made


def deep(levels: int) -> list[Any]:
    """A list in a list in a list."""
    made: list[Any] = []
    for _ in range(levels):
        made = [made]
    return made


def bomb(levels: int = 40) -> str:
    """A YAML text of a few lines whose last anchor stands for 10^levels words."""
    lines = ["x0: &x0 lol"]
    lines += [f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines)


def nested_bomb(levels: int = 40) -> str:
    """The same of mappings, by merge keys and by values."""
    lines = ["x0: &x0 {a: 1}"]
    lines += [f"x{i}: &x{i} {{a: *x{i - 1}, b: *x{i - 1}, <<: [*x{i - 1}, *x{i - 1}]}}" for i in range(1, levels)]
    return "\n".join(lines)


def _values(choose: random.Random) -> Any:
    makers: list[Callable[[], Any]] = [
        lambda: choose.choice([None, True, False, "", " ", [], {}, (), b"x", b"\xff" * 100, {1: 2}, {None: None}]),
        lambda: choose.choice([0, -1, 1, 2, 3, 7, 16, 400, 401, 10**6, 10**9, 10**12, 10**12 + 1, 2**63, -(2**63)]),
        lambda: choose.choice([10**400, 10**5000, -(10**5000), 1 << 40_000]),
        lambda: choose.choice([0.0, -0.0, 0.5, 1.0, 1e-320, 5e-324, 1e30, 1e37, 1e300, 1.7e308, -1e300]),
        lambda: choose.choice([float("inf"), float("-inf"), float("nan"), "inf", "nan", "-inf", ".inf", "1e999"]),
        lambda: choose.choice(["1e3", "1e12", "1e400", "0x10", "1_000", "١٢", "1" * 5000, "0x" + "f" * 5000]),
        lambda: choose.choice(["\0", "a\0b", "\ud800", "a\udcffb", "\x1b[31m", "a\nb", "\u202e", "\r", "😀" * 50]),
        lambda: choose.choice(["/dev/zero", "/dev/null", "/", ".", "/proc/self/mem", "~", "a" * 300, "/" * 5000]),
        lambda: choose.choice(["preresnet600000002", "resnet" + "8" * 6000, "resnet8", "vgg16", "vgg17", "mlp", ":"]),
        lambda: choose.choice(["os:system", "no.such.module:build", "a:b:c", "..:x", "tests:" + "x" * 70_000]),
        lambda: choose.choice([deep(50), deep(5000), recursive(), ["x"] * 10_000, {str(i): i for i in range(5000)}]),
        lambda: choose.choice([object(), 1j, {1, 2}, range(3), dt.date(2021, 1, 1), Path("a"), Ellipsis, print]),
        lambda: {"kind": choose.choice(["svag", "sgd", "sde", "glsr", "frozen", "in_run", "none", "steps", "", 3])},
        lambda: {"epochs": _values(choose)},
        lambda: [_values(choose) for _ in range(choose.randrange(4))],
        lambda: "".join(choose.choices(string.printable, k=choose.randrange(12))),
    ]
    return choose.choice(makers)()


def _mapping(choose: random.Random) -> dict[Any, Any]:
    """A valid spec with one to three fields replaced by anything."""
    fields: dict[Any, Any] = copy.deepcopy(BASE)
    for _ in range(choose.randint(1, 3)):
        *parents, name = choose.choice(PATHS).split(".")
        inside = fields
        for parent in parents:
            below = inside.get(parent)
            inside[parent] = inside = below if isinstance(below, dict) else {}
        inside[name] = _values(choose)
    if choose.random() < 0.1:
        fields[choose.choice([_values(choose), "x" * 50_000]) if choose.random() < 0.5 else "lr "] = 1
    return fields


def _hashable(choose: random.Random) -> dict[Any, Any]:
    while True:
        try:
            return _mapping(choose)
        except TypeError:  # a list is no key
            continue


def _sizes(choose: random.Random) -> dict[Any, Any]:
    """Valid numbers that are large enough to hang what computes with them."""
    large = [10**6, 10**9, 10**11, 10**12]
    edits: dict[str, Any] = {
        "budget": choose.choice([*large, {"epochs": choose.choice([1e3, 1e6])}]),
        "probe": choose.choice(
            [
                {"kind": "frozen", "readings": choose.choice(large), "window": [0.0, 1.0]},
                {"kind": "frozen", "batches": choose.choice(large)},
                {"kind": "in_run", "parts": choose.choice([2, 4, 10**9]), "every": choose.choice([1, 10**12, 1e-9])},
            ]
        ),
        "process": choose.choice([{"kind": "svag", "ell": choose.choice(large)}, {"kind": "sgd"}]),
        "schedule": {"kind": "triangle", "peaks": [1.0] * choose.choice([1, 1000, 100_000])},
        "model": {"arch": choose.choice(["mlp", "preresnet8", "vgg16"]), "width": choose.choice([1, 64, 1e4, 1e6])},
        "lr": choose.choice([1e-300, 0.1, 1e29, 1e300]),
    }
    names = choose.sample(sorted(edits), choose.randint(1, 3))
    return copy.deepcopy(BASE) | {name: edits[name] for name in names}


def _written(choose: random.Random) -> str:
    """A valid text with characters replaced, doubled or lost."""
    text = yaml.safe_dump(BASE, sort_keys=False, default_flow_style=None)
    letters = ":{}[]&*!|>'\"%@`,#?-\n\t \0\ufeff\x1b0e<~" + string.ascii_lowercase
    for _ in range(choose.randint(1, 6)):
        at = choose.randrange(len(text))
        text = text[:at] + choose.choice(["", choose.choice(letters), text[at] * 2]) + text[at + 1 :]
    return text


def _text(choose: random.Random) -> str:
    """A text that is an attack as a whole, or whose field is one."""
    valid = yaml.safe_dump(BASE, sort_keys=False)
    field = choose.choice(["lr", "name", "arch", "seed", "data", "process", "? [a]\n", "<<"])
    makers: list[Callable[[], str]] = [
        lambda: f"{bomb()}\n{valid}{field}: *x39\n",
        lambda: f"{nested_bomb()}\n{valid}{field}: *x39\n",
        lambda: valid.replace("mlp", "*x39").replace("data:", bomb() + "\ndata:"),
        lambda: f"{field}: &a [*a]\n{valid}",
        lambda: f"&a {{{field}: *a}}",
        lambda: f"data: &a {{name: *a, path: *b}}\n{valid}",
        lambda: "".join(f"key{i}: {i}\n" for i in range(choose.choice([10, 3000, 60_000]))),
        lambda: valid + f"lr: {choose.choice(['0x' + 'f' * 5000, '1' * 5000, '0b' + '1' * 20_000, '1:' * 9000 + '1'])}",
        lambda: choose.choice("[{-?") * choose.choice([10, 500, 5000, 50_000]),
        lambda: "- " * 20_000,
        lambda: "lr: " + choose.choice(["!!python/object/apply:os.system [ls]", "!!binary x", "!x y", "2021-99-99"]),
        lambda: valid.replace("0.1", choose.choice(["!!float x", "!!int ''", "!!timestamp 1", "!!set {a}", "!!null"])),
        lambda: choose.choice(
            ["", "\0", "---\n---\n", "%YAML 9.9\n---\na", "\ufeff" + valid, "a" * 200_000, "\t" * 99]
        ),
        lambda: valid + 'seed: "' + choose.choice([r"\ud800", r"\0", r"\x1b[2J", r"\uFFFE", "x" * 50_000]) + '"\n',
        lambda: valid + choose.choice([r'"\x1b[2J": 1', r'"a\nb": 1', "x" * 900 + ": 1", "1: 2", "~: 1", "[a]: 1"]),
        lambda: valid + "# " + "x" * 300_000,
        lambda: "".join(chr(choose.choice([choose.randrange(0x20, 0x7F), choose.randrange(0x250)])) for _ in range(60)),
    ]
    return choose.choice(makers)()


_MAKERS: list[Callable[[random.Random], Hostile]] = [_hashable, _hashable, _sizes, _written, _text]
