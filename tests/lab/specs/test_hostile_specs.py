"""No spec makes the program hang or shows a traceback: each is refused in one short sentence that names the field."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.lab.specs.fuzz import LONGEST, answers_within, bomb, deep, hostile_specs, nested_bomb, recursive, refusal
from tests.lab.specs.specs import BASE, base

from svag.lab.records.identity import identity
from svag.lab.specs.fields import SpecError, shown
from svag.lab.specs.spec import RunSpec

VALID = yaml.safe_dump(BASE, sort_keys=False)


@pytest.fixture(autouse=True)
def _no_hanging() -> Iterator[None]:
    with answers_within(60):
        yield


def changed(**fields: Any) -> dict[str, Any]:
    return {**BASE, **fields}


MANY = "".join(f"key{number}: {number}\n" for number in range(60_000))


HOSTILE: list[tuple[Any, str]] = [
    (f"{bomb()}\n{VALID}seed: *x39", "a spec with more than 10000 values, aliases written out, is not read"),
    (f"{nested_bomb()}\n{VALID}process: *x39", "a spec with more than 10000 values, aliases written out"),
    (VALID.replace("arch: mlp", "arch: *x39").replace("data:", bomb() + "\ndata:"), "a spec with more than 10000"),
    (f"process: &a [*a]\n{VALID}", "not YAML: an alias in line 1 contains itself"),
    ("&a {lr: *a}", "not YAML: an alias in line 1 contains itself"),
    (VALID + MANY, "a spec of more than 50000 characters is not read"),
    (changed(**{f"key{number}": number for number in range(60_000)}), "a spec with more than 10000 values is not"),
    (changed(budget=10**12, probe={"kind": "frozen", "readings": 10**11}), "probe.readings: must be less than or"),
    (changed(model={"arch": "preresnet600000002"}), "model.arch: a residual network has at most 2000 layers, got"),
    (changed(model={"arch": "resnet" + "8" * 6000}), "model.arch: a residual network has at most 2000 layers, got"),
    (changed(model={"arch": "mlp", "width": 1e6}), "model.width: 256 × width must be at most 100000 channels, got"),
    (VALID.replace("lr: 0.1", "lr: 0x" + "f" * 5000), "lr: no field is that large, got a number of 6021 digits"),
    (VALID.replace("lr: 0.1", "lr: " + "1" * 5000), "not YAML: ValueError Exceeds the limit"),
    (VALID.replace("lr: 0.1", "lr: !!int ''"), "not YAML: IndexError string index out of range"),
    (changed(schedule={"kind": "steps", "at": [10**5000]}), "schedule.at.0: no field is that large, got a number"),
    (changed(lr=1e300), "lr: must be less than or equal to 1e+30, got 1e+300"),
    (changed(lr=1e-300, weight_decay=1e300), "weight_decay: must be less than or equal to 1e+30, got 1e+300"),
    (
        changed(lr=1e29, schedule={"kind": "steps", "at": [1, 2], "factor": 100.0}),
        "schedule: raises the learning rate to 1e+33, above the largest possible, 1e+30",
    ),
    (changed(evaluate={"every": 10**400}), "evaluate.every: must be at most 1e+12, got a number of 401 digits"),
    (changed(data={"name": "npz", "path": "a\0b"}), "data.path: is not the name of a file, got 'a\\x00b'"),
    (changed(data={"name": "npz", "path": "a\ud800"}), "data.path: is not the name of a file, got 'a\\ud800'"),
    (changed(schedule={"kind": "triangle", "peaks": [1.0] * 51}), "schedule.peaks: must name at most 50 peaks"),
    (changed(process=recursive()), "process: no field is nested that deeply"),
    (changed(lr=deep(5000)), "lr: no field is nested that deeply"),
    (changed(data="x" * 10**6), "data: must be a mapping of fields, got 'xxx"),
    (changed(**{"x" * 1000: 1}), "'xxxxx"),
    (changed(**{"a\n\x1b[2Jb": 1}), "'a\\n\\x1b[2Jb': there is no such field"),
    ({**BASE, ("a",) * 500: 1}, "the name of a field must be text, got ('a', 'a',"),
]


@pytest.mark.parametrize(("hostile", "sentence"), HOSTILE, ids=[sentence[:50] for _, sentence in HOSTILE])
def test_a_hostile_spec_is_refused_in_one_sentence(hostile: Any, sentence: str) -> None:
    said = refusal(hostile)
    assert said is not None
    assert said.startswith(sentence), said
    assert "x" * 81 not in said


@pytest.mark.parametrize("kind", ["pipe", "/dev/zero", "folder", "link to itself", "nothing"])
def test_data_that_is_no_file_is_refused_and_not_waited_for(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data.npz"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "/dev/zero":
            path = Path("/dev/zero")
        case "folder":
            path.mkdir()
        case "link to itself":
            path.symlink_to(path)
    with pytest.raises(SpecError, match=r"^data\.path:"):
        identity(base({"data": {"name": "npz", "path": str(path)}}))


def test_a_spec_is_read_from_a_pipe_but_not_without_end(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^/dev/zero: .* 50000 "):
        RunSpec.load("/dev/zero")
    reading, writing = os.pipe()
    os.write(writing, VALID.encode())
    os.close(writing)
    assert RunSpec.load(f"/dev/fd/{reading}") == base()
    os.close(reading)
    with pytest.raises(SpecError, match=r"^'a\\x00b':"):
        RunSpec.load("a\0b")


def test_aliases_that_do_not_multiply_are_fine() -> None:
    """The negative control."""
    text = VALID.replace("data:", "data: &data").replace("model:", "model: &model")
    assert RunSpec.from_yaml(text) == base()
    assert RunSpec.from_yaml("schedule: &s {kind: steps, at: [&h 0.5]}\n" + VALID) == base(
        {"schedule": {"kind": "steps", "at": [0.5]}}
    )
    probe = {"kind": "in_run", "parts": 2, "every": 2}
    assert RunSpec.from_yaml(VALID + "probe: {kind: in_run, parts: &p 2, every: *p}") == base({"probe": probe})


def test_a_value_is_shown_as_python_writes_it_up_to_80_characters() -> None:
    short: list[Any] = [1, 1.5, "a'b", [1, (2,), ()], {"a": [None, True]}, b"x", {1, 2}, -(10**70), [], {}]
    long: list[Any] = ["x" * 99, ["x"] * 99, {"x" * 99: 1}, deep(99), recursive(), 10**5000, [10**5000], range(10**99)]
    assert [shown(value) for value in short] == [repr(value) for value in short]
    assert all(len(shown(value)) <= 80 and shown(value).isprintable() for value in long)


@pytest.mark.parametrize("seed", [0, 1])
def test_random_hostile_specs_are_answered(seed: int) -> None:
    said = [refusal(hostile) for hostile in hostile_specs(seed, 200)]
    refused = [sentence for sentence in said if sentence is not None]
    assert len(set(refused)) > 50, "they are refused for many reasons"
    assert 0 < len(refused) < len(said), "and some are fine"
    assert max(map(len, refused)) <= LONGEST
