"""Damage to a run directory: what a disk, a copy that went wrong or an enemy makes of it. The same seed does the same.

Most of it a digest would notice, so half of the time the digests are made to fit: well-formed, and wrong.
"""

import hashlib
import io
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

FILES = ("spec.json", "metrics.jsonl", "timings.jsonl", "outcome.json", "checkpoint.pt")

# What a field may be replaced by, as JSON; Python's reader also takes Infinity and NaN.
JUNK = (
    *("null", "true", "0", "-1", "-5", "1e9", "1e400", "-1e400", "1e999999", "Infinity", "-Infinity", "NaN", "0.5"),
    *('""', '"x"', '"\\ud800"', '"\\u001b[31m"', '"a\\nb"', '"</script>"', '"=1+1"', "[]", "{}", "[[]]", '{"a": 1}'),
    *("1" * 400, "9" * 4000, "9" * 5000, "[" * 5000 + "]" * 5000, '{"a":' * 3000 + "1" + "}" * 3000),
)


def damaged(folder: Path, seed: int) -> str:
    """Damage a run directory in one way, in place, and say how."""
    choose = random.Random(seed)
    there = [name for name in FILES if (folder / name).is_file()]
    ways = [
        _bits,
        _cut,
        _junk,
        _lost,
        _other_kind,
        _fields,
        _fields,
        _fields,
    ]
    if "checkpoint.pt" in there:
        ways += [_state, _state]
    path = folder / choose.choice(there)
    how = choose.choice(ways)(choose, path)
    if choose.random() < 0.5:
        _fit_digests(folder)
        how += ", with digests that fit"
    return how


def hostile_name(choose: random.Random) -> str:
    """A name that a folder can have: any bytes, and often control characters or what is no character."""
    acting = [b"\n", b"\r", b"\t", b"\x1b[2J", b"\x07", b"\x01", b"\xff", "\uffff".encode(), "\u202e".encode(), b"<b>"]
    parts = [choose.choice([*acting, bytes([choose.choice([*range(1, 47), *range(48, 256)])])]) for _ in range(20)]
    return os.fsdecode(b"".join(parts[: choose.randint(3, 20)]))


def enlarged(folder: Path, seed: int) -> str:
    """Let a file of a run directory claim to have a terabyte, of which the disk holds nothing; say which."""
    path = folder / random.Random(seed).choice([name for name in FILES if (folder / name).is_file()])
    os.truncate(path, 2**40)
    return f"{path.name} of a terabyte"


