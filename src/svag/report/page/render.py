"""The page as text."""

from importlib.metadata import version
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from svag.report import look
from svag.report.content import Report
from svag.report.page.environment import template
from svag.report.page.script_text import script_json
from svag.report.save import specification
from svag.report.vega import vega_bundle

MARKS = {"yes": "✓", "no": "✗", "open": "?"}


def render_page(report: Report) -> str:
    """One HTML file that opens without a network: text, charts, tables and the scripts that draw them."""
    charts = [{"name": figure.name, "spec": _fluid(specification(figure.chart))} for figure in report.figures]
    looks = {"light": {**look.LIGHT, "background": "transparent"}, "dark": look.DARK}
    return template("page.html").render(
        report=report,
        marks=MARKS,
        css=_own("page.css"),
        script=_own("page.js"),
        bundle=Markup(vega_bundle()),  # the libraries, as vl-convert brings them
        charts=script_json(charts),
        looks=script_json(looks),
        version=version("svag"),
    )


def _own(name: str) -> Markup:
    return Markup(files("svag.report.page").joinpath("templates", name).read_text(encoding="utf-8"))  # ours


def _fluid(spec: dict[str, Any]) -> dict[str, Any]:
    """A chart of one view takes the width of the page; rows of charts keep their own."""
    if "mark" in spec or "layer" in spec:
        return {**spec, "width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    return spec
