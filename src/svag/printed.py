"""Results in a notebook: what `print` shows, with the first line, which is the answer, in bold."""

import html


class Printed:
    r"""Gives a result with a `__str__` its form in a notebook.

    >>> class Answer(Printed):
    ...     def __str__(self) -> str:
    ...         return "B* < 512\nmeasured at 32"
    >>> Answer()._repr_html_()
    '<p><b>B* &lt; 512</b></p><pre style="white-space: pre-wrap">measured at 32</pre>'
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        head, _, rest = (html.escape(part) for part in str(self).partition("\n"))
        body = f'<pre style="white-space: pre-wrap">{rest.strip(chr(10))}</pre>'  # sentences are longer than a cell
        return f"<p><b>{head}</b></p>{body if rest else ''}"