def write_fifo(path: Path) -> None:
    """Put a pipe that nobody writes into in place of a file."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def wrong_states(state: dict[str, Any]) -> dict[str, Any]:
    """What a checkpoint may hold in place of a state, each well-formed and none of them right, by what is wrong."""
    import torch

    parameter = next(iter(state["model"].values()))
    group = state["optimizer"]["param_groups"][0]
    wrong: dict[str, Any] = {"a bare tensor": torch.zeros(3), "a list": [1, 2], "nothing": None, "an empty state": {}}
    wrong |= {f"without {name}": {k: v for k, v in state.items() if k != name} for name in state}
    wrong |= {f"{name} is None": {**state, name: None} for name in state if state[name] is not None}
    wrong["metrics_length is -1"] = {**state, "metrics_length": -1}
    for name in ("step", "metrics_length", "loss_count", "threads", "time", "seconds", "loss_offset", "parts_ratio"):
        numbers = (
            () if name == "loss_offset" else (-1, -5) if isinstance(state[name] or 0.0, float) else (-5, 10**9, 2.5)
        )
        for value in (*numbers, "x", float("nan"), float("inf"), True, [], torch.tensor(3)):
            wrong[f"{name} is {value!r}"] = {**state, name: value}
    for value in ([], [0], [-1], ["x"], "1", {}, [[1]], [1] * 10**6):
        wrong[f"processes is {str(value)[:20]}"] = {**state, "processes": value}
    for name in ("model", "optimizer", "stepper", "random", "loss_sum", "format", "identity", "device"):
        for value in ({}, [], "x", 7, torch.zeros(2), {"state": {}, "param_groups": []}):
            wrong[f"{name} is {str(value)[:30]}"] = {**state, name: value}
    first = next(iter(state["model"]))
    wrong["a weight of another shape"] = {**state, "model": {**state["model"], first: torch.zeros(1, 1, 7)}}
    wrong["a weight that is text"] = {**state, "model": {**state["model"], first: "x"}}
    wrong["a weight more"] = {**state, "model": {**state["model"], "more": parameter}}
    for what, momentum in (("of another shape", torch.zeros(7)), ("that is text", "x"), ("of numbers", 3.0)):
        buffers = {**state["optimizer"], "state": {0: {"momentum_buffer": momentum}}}
        wrong[f"a momentum buffer {what}"] = {**state, "optimizer": buffers}
    for what, groups in (("twice", [group, group]), ("of text", ["x"]), ("without its rate", [{"params": [0]}])):
        wrong[f"a group {what}"] = {**state, "optimizer": {**state["optimizer"], "param_groups": groups}}
    other_rate = {**state["optimizer"], "param_groups": [{**group, "lr": "x"}]}
    return wrong | {"a rate that is text": {**state, "optimizer": other_rate}}


def write_state(path: Path, state: Any) -> None:
    """Write a checkpoint with the digest that belongs to it."""
    import torch

    buffer = io.BytesIO()
    torch.save(state, buffer)
    path.write_bytes(buffer.getvalue() + hashlib.sha256(buffer.getvalue()).digest())


def _bits(choose: random.Random, path: Path) -> str:
    content = bytearray(path.read_bytes())
    for _ in range(choose.randint(1, 3) if content else 0):
        content[choose.randrange(len(content))] ^= 1 << choose.randrange(8)
    path.write_bytes(content)
    return f"bits of {path.name} flipped"


def _cut(choose: random.Random, path: Path) -> str:
    content = path.read_bytes()
    path.write_bytes(content[: choose.randrange(len(content) + 1)])
    return f"{path.name} cut"


def _junk(choose: random.Random, path: Path) -> str:
    junk = choose.choice(
        [b"", b"\0" * 1000, b"[" * 100_000, b"{}\n" * 50, b"null\n", b"\xff\xfe", b'{"a":' * 9000, b"PK\3\4"]
    )
    path.write_bytes(choose.choice([junk, path.read_bytes() + junk, junk + b"\n" + path.read_bytes()]))
    return f"{path.name} with {junk[:9]!r}"


def _lost(choose: random.Random, path: Path) -> str:
    path.unlink()
    return f"{path.name} lost"


def _other_kind(choose: random.Random, path: Path) -> str:
    kind = choose.choice(
        ["pipe", "folder", "link to itself", "link to /dev/zero", "link to nothing", "link to the folder"]
    )
    path.unlink()
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "link to itself":
            path.symlink_to(path)
        case "link to /dev/zero":
            path.symlink_to("/dev/zero")
        case "link to nothing":
            path.symlink_to(path.parent / "nothing")
        case _:
            path.symlink_to(path.parent, target_is_directory=True)
    return f"{path.name} is a {kind}"


def _fields(choose: random.Random, path: Path) -> str:
    """Replace one value of a JSON file, or of one of its lines, by junk."""
    if path.suffix == ".pt":
        path = path.with_name("metrics.jsonl")
    if not path.is_file():
        return f"{path.name} is not there to be damaged"
    lines = path.read_text().split("\n") if path.suffix == ".jsonl" else [path.read_text()]
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if not filled:
        return f"{path.name} is empty"
    number, junk = choose.choice(filled), choose.choice(JUNK)
    value = json.loads(lines[number])
    holder, name = choose.choice(_places(value))
    holder[name] = "@@@"
    indent = None if path.suffix == ".jsonl" else 2
    lines[number] = json.dumps(value, indent=indent).replace('"@@@"', junk)
    path.write_text("\n".join(lines))
    return f"{name} in line {number + 1} of {path.name} is {junk[:20]}"


def _places(value: Any) -> list[tuple[Any, Any]]:
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [(value, name) for name, _ in items] + [place for _, below in items for place in _places(below)]


def _state(choose: random.Random, path: Path) -> str:
    import torch

    path = path.with_name("checkpoint.pt")
    states = wrong_states(torch.load(path, weights_only=True))
    what = choose.choice(sorted(states))
    write_state(path, states[what])
    return f"checkpoint.pt: {what}"


def _fit_digests(folder: Path) -> None:
    """Let `outcome.json` vouch for the spec and the metrics as they are now, where it still can."""
    path = folder / "outcome.json"
    if not path.is_file() or path.is_symlink():
        return
    try:
        outcome = json.loads(path.read_bytes())
        for name, file in (("spec_sha256", "spec.json"), ("metrics_sha256", "metrics.jsonl")):
            if name in outcome and (folder / file).is_file():
                outcome[name] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
        path.write_text(json.dumps(outcome, indent=2))
    except (ValueError, TypeError, RecursionError, OSError):
        return


def copied(folder: Path, target: Path) -> Path:
    """A copy of a healthy run directory, to be damaged."""
    return Path(shutil.copytree(folder, target))
