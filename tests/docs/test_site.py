"""The site builds without a warning, from pages that are all in its navigation, and asks nobody else for anything."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import svag

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

# What makes a browser fetch something; a link that a reader may click does not.
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc=["']?(https?:)?//""", re.IGNORECASE
)
LINKED = re.compile(r"""<link\b(?![^>]*rel=["']?canonical)[^>]*\bhref=["']?(https?:)?//""", re.IGNORECASE)
IN_CSS = re.compile(r"""(?:@import\s+["']?|url\(\s*["']?)(https?:)?//""", re.IGNORECASE)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def fetches(text: str) -> list[str]:
    return [found[0] for pattern in (FETCHED, LINKED, IN_CSS) for found in pattern.finditer(text)]


def test_every_page_is_built(site: Path) -> None:
    for page in DOCS.glob("*.md"):
        assert (site / page.with_suffix(".html").name).is_file(), page


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for path in [*site.rglob("*.html"), *site.rglob("*.css")]:
        assert not fetches(path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize(
    "line",
    [
        '<script src="https://unpkg.com/mermaid"></script>',
        '<img alt="a" src="//example.org/a.png">',
        '<link rel="stylesheet" href="https://fonts.googleapis.com/css?family=Roboto">',
        "@import url(https://example.org/a.css)",
    ],
)
def test_a_fetch_would_be_seen(line: str) -> None:
    assert fetches(line)
    assert not fetches('<a href="https://example.org">a link</a> <script src="assets/a.js"></script>')


def test_formulas_are_mathml_and_examples_are_code(site: Path) -> None:
    page = (site / "reference.html").read_text(encoding="utf-8")
    assert page.count("<math ") >= 5
    assert "arithmatex" not in page
    assert "$$" not in page
    assert "<p>&gt;&gt;&gt;" not in page


def test_no_page_quotes_an_example(site: Path) -> None:
    for page in site.glob("*.html"):
        assert "<blockquote>" not in page.read_text(encoding="utf-8"), f"{page.name}: bare >>> lines are quotations"


@pytest.mark.parametrize("name", svag.__all__)
def test_every_public_name_is_in_the_reference(name: str, site: Path) -> None:
    assert (site / "reference.html").read_text(encoding="utf-8").count(f'id="svag.{name}"') == 1


def broken(folder: Path, page: str, navigation: str) -> subprocess.CompletedProcess[str]:
    (folder / "docs").mkdir()
    (folder / "docs" / "index.md").write_text(page)
    (folder / "docs" / "other.md").write_text("# Other\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    kept = re.search(r"^validation:.*?(?=^\w)", settings, re.MULTILINE | re.DOTALL)
    assert kept
    (folder / "mkdocs.yml").write_text(f"site_name: broken\nnav: [{navigation}]\n{kept[0]}")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def cases() -> Iterator[tuple[str, str, str, int]]:
    yield "fine", "# One\n[two](other.md)\n", "index.md, other.md", 0
    yield "link", "# One\n[two](missing.md)\n", "index.md, other.md", 1
    yield "anchor", "# One\n[two](other.md#missing)\n", "index.md, other.md", 1
    yield "navigation", "# One\n", "index.md", 1


@pytest.mark.parametrize(("page", "navigation", "code"), [pytest.param(*rest, id=name) for name, *rest in cases()])
def test_a_broken_page_fails_the_build(page: str, navigation: str, code: int, tmp_path: Path) -> None:
    done = broken(tmp_path, page, navigation)
    assert done.returncode == code, done.stdout + done.stderr
