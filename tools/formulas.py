"""Turns the TeX of docstrings into MathML while the site is built, so that no script from elsewhere has to do it."""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    """Replace what `pymdownx.arithmatex` marked as a formula; mkdocs calls this for every page."""
    return FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found[1] == "div" else "inline"
    return str(convert(html.unescape(found[2]), display=display))
