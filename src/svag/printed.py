"""How results show themselves, in a notebook and at a prompt: by what `print` shows, whose first line is the answer."""

import html
import textwrap

_WIDTH = 100  # of a repr


class Printed:
    r"""Gives a result with a `__str__` its form in a notebook, with the first line in bold, and a `repr` of one line.

    Dataclasses bring a `repr` of their own, with all fields; those with many turn it off (`repr=False`).

    >>> class Answer(Printed):
    ...     def __str__(self) -> str:
    ...         return "B* < 512\nmeasured at 32"
    >>> Answer()._repr_html_()
    '<p><b>B* &lt; 512</b></p><pre style="white-space: pre-wrap">measured at 32</pre>'
    >>> Answer()
    <svag.Answer: B* < 512>
    """

    __slots__ = ()

    def __repr__(self) -> str:
        head, _, _ = str(self).partition("\n")
        return f"<svag.{type(self).__name__}: {textwrap.shorten(head.rstrip('.'), _WIDTH, placeholder=' …')}>"

    def _repr_html_(self) -> str:
        head, _, rest = (html.escape(part) for part in str(self).partition("\n"))
        body = f'<pre style="white-space: pre-wrap">{rest.strip(chr(10))}</pre>'  # sentences are longer than a cell
        return f"<p><b>{head}</b></p>{body if rest else ''}"
