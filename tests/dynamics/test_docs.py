"""The page about the steppers says what happens."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "dynamics.md"


def test_the_examples_of_the_page_run() -> None:
    results = doctest.testfile(str(PAGE), module_relative=False)
    assert results.attempted >= 15
    assert results.failed == 0
