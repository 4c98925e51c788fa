"""Saving a chart as a file: HTML that needs no network, PNG, SVG or PDF."""

import json
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert as vlc
from markupsafe import Markup

from svag.records.files import replace_file
from svag.report.look import LIGHT
from svag.report.page.environment import template
from svag.report.page.script_text import script_json
from svag.report.vega import vega_bundle

FORMATS = (".html", ".png", ".svg", ".pdf")


def save(chart: alt.TopLevelMixin, path: str | Path) -> Path:
    """Write a chart in the format that the path ends in, and return the path.

    Args:
        chart: any chart of `svag.report.charts`.
        path: ends in .html (interactive, opens without a network), .png, .svg or .pdf.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in FORMATS:
        raise ValueError(f"{target.name}: a chart is saved as {', '.join(FORMATS)}, not as '{kind}'")
    spec = {**specification(chart), "config": LIGHT}
    text = json.dumps(spec)
    target.parent.mkdir(parents=True, exist_ok=True)
    if kind == ".png":
        content = vlc.vegalite_to_png(text, scale=2)
    elif kind == ".pdf":
        content = vlc.vegalite_to_pdf(text)
    elif kind == ".svg":
        content = vlc.vegalite_to_svg(text).encode()
    else:
        content = _html(spec, target.stem).encode()
    replace_file(target, content)
    return target


def specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The chart as Vega-Lite, without a look of its own: the place where it is drawn gives it one."""
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("config", None)
    return spec


def _html(spec: dict[str, Any], title: str) -> str:
    return template("chart.html").render(title=title, bundle=Markup(vega_bundle()), spec=script_json(spec))
