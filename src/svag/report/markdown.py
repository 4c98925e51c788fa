"""The answer as Markdown, for pasting into a pull request."""

import re

from svag.report.content import Report

# What Markdown or its HTML would take for markup; a run may be called anything.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def render_markdown(report: Report) -> str:
    """Title, answers with their numbers, figures by their sentences, how it was measured."""
    lines = [f"## {escape(report.title)}", "", escape(report.question), ""]
    for note in report.notes:
        lines += [f"> {escape(note)}", ""]
    for warning in report.warnings:
        lines += [f"> **{escape(warning)}**", ""]
    for answer in report.answers:
        lines += [f"### {escape(answer.panel)}", "", f"**{escape(answer.headline)}**", ""]
        if answer.numbers:
            lines += ["| | |", "|---|---|"]
            lines += [f"| {escape(name)} | {escape(value)} |" for name, value in answer.numbers]
            lines.append("")
        lines += [f"Next: {escape(answer.next)}", ""]
    if report.figures:
        lines += ["### Figures", ""]
        lines += [f"- {escape(figure.title)}. {escape(figure.sentence)}" for figure in report.figures]
        lines.append("")
    lines += ["### How it was measured", ""]
    lines += [f"- {escape(name)}: {escape(value)}" for name, value in report.measured.facts]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    r"""Text that stays text: no markup, one line.

    >>> escape("a|b <script>")
    'a\\|b \\<script\\>'
    """
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
