"""The scripts that draw charts in a browser, so that a page brings its own."""

from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import platformdirs
import vl_convert as vlc

from svag.records.files import DiskError, replace_file

_END = "\n// end of the bundle\n"


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
    with suppress(OSError, DiskError):  # a cache that cannot be written costs seconds, not the page
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_file(kept, text.encode())
    return text
