"""Shows the examples of docstrings as code: in docstrings they stand bare, as doctest wants them."""

import griffe


def fenced(text: str) -> str:
    """Put every run of lines from a `>>>` to the next empty line into a fence of its own."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>> "):
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


class DoctestBlocks(griffe.Extension):
    """What `mkdocs.yml` loads."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
