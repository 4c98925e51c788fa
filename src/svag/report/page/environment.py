"""The templates of the pages; whatever is put into them is escaped."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from svag.report.page import cells


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("svag.report.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(cell=cells.cell, columns=cells.columns, csv_link=cells.csv_link)
    return environment


def template(name: str) -> Template:
    """A template by its file name."""
    return _environment().get_template(name)
