"""Values inside a <script> element: JSON that cannot end the element, whatever text it holds."""

import json
from typing import Any

from markupsafe import Markup

# `</script>` and `<!--` end or hide a script for the HTML parser, which knows nothing of strings; U+2028 and U+2029
# once ended a line of JavaScript. Inside JSON strings the escapes mean the same characters.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def script_json(value: Any) -> Markup:
    r"""JSON for a <script> element; NaN and infinity, which JSON does not know, are refused.

    >>> script_json({"run": "</script>"})
    Markup('{"run":"\\u003c/script\\u003e"}')
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return Markup(text)  # escaped above
