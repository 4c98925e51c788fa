"""What README.md and the home page print is what their examples print, and their links lead somewhere."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.docs.tools import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
HOME = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
# Bits of a training run depend on the processor: what is printed may differ by this much elsewhere.
ELSEWHERE = 0.05

NUMBER = re.compile(r"\d+(?:\.\d+)?")


@cache
def printed(example: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / example)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(page: str) -> list[str]:
    """The outputs that a page shows."""
    return [block.strip() for block in re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]


def cells(text: str, *left_out: str) -> list[list[str]]:
    """Lines of a text, tables among them by their columns, without some of the columns."""
    lines = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    gone = {head.index(name) for head in lines for name in left_out if name in head}
    return [
        [cell for column, cell in enumerate(line) if len(line) == 1 or column not in gone]
        for line in lines
        if any(line)
    ]


def close(said: str, found: str) -> bool:
    """Whether two numbers are near each other, up to their last digit."""
    last_digit = 10.0 ** -len(said.partition(".")[2])
    return abs(float(said) - float(found)) <= ELSEWHERE * float(found) + 1.01 * last_digit


def differences(said: list[list[str]], found: list[list[str]]) -> list[str]:
    """Lines of a page that an example prints otherwise, beyond what another processor explains."""
    wrong = []
    for one, two in zip(said, found, strict=True):
        here, there = "  ".join(one), "  ".join(two)
        pairs = zip(NUMBER.findall(here), NUMBER.findall(there), strict=False)
        if NUMBER.sub("#", here) != NUMBER.sub("#", there) or not all(close(*pair) for pair in pairs):
            wrong.append(f"{here}  is now  {there}")
    return wrong


def test_the_price_list_of_the_front_page() -> None:
    first, _, _ = printed("price_list.py").partition("\nWith the speed")
    assert differences(cells(shown(README)[0]), cells(first)) == []


def test_the_training_of_the_front_page() -> None:
    assert differences(cells(shown(README)[1]), cells(printed("gain_rule.py"))) == []


def test_the_price_list_of_the_home_page_apart_from_its_times() -> None:
    table = printed("price_list.py").partition("machine:\n")[2]
    rows = [line for line in cells(table, "time") if len(line) > 1]
    assert differences([line for line in cells(shown(HOME)[0], "time") if len(line) > 1], rows) == []


def test_a_number_that_differs_is_seen() -> None:
    said = cells("Batch 128: 1.5× the examples\n\nbatch size  time  steps\n  64  0.6×  ÷1.7")
    assert differences(said, said) == []
    assert differences(said, cells("Batch 128: 1.5× the examples\n\nbatch size  time  steps\n  64  0.6×  ÷2.7"))
    assert close("0.322", "0.33")
    assert not close("0.322", "0.37")
    assert differences(said, cells("Batch 256: 1.5× the examples\n\nbatch size  time  steps\n  64  0.6×  ÷1.7"))
    assert cells("batch size  time  steps\n  64  0.6×  ÷1.7", "time") == [["batch size", "steps"], ["64", "÷1.7"]]


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", head).strip().lower().replace(" ", "-") for head in heads}


def broken_links(text: str) -> list[str]:
    wrong = []
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#([^)\s]+))?\)", text):
        page = ROOT / target
        if not page.exists() or (anchor and anchor not in anchors(page)):
            wrong.append(f"{target}#{anchor}")
    return wrong


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_outside_the_site_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert text.count("](") >= 3
    assert broken_links(text) == []


def test_a_broken_link_is_seen() -> None:
    text = "[a](docs/none.md) [b](docs/index.md#none) [c](docs/reference.md#words) [d](https://example.org)"
    assert broken_links(text) == ["docs/none.md#", "docs/index.md#none"]
