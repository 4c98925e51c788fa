"""Links of the pages that the site does not build lead somewhere; `mkdocs build --strict` checks the others."""

import re
from pathlib import Path

import pytest
from tests.docs.tools import ROOT


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
