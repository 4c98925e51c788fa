"""The page as text: escaped, whole, and the summaries beside it."""

import base64
import csv
import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console
from tests.lab.report.conftest import Build

from svag.lab.report.content import Card, Provenance, Report, Table
from svag.lab.report.render import escape, render_markdown, render_page, render_terminal
from svag.lab.report.save import script_json
from svag.lab.specs.fields import visible

EVIL = "</script><script>alert(1)</script> [bold]|`x`"


def evil(report: Report) -> Report:
    answer = replace(report.answers[0], panel=EVIL, headline=EVIL, numbers=((EVIL, EVIL),), next=EVIL)
    runs = Table("runs", "every run", [{"run": EVIL, "state": "finished", EVIL: 1}])
    return replace(report, title=EVIL, notes=(EVIL,), cards=(Card(answer),), runs=runs)


def test_the_page_holds_its_scripts_once_and_loads_nothing(report_of: Build) -> None:
    page = render_page(report_of("ladder"))
    assert page.count("window.vegaEmbed=") + page.count("window.vegaEmbed =") == 1
    outside = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", outside)
    assert "default-src 'none'" in page


def test_whatever_a_run_is_called_stays_text(report_of: Build) -> None:
    page = render_page(evil(report_of("compare_one_seed")))
    assert "<script>alert" not in page
    assert page.count("&lt;/script&gt;&lt;script&gt;alert(1)") >= 6
    assert len(re.findall(r"<script\b", page)) == len(re.findall(r"</script>", page)) == 4


def test_json_in_a_script_cannot_end_it_and_reads_back() -> None:
    value = {"a": "</script><!-- & \u2028", "b": [1.5, None]}
    text = script_json(value)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value


@pytest.mark.parametrize("mark", ["=", "+", "-", "@", "\t", "\r", "＝"])
def test_no_cell_of_a_csv_is_a_formula(mark: str) -> None:
    formula = f"{mark}HYPERLINK(1)"
    header, row = csv.reader(io.StringIO(Table("t", "t", [{formula: formula, "n": 1}]).csv(), newline=""))
    assert header == ["'" + visible(formula), "n"]
    assert row == ["'" + visible(formula), "1"]


def test_numbers_of_a_csv_stay_numbers() -> None:
    values = ["-0.5", -0.5, "+1e-3", "-inf", -1e300, "a=b", "− 3"]
    _, *rows = csv.reader(io.StringIO(Table("t", "t", [{"x": value} for value in values]).csv()))
    assert rows == [[str(value)] for value in values]


def test_a_report_in_a_terminal_has_no_escape_codes_of_its_records() -> None:
    report = Report(
        title="\x1b[2Jtitle",
        subject="",
        words=(),
        notes=("\x9bm note",),
        warnings=("\u202ewarning",),
        cards=(),
        figures=(),
        provenance=Provenance((), ()),
        runs=Table("t", "t", []),
        finding={},
    )
    console = Console(file=io.StringIO())
    for part in render_terminal(report):
        console.print(part)
    assert console.file.getvalue().split("\n")[:3] == ["\\u001b[2Jtitle", "\\u009bm note", "\\u202ewarning"]  # type: ignore[attr-defined]


def test_the_csv_link_holds_every_row() -> None:
    link = Table("t", "t", [{"run": "é", "x": 0.1}, {"run": 'a"b', "y": None}]).csv_link()
    text = base64.b64decode(link.partition("base64,")[2]).decode()
    assert text == '\ufeffrun,x,y\r\né,0.1,\r\n"a""b",,\r\n'


def test_long_tables_are_cut_for_reading_and_not_for_download(report_of: Build) -> None:
    rows = [{"n": i} for i in range(100)]
    figure = replace(report_of("compare_one_seed").figures[0], tables=(Table("long", "many", rows),))
    page = render_page(replace(report_of("compare_one_seed"), figures=(figure,)))
    assert " 60 of 100 rows; " in page
    assert " many as CSV (100 rows)" in page


def test_the_markdown_summary_has_the_answer_and_no_markup_of_others(report_of: Build) -> None:
    text = render_markdown(report_of("ladder"))
    assert f"**{escape(report_of('ladder').answers[0].headline)}**" in text
    (card,) = report_of("ladder").cards
    assert "| batch size | D (gain rule) | examples measured |" in text
    for name, said in card.answer.in_card:
        assert f"| {escape(name)} | {escape(said)} |" in text
    assert "<script>" not in render_markdown(evil(report_of("ladder")))


def test_the_terminal_says_the_same_with_a_small_curve(report_of: Build) -> None:
    console = Console(width=100, record=True, file=None, force_terminal=False, quiet=False)
    with console.capture() as capture:
        for part in render_terminal(evil(report_of("ladder"))):
            console.print(part)
        for part in render_terminal(report_of("ladder")):
            console.print(part)
    said = capture.get()
    assert "[bold]" in said
    (answer,) = report_of("ladder").answers
    for sentence in (answer.headline, dict(answer.numbers)["statistics"], answer.spark_of):
        assert sentence in " ".join(said.split())
    assert "▁" in said
    assert "█" in said


def test_the_terms_of_a_ladder_are_explained_and_a_mark_has_its_words(report_of: Build) -> None:
    page = render_page(report_of("ladder"))
    for term in ("D", "C²", "B*", "G, N"):
        assert f"<dt>{term}</dt>" in page
    badge = report_of("ladder").answers[0].badge
    assert f'<span class="mark" aria-hidden="true">✓</span> {badge}</span>' in page
    said = replace(report_of("ladder").answers[0], tone="note", badge="", headline="So!")
    assert '<p class="headline">So!</p>' in render_page(replace(report_of("ladder"), cards=(Card(said),)))


def test_only_warnings_stand_out(report_of: Build) -> None:
    report = replace(report_of("compare_one_seed"), notes=("a claim",), warnings=("missing",))
    page = render_page(report)
    assert '<p class="note">a claim</p>' in page
    assert '<p class="note warning">missing</p>' in page
    text = render_markdown(report)
    assert "> a claim\n" in text
    assert "> **missing**\n" in text
    styles = {str(part): str(getattr(part, "style", "")) for part in render_terminal(report)}
    assert styles["a claim"] == ""
    assert styles["missing"] == "yellow"


def test_numbers_beyond_the_first_are_folded_in_the_page_and_said_in_the_terminal(report_of: Build) -> None:
    numbers = tuple((f"name {i}", f"value {i}") for i in range(4))
    answer = replace(report_of("compare_one_seed").answers[0], numbers=numbers, first=3)
    page = render_page(replace(report_of("compare_one_seed"), cards=(Card(answer),)))
    fold = "<summary>More numbers (1)</summary>"
    assert page.index("name 2") < page.index(fold) < page.index("name 3")
    assert fold not in render_page(replace(report_of("compare_one_seed"), cards=(Card(replace(answer, first=None)),)))
