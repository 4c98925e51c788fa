"""The page in a real browser: charts drawn, nothing asked of the network, the answer in sight, things that work."""

import csv
import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.lab.report.folders import CASES, around, compare_folder, ladder_folder

from svag.lab.report.write import build_report, write_files

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (Debian: apt-get install chromium)"),
    pytest.mark.xdist_group("browser"),
]
EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


class Watched:
    """A page and everything that went wrong on it."""

    def __init__(self, browser: Browser, folder: Path, out: Path, scheme: str = "light", width: int = 1280) -> None:
        self.written = write_files(build_report(folder), out, ())
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if scheme == "dark" else "light"
        )
        context.set_default_timeout(300_000)  # a busy machine is slow, not wrong
        self.page: Page = context.new_page()
        self.wrong: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(self.written.page.as_uri())
        self.page.wait_for_selector("body[data-ready=yes]")


@pytest.mark.parametrize("name", CASES)
def test_every_chart_is_drawn_without_an_error_or_a_request(browser: Browser, tmp_path: Path, name: str) -> None:
    scheme = "dark" if "diverged" in name or name == "ngd" else "light"
    watched = Watched(browser, CASES[name](tmp_path / "in"), tmp_path / "out", scheme)
    page = watched.page
    charts = page.locator(".chart")
    assert charts.count() > 0
    for i in range(charts.count()):
        box = charts.nth(i).locator("svg.marks").bounding_box()
        assert box is not None
        assert box["width"] > 600
        assert box["height"] > 90
        assert charts.nth(i).locator("svg.marks path").count() > 3
    assert watched.wrong == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert len(watched.requests) <= 2  # the page itself, and its empty icon
    answers = page.locator(".answer")
    for i in range(answers.count()):
        box = answers.nth(i).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 800, "the answer is visible without scrolling"


def test_four_panels_are_in_sight_too_and_nothing_overflows_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    finals = {1: around(0.8, 0.003, 3), 4: around(0.83, 0.003, 3, 1), 16: around(0.84, 0.003, 3, 2)}
    folder = compare_folder(tmp_path / "in", finals, panels=("a", "b", "c", "d"), evaluations=4)
    wide = Watched(browser, folder, tmp_path / "out").page
    last = wide.locator(".answer .headline").last.bounding_box()
    assert last is not None
    assert last["y"] + last["height"] <= 800
    phone = Watched(browser, folder, tmp_path / "out", width=390)
    assert phone.page.evaluate("document.documentElement.scrollWidth") <= 390
    accuracy = phone.page.locator("#runs th", has_text="test accuracy").bounding_box()
    assert accuracy is not None
    assert accuracy["x"] + accuracy["width"] <= 390, "seen without scrolling sideways"
    assert phone.wrong == []


def test_tooltips_legend_boxes_and_downloads_work(browser: Browser, tmp_path: Path) -> None:
    watched = Watched(browser, CASES["compare_equal"](tmp_path / "in"), tmp_path / "out")
    page = watched.page
    chart = page.locator("#chart-panel1-curves")
    chart.scroll_into_view_if_needed()
    chart.locator("path[aria-label*='SVAG ell=4'][role='graphics-symbol']").last.hover(force=True)
    tooltip = page.locator("#vg-tooltip-element")
    tooltip.wait_for(state="visible")
    assert "SVAG ell=4" in tooltip.inner_text() or "SVAG ell=16" in tooltip.inner_text()
    assert "effective step" in tooltip.inner_text()

    sgd = "#chart-panel1-curves path[role='graphics-symbol'][aria-label*='SGD']"
    before = page.locator(sgd).count()
    assert before > 0
    page.locator("#series-panel1-curves input").first.focus()
    page.keyboard.press("Space")  # by the keyboard alone
    page.wait_for_function("marks => document.querySelectorAll(marks).length === 0", arg=sgd)
    chart.locator(".role-legend-label text", has_text="SGD").click()
    page.wait_for_function("document.querySelector('#series-panel1-curves input').checked")
    page.wait_for_function("([marks, n]) => document.querySelectorAll(marks).length === n", arg=[sgd, before])

    with page.expect_download() as waiting:
        page.locator("#runs a.download").click()
    text = Path(waiting.value.path()).read_text(encoding="utf-8-sig")
    assert waiting.value.suggested_filename == "runs.csv"
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 15
    assert {row["state"] for row in rows} == {"finished"}
    assert watched.wrong == []


def test_numbers_unfold_and_a_ladder_zooms(browser: Browser, tmp_path: Path) -> None:
    watched = Watched(browser, CASES["ladder_diverged"](tmp_path / "in"), tmp_path / "out")
    page = watched.page
    folded = page.locator(".answer details dt", has_text="slope of G/N")
    assert not folded.is_visible()
    page.locator(".answer summary").click()
    assert folded.is_visible()

    chart = page.locator("#chart-panel1-error")
    chart.scroll_into_view_if_needed()
    ticks = "[...document.querySelectorAll('#chart-panel1-error .role-axis-label text')].map(t => t.textContent).join()"
    before = page.evaluate(ticks)
    box = chart.locator("svg.marks").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, 1)  # scrolls the page, and nothing else
    assert page.evaluate(ticks) == before
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    page.wait_for_function(f"{ticks} !== '{before}'")
    assert watched.wrong == []


def test_the_page_follows_the_night(browser: Browser, tmp_path: Path) -> None:
    watched = Watched(browser, CASES["compare_one_seed"](tmp_path / "in"), tmp_path / "out")
    page = watched.page
    ink = "getComputedStyle(document.querySelector('#chart-gap .role-axis-label text')).fill"
    by_day = page.evaluate(ink)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"{ink} !== '{by_day}'")
    assert watched.wrong == []


def test_names_stay_text_in_the_page_the_charts_and_the_tooltips(browser: Browser, tmp_path: Path) -> None:
    errors = {32: [0.15, 0.151], 64: [0.15, 0.152], 256: [0.2, 0.21]}
    folder = ladder_folder(tmp_path / "in", errors, title=EVIL, name=EVIL)
    watched = Watched(browser, folder, tmp_path / "out")
    assert watched.page.locator(".subject").inner_text() == EVIL
    assert watched.page.evaluate("window.hacked") is None
    compared = compare_folder(tmp_path / "in2", {1: [0.8, 0.81], 4: [0.82, 0.83]}, panels=(EVIL,), evaluations=2)
    page = Watched(browser, compared, tmp_path / "out2").page
    page.locator("#chart-gap path[role='graphics-symbol']").last.hover(force=True)
    page.locator("#vg-tooltip-element").wait_for(state="visible")
    assert page.evaluate("window.hacked") is None
    assert watched.wrong == []
