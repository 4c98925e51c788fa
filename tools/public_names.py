"""Writes the public names into docs/reference.md while the site is built, so that `svag.__all__` is the only list."""

import svag

MARKER = "<!-- public names -->"
# Folder of the name's module: title of its section, in the order of the page.
TITLES = {
    "theory": "Formulas",
    "noise": "Measuring",
    "findings": "Findings",
    "dynamics": "Stepping",
    "records": "Readings, specs and records",
    "lab": "One run",
    "experiments": "Experiments",
    "execution": "Where runs run",
    "report": "The page",
}


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace the marker by one directive of mkdocstrings per name; mkdocs calls this for every page."""
    return markdown.replace(MARKER, directives())


def directives() -> str:
    """All public names, in sections by the folder that defines them."""
    folders = {name: getattr(svag, name).__module__.split(".")[1] for name in svag.__all__}
    assert set(folders.values()) <= set(TITLES), "a folder with public names needs a title"
    lines = []
    for folder, title in TITLES.items():
        names = [name for name in svag.__all__ if folders[name] == folder]
        lines += [f"## {title}\n", *(f"::: svag.{name}" for name in names), ""] if names else []
    return "\n".join(lines)
