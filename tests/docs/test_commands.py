"""The commands, flags and specs in the pages exist: what a reader copies works."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from svag.lab.cli.flags import KNOWN, ExperimentCommand
from svag.lab.specs.spec import RunSpec
from svag.paper.cli.app import app
from svag.paper.verify import LABELS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(svag [a-z-][^`\n]*)`")


def blocks(text: str, language: str) -> Iterator[str]:
    yield from (found[2] for found in FENCE.finditer(text) if found[1] == language)


def commands(text: str) -> Iterator[str]:
    for block in blocks(text, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = line.split("#")[0].strip().removeprefix(".venv/bin/")
            if words.startswith("svag "):
                yield words
    yield from (found[1] for found in INLINE.finditer(FENCE.sub("", text)))


def problem(line: str, root: Any = None) -> str:
    """What is wrong with a command line; nothing if it could be typed."""
    command = root or typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return f"no command {words[0]}"
        command = command.commands[words.pop(0)]
    flags = {flag for one in command.params for flag in [*one.opts, *one.secondary_opts]} | {"--help", "-h"}
    if (command.context_settings or {}).get("ignore_unknown_options") or isinstance(command, ExperimentCommand):
        flags |= {f"--{field}" for field in KNOWN}
    used = [word.split("=")[0] for word in words if word.startswith("-")]
    unknown = [flag for flag in used if flag not in flags]
    if unknown:
        return f"no flag {unknown[0]}"
    if command.name == "verify":
        wrong = [word for word in words if ":" in word and word not in LABELS]
        return f"no check {wrong[0]}" if wrong else ""
    return ""


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_every_command_in_the_pages_exists(page: Path) -> None:
    wrong = [f"{line}: {why}" for line in commands(page.read_text(encoding="utf-8")) if (why := problem(line))]
    assert not wrong


@pytest.mark.parametrize(
    "line",
    [
        "svag verfy",
        "svag data fetch",
        "svag run base.yaml --learning-rate 0.1",
        "svag list --yaml",
        "svag verify thm:none",
        "svag data list --out x",
    ],
)
def test_a_wrong_command_is_seen(line: str) -> None:
    assert problem(line)


def test_right_commands_pass() -> None:
    lines = ["svag run a.yaml --model.norm=batch --json", "svag data list --data-dir x", "svag --version", "svag -h"]
    assert [problem(line) for line in lines] == [""] * 4


def all_commands(command: Any = None, name: str = "svag") -> Iterator[tuple[str, Any]]:
    found = command or typer.main.get_command(app)
    if not hasattr(found, "commands"):
        yield name, found
        return
    for short, one in found.commands.items():
        yield from all_commands(one, f"{name} {short}")


HELPED = [pytest.param(*one, id=one[0]) for one in all_commands()]


@pytest.mark.parametrize(("name", "command"), HELPED)
def test_every_help_has_an_example_that_can_be_typed(name: str, command: Any) -> None:
    *_, example = command.help.split("\n\n")
    assert example.startswith(f"Example: {name}")
    assert problem(example.removeprefix("Example: ")) == ""


def test_help_is_broken_by_the_terminal_alone_and_brackets_stand_once() -> None:
    for name, command in all_commands():
        assert not re.search(r"(?<!\n)\n(?!\n)", command.help), name
        said = CliRunner().invoke(app, [*name.split()[1:], "--help"]).output
        assert "[[" not in said, name
    assert "svag list [OPTIONS] [DIR]" in CliRunner().invoke(app, ["list", "--help"]).output
    assert "svag verify [OPTIONS] [LABEL]..." in CliRunner().invoke(app, ["verify", "--help"]).output


def test_commands_are_found_where_they_stand() -> None:
    text = "see `svag list`\n```bash\nmake x\n.venv/bin/svag verify \\\n  --json  # say `svag no`\n```\n"
    assert [" ".join(one.split()) for one in commands(text)] == ["svag verify --json", "svag list"]


SPECS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(blocks(page.read_text(encoding="utf-8"), "yaml"))
]


@pytest.mark.parametrize("block", SPECS)
def test_every_spec_in_the_pages_is_one(block: str) -> None:
    assert RunSpec.from_yaml(block).steps() > 0
