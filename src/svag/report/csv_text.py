"""Rows as CSV, for people with a spreadsheet."""

import csv
import io
import math
from collections.abc import Mapping, Sequence


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    r"""Rows as CSV with a header: all columns that any row has, in the order in which they first come.

    What is unknown (None, NaN) is an empty cell.

    >>> csv_text([{"run": "a, b", "error": 0.5}, {"run": "c", "error": math.nan}])
    'run,error\r\n"a, b",0.5\r\nc,\r\n'
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(columns)
    writer.writerows([[_cell(row.get(name)) for name in columns] for row in rows])
    return file.getvalue()


def _cell(value: object) -> object:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
