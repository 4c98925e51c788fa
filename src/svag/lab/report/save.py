"""A chart as a file: HTML that opens offline, PNG, SVG or PDF.

The parts of which every HTML file of ours is made are here too: the templates, JSON for a <script> element, and the
scripts that draw charts in a browser, which each page carries with it.
"""

import json
import math
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import platformdirs
import vl_convert as vlc
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from svag.lab.records.files import DiskError, make_folder, replace_file
from svag.lab.report.look import LIGHT

FORMATS = (".html", ".png", ".svg", ".pdf")
_END = "\n// end of the bundle\n"  # a cached file without it was torn while it was written

# `</script>` and `<!--` end or hide a script for the HTML parser, which knows nothing of strings; U+2028 and U+2029
# once ended a line of JavaScript. Inside JSON strings the escapes mean the same characters.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def save(chart: alt.TopLevelMixin, path: str | Path) -> Path:
    """Write a chart in the format that the path ends in, and return the path; missing folders are made.

    Args:
        chart: any chart of `svag.lab.report.charts`.
        path: ends in .html (interactive, opens offline), .png, .svg or .pdf.
    """
    target = Path(path)
    kind = target.suffix.lower()
    if kind not in FORMATS:
        raise ValueError(f"{target.name}: a chart is saved as {', '.join(FORMATS)}, not as '{kind}'")
    spec = {**specification(chart), "config": LIGHT}
    text = json.dumps(spec)
    make_folder(target.parent)
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


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("svag.lab.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = cell
    return environment


def template(name: str) -> Template:
    """A template by its file name; whatever is put into it is escaped, unless it is `Markup`."""
    return _environment().get_template(name)


def cell(value: object) -> str:
    """A value in a table that people read.

    >>> cell(0.123456), cell(None), cell(12345.6), cell("x"), cell(3)
    ('0.1235', '–', '12346', 'x', '3')
    """
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return str(value)


def script_json(value: Any) -> Markup:
    r"""JSON for a <script> element; NaN and infinity, which JSON does not know, are refused.

    >>> script_json({"run": "</script>"})
    Markup('{"run":"\\u003c/script\\u003e"}')
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return Markup(text)  # escaped above


@cache
def vega_bundle(folder: Path | None = None) -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that puts `vegaEmbed` on the window.

    Putting them together takes seconds, so the result is kept in the user's cache, by the version of vl-convert.

    Args:
        folder: where to keep it; the user's cache folder when None.
    """
    kept = (folder or Path(platformdirs.user_cache_dir("svag"))) / f"vega-{version('vl-convert-python')}.js"
    with suppress(OSError, UnicodeDecodeError):
        text = kept.read_text(encoding="utf-8")
        if text.endswith(_END):
            return text
    text = vlc.javascript_bundle("window.vegaEmbed = vegaEmbed;") + _END
    with suppress(DiskError):  # a cache that cannot be written costs seconds, not the page
        make_folder(kept.parent)
        replace_file(kept, text.encode())
    return text
