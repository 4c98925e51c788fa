"""Compare what a page shows with what the software prints."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

# Bits of a training run depend on the processor: numbers may differ by this much elsewhere.
ELSEWHERE = 0.05

NUMBER = re.compile(r"\d+(?:\.\d+)?")


def printed(*command: str | Path, cwd: Path | None = None, columns: int = 80) -> str:
    """What a Python program prints on a terminal of some width."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "COLUMNS": str(columns)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(page: str, after: str = "") -> str:
    """The first output that a page shows after some words."""
    assert after in page, after
    return page[page.index(after) :].partition("```text\n")[2].partition("\n```")[0]


def names_of(page: str, before: str = "") -> dict[str, Any]:
    """Run the examples of a page, up to the one that contains some words; what they have defined."""
    names: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(page):
        if before and before in example.source:
            break
        exec(compile(example.source, "<page>", "exec"), names)
    return names


def cells(text: str, *left_out: str) -> list[list[str]]:
    """Lines of a text, tables among them by their columns, without some of the columns."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    gone = {head.index(name) for head in lines for name in left_out if name in head}
    return [
        [cell for column, cell in enumerate(line) if len(line) == 1 or column not in gone]
        for line in lines
        if any(line)
    ]


def close(said: str, found: str, elsewhere: float = ELSEWHERE) -> bool:
    """Whether two numbers are near each other, up to their last digit."""
    last_digit = 10.0 ** -len(said.partition(".")[2])
    return abs(float(said) - float(found)) <= elsewhere * float(found) + 1.01 * last_digit


def differences(said: list[list[str]], found: list[list[str]], elsewhere: float = ELSEWHERE) -> list[str]:
    """Lines of a page that are printed otherwise, beyond what another processor explains."""
    if len(said) != len(found):
        return [f"{len(said)} lines are now {len(found)}"]
    wrong = []
    for one, two in zip(said, found, strict=True):
        here, there = "  ".join(one), "  ".join(two)
        pairs = zip(NUMBER.findall(here), NUMBER.findall(there), strict=False)
        if NUMBER.sub("#", here) != NUMBER.sub("#", there) or not all(close(*pair, elsewhere) for pair in pairs):
            wrong.append(f"{here}  is now  {there}")
    return wrong
