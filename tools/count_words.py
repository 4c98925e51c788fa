"""Words of README.md and docs/*.md outside tables and code: what a reader has to read.

python tools/count_words.py    # one line per page, then the sum
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def prose(text: str) -> str:
    """The text of a page without front matter, code blocks, comments and tables."""
    for left_out in (FRONT_MATTER, FENCE, COMMENT):
        text = left_out.sub("", text)
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("|"))


def words(text: str) -> int:
    """Words of prose in a page; bullets, dashes and other signs that stand alone are none."""
    return sum(any(sign.isalnum() for sign in word) for word in prose(text).split())


def counted() -> dict[str, int]:
    """Words of prose by page."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return {str(page.relative_to(ROOT)): words(page.read_text(encoding="utf-8")) for page in pages}


def main() -> None:
    """Print the counts."""
    found = counted()
    for name, number in found.items():
        print(f"{number:>6} {name}")
    print(f"{sum(found.values()):>6} in all")


if __name__ == "__main__":
    main()
