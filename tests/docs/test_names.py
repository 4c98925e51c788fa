"""The source files, modules and names that the pages mention exist."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

FILE = re.compile(r"`((?:\w+/)+\w+\.py)`")
NAME = re.compile(r"(?<![\w/.])(svag(?:\.\w+)+)|`((?:stats|theory|noise|findings)(?:\.\w+){2,})`")
WALK = re.compile(r"^\d+\. `[^`]+`", re.MULTILINE)  # in docs/architecture.md: tests/test_architecture.py looks at it


def missing_files(text: str) -> list[str]:
    places = [ROOT, ROOT / "src", ROOT / "src" / "svag", ROOT / "tests"]
    return [name for name in FILE.findall(WALK.sub("", text)) if not any((place / name).exists() for place in places)]


def missing_names(text: str) -> list[str]:
    """Dotted names that are neither a module nor something in one; pages may leave out the first `svag.`."""
    found = [full or f"svag.{short}" for full, short in NAME.findall(text)]
    return [name for name in found if resolved(name) is None]


def resolved(name: str) -> object:
    if name.startswith("svag.integrations."):  # what they need is optional: they are looked at, and not imported
        module, *inside = name.removeprefix("svag.integrations.").split(".")
        file = ROOT / "src" / "svag" / "integrations" / f"{module}.py"
        if not file.exists():
            return None
        source = file.read_text()
        return source if all(re.search(rf"^(class|def) {one}\b", source, re.MULTILINE) for one in inside) else None
    try:
        return import_module(name)
    except ImportError:
        path, _, last = name.rpartition(".")
        return getattr(resolved(path), last, None) if path else None


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_what_a_page_mentions_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert missing_files(text) == []
    assert missing_names(text) == []


def test_what_is_not_there_is_seen() -> None:
    assert missing_files("`theory/kappa.py`, `theory/bounds.py`, `verdicts/test_arms.py`") == ["theory/kappa.py"]
    found, lost = "svag.integrations.lightning.NoiseCallback", "svag.integrations.lightning.Noise"
    assert missing_names(f"svag.integrations.lightning, {found}, {lost}") == [lost]
    text = "svag.stats.ratio.ratio_interval, `stats.ratios.ratio_interval`, `stats.drift.trend_test`, svag.SVAG.step"
    assert missing_names(text) == ["svag.stats.ratio.ratio_interval", "svag.stats.drift.trend_test"]
