"""What stands in the tables of a page, and the links that download them."""

import base64
import math

from svag.report.content import Table
from svag.report.csv_text import csv_text


def csv_link(table: Table) -> str:
    """The rows as a link that downloads them without a script; the mark in front tells Excel that it is UTF-8."""
    content = base64.b64encode(("\ufeff" + csv_text(table.rows)).encode()).decode()
    return f"data:text/csv;charset=utf-8;base64,{content}"


def columns(table: Table) -> list[str]:
    """All columns that any row has, in order."""
    return list(dict.fromkeys(name for row in table.rows for name in row))


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
