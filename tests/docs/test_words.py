"""How much there is to read: README.md on one page, and all pages together no longer than a long afternoon."""

from tests.docs.tools import ROOT, load

tool = load("count_words")

ALL_TOGETHER, README, EVIDENCE = 16_000, 900, 2_000


def test_the_pages_are_short_enough_to_be_read() -> None:
    assert sum(tool.counted().values()) <= ALL_TOGETHER


def test_the_front_page_is_one_page_with_its_code() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= README


def test_the_evidence_is_mostly_tables() -> None:
    assert tool.counted()["docs/evidence.md"] <= EVIDENCE


def test_only_prose_is_counted() -> None:
    page = """---
hide: [toc]
---
# One two

three <!-- not
this --> four

```python
not = "this"
```

- five – six
  ```bash
  nor this
  ```

| nor | this |
|---|---|
"""
    assert tool.words(page) == 6
