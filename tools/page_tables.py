"""Tables inside a page of the docs, each between `<!-- NAME -->` and `<!-- end of NAME -->`."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence


def head(*names: str) -> Iterator[str]:
    """The first two lines of a table."""
    yield row(*names)
    yield "|---" * len(names) + "|"


def row(*cells: object) -> str:
    """One line of a table."""
    return f"| {' | '.join(str(cell).replace('|', '∣') for cell in cells)} |"


def rewritten(page: str, tables: Mapping[str, Iterable[str]]) -> str:
    """The page with these lines in its tables."""
    for name, lines in tables.items():
        start, stop = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if page.count(start) != 1 or page.count(stop) != 1:
            raise ValueError(f"the page must have {start} and {stop} once")
        before, after = page.partition(start)[0], page.partition(stop)[2]
        page = "\n".join([before + start, "", *lines, "", stop + after])
    return page


def tables_in(page: str) -> dict[str, Sequence[str]]:
    """The lines of every table of a page, by name."""
    found = re.findall(r"<!-- (\w+) -->\n(.*?)\n<!-- end of \1 -->", page, re.DOTALL)
    return {name: [line for line in body.splitlines() if line] for name, body in found}
