"""Flags that take several values, and flags that are fields: exactly what reaches the command."""

from pathlib import Path

import pytest
import typer
from typer.core import TyperOption

from svag.lab.cli.flags import EXECUTION, execution_from, separate, shard_of, whole_numbers
from svag.lab.execution.execution import Execution
from svag.lab.specs.fields import SpecError
from svag.paper.cli.app import app


def options(command: str) -> dict[str, TyperOption]:
    found = typer.main.get_command(app).commands[command]  # type: ignore[attr-defined]
    return {name: one for one in found.params if isinstance(one, TyperOption) for name in one.opts}


@pytest.mark.parametrize(
    ("line", "own", "fields"),
    [
        ("base.yaml --ell 1 4 16 --seeds 5", "base.yaml --ell 1 --ell 4 --ell 16 --seeds 5", ""),
        ("--ell 1 4 base.yaml", "--ell 1 --ell 4 base.yaml", ""),
        ("base.yaml --ell 1,4,16", "base.yaml --ell 1,4,16", ""),
        ("base.yaml --ell=1,4 16", "base.yaml --ell 1,4 --ell 16", ""),
        ("base.yaml --ell 1 --ell 4", "base.yaml --ell 1 --ell 4", ""),
        ("--lr 0.1 base.yaml --model.norm=group", "base.yaml", "--lr 0.1 --model.norm=group"),
        ("base.yaml --ngd --lr 2 --json", "base.yaml --ngd --json", "--lr 2"),
        ("base.yaml --seeds=3 --out a --weight-decay 0", "base.yaml --seeds=3 --out a", "--weight-decay 0"),
        ("base.yaml --ell four", "base.yaml --ell four", ""),
        ("base.yaml --lr", "base.yaml", "--lr"),
        ("--help", "--help", ""),
    ],
)
def test_flags_are_parted(line: str, own: str, fields: str) -> None:
    assert separate(line.split(), options("compare")) == (own.split(), fields.split())


def test_a_flag_for_several_values_without_one_is_seen_as_empty() -> None:
    assert separate(["base.yaml", "--ell"], options("compare")) == (["base.yaml", "--ell", ""], [])


def test_whole_numbers() -> None:
    assert whole_numbers("--ell", ["1,4", "16"]) == (1, 4, 16)
    assert whole_numbers("--ell", []) == ()
    for text in ("0", "four", "1.5", "", "1,,2", "-1"):
        with pytest.raises(SpecError, match=r"^--ell:"):
            whole_numbers("--ell", [text])


def test_shards_are_counted_from_0() -> None:
    assert shard_of(None) is None
    assert (shard_of("0/2"), shard_of("1/2")) == ((0, 2), (1, 2))
    for text in ("2/2", "1", "a/b", "-1/2", "1/2/3"):
        with pytest.raises(SpecError, match=r"^--shard:"):
            execution_from({"shard": text})


def test_the_flags_of_an_execution_are_its_fields_with_the_same_defaults() -> None:
    known = options("ladder")
    given = {name: known[f"--{name.replace('_', '-')}"].default for name in EXECUTION}
    assert execution_from(given) == Execution()
    assert execution_from({**given, "workers": 3, "data_dir": Path("x")}) == Execution(workers=3, data_dir=Path("x"))
