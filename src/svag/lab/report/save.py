"""A chart as a file: HTML that opens offline, PNG, SVG or PDF.

The shared parts of HTML files are here too: the templates, JSON for a <script> element, and the scripts that draw
charts in a browser, which every page embeds.
"""

import json
import math
from collections.abc import Sequence
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

from svag.lab.records.storage import DiskError, make_folder, replace_file
from svag.lab.report.look import LIGHT
from svag.lab.specs.fields import visible

FORMATS = (".html", ".png", ".svg", ".pdf")
_END = "\n// end of the bundle\n"  # a cached file without it is incomplete

# `</script>` and `<!--` end or hide a script for the HTML parser, which ignores string literals; U+2028 and U+2029 used
# to end a line of JavaScript. Inside JSON strings the escapes mean the same characters.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def save(chart: alt.TopLevelMixin, path: str | Path) -> Path:
    """Write a chart in the format that the path ends in, and return the path; missing folders are made.

    Args:
        chart: any chart of `svag.lab.report.charts`.
        path: ends in .html (interactive, opens offline), .png, .svg or .pdf.
    """
    target = Path(path)
    (saved,) = save_as(chart, target.with_suffix(""), [target.suffix])
    return saved


def save_as(chart: alt.TopLevelMixin, stem: Path, formats: Sequence[str]) -> list[Path]:
    """Write a chart in several formats, and return the paths.

    Args:
        chart: any chart of `svag.lab.report.charts`.
        stem: the path without its ending.
        formats: endings, as `save` takes them.
    """
    kinds = [kind.lower() for kind in formats]
    for kind in kinds:
        if kind not in FORMATS:
            raise ValueError(f"{stem.name}{kind}: a chart is saved as {', '.join(FORMATS)}, not as '{kind}'")
    if not kinds:
        return []
    spec = {**specification(chart), "config": LIGHT}
    # laying out the chart takes most of the time, and PNG and PDF are drawn from the same picture
    svg = vlc.vegalite_to_svg(json.dumps(spec)) if set(kinds) - {".html"} else ""
    make_folder(stem.parent)
    paths = []
    for kind in kinds:
        if kind == ".png":
            content = vlc.svg_to_png(svg, scale=2)
        elif kind == ".pdf":
            content = vlc.svg_to_pdf(svg)
        else:
            content = (svg if kind == ".svg" else _html(spec, stem.name)).encode()
        paths.append(stem.with_name(stem.name + kind))
        replace_file(paths[-1], content)
    return paths


def specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The chart as Vega-Lite without a style, which is added where it is drawn."""
    spec: dict[str, Any] = _visible(chart.to_dict())
    spec.pop("config", None)
    return spec


def _visible(value: Any) -> Any:
    """Replace control characters in all texts, since they break renderers."""
    match value:
        case str():
            return visible(value)
        case dict():
            return {name: _visible(part) for name, part in value.items()}
        case list():
            return [_visible(part) for part in value]
    return value


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
        finalize=lambda value: visible(value, lines=True) if type(value) is str else value,  # not what is Markup
    )
    environment.filters["cell"] = cell
    return environment


def template(name: str) -> Template:
    """A template by its file name; whatever is put into it is escaped, unless it is `Markup`."""
    return _environment().get_template(name)


def cell(value: object) -> str:
    """A value formatted for a table.

    >>> cell(0.123456), cell(None), cell(12345.6), cell("x"), cell(3)
    ('0.1235', '–', '12346', 'x', '3')
    """
    if value is None or value == "" or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return str(value)


def script_json(value: Any) -> Markup:
    r"""JSON for a <script> element; NaN and infinity are refused, as JSON does not have them.

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

    Bundling takes seconds, so the result is kept in the user's cache, by the version of vl-convert.

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
