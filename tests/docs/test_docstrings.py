"""How docstrings become a page: formulas to MathML, bare doctests to code."""

import pytest
from tests.docs.tools import load


def test_marked_formulas_become_mathml_and_nothing_else_changes() -> None:
    text = (
        r'<p>a <span class="arithmatex">\(x^2\)</span> b <code>\(y\)</code></p>'
        "\n"
        r'<div class="arithmatex">\[a &lt; b\]</div>'
    )
    made = load("formulas").on_page_content(text, page=None)
    assert made.count("<math ") == 2
    assert made.count('display="block"') == 1
    assert made.startswith("<p>a <math ")
    assert r"<code>\(y\)</code></p>" in made
    assert "&#x0003C;" in made or "&lt;" in made
    assert "&amp;lt;" not in made, "the sign was escaped before"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("words\n>>> 1\n1\n\nmore", "words\n\n```pycon\n>>> 1\n1\n```\n\nmore"),
        (">>> 1\n1", "\n```pycon\n>>> 1\n1\n```"),
        ("no example", "no example"),
        (">>> 1\n\n>>> 2", "\n```pycon\n>>> 1\n```\n\n\n```pycon\n>>> 2\n```"),
    ],
)
def test_examples_become_code(text: str, made: str) -> None:
    assert load("doctest_blocks").fenced(text) == made
