"""Writes the public names into docs/reference.md while the site is built, so that `__all__` is the only list."""

from importlib import import_module

MARKER = "<!-- public names -->"
# Package, and folder of the name's module in it: title of its section, in the order of the page.
TITLES = {
    "noise": "Measuring",
    "prices": "Prices",
    "dynamics": "Stepping",
    "verdicts": "Verdicts from bare numbers",
    "theory": "Formulas",
    "lab.specs": "The laboratory: specs",
    "lab.networks": "The laboratory: networks",
    "lab.training": "The laboratory: one run",
    "lab.experiments": "The laboratory: experiments",
    "lab.execution": "The laboratory: where runs run",
    "lab.records": "The laboratory: records",
    "lab.report": "The laboratory: the page",
}


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace the marker by one directive of mkdocstrings per name; mkdocs calls this for every page."""
    return markdown.replace(MARKER, directives())


def directives() -> str:
    """All public names, in sections by the folder that defines them."""
    sections: dict[str, list[str]] = {folder: [] for folder in TITLES}
    for package in ("svag", "svag.theory", "svag.lab"):
        for name in import_module(package).__all__:
            parts = getattr(import_module(package), name).__module__.split(".")
            sections[".".join(parts[1:3] if parts[1] == "lab" else parts[1:2])].append(f"::: {package}.{name}")
    lines = []
    for folder, title in TITLES.items():
        lines += [f"## {title}\n", *sections[folder], ""] if sections[folder] else []
    return "\n".join(lines)
