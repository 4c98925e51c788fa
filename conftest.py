"""One thread of torch for every test, and the integrations left out unless they are asked for.

Workers that each take all cores wait for each other most of the time. The integrations import Lightning and
transformers, which `make test` does not have: without `-m integrations` neither their modules nor their tests are
collected.

What campaigns say, and the seeds they were drawn with, travels in the reports of their tests, so that it is printed at
the end wherever they ran: what a worker of pytest-xdist prints is lost.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell starts `command &` with SIGINT ignored, and nohup ignores SIGHUP: the commands under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).parent
INTEGRATIONS = [ROOT / "src" / "svag" / "integrations", ROOT / "tests" / "integrations"]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folders of the integrations, unless the marker is asked for."""
    return True if collection_path in INTEGRATIONS and config.option.markexpr != "integrations" else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Everything in these folders carries the marker, doctests too."""
    if any(folder in item.path.parents for folder in INTEGRATIONS):
        item.add_marker("integrations")
        # what the packages warn about in their own code is their affair
        item.add_marker(pytest.mark.filterwarnings("ignore::Warning:(lightning|torchmetrics|transformers|accelerate)"))


SAID = "campaign"


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a sentence at the end of the session."""

    def say(sentence: str) -> None:
        request.node.user_properties.append((SAID, sentence))

    return say


@pytest.fixture
def seeded(request: pytest.FixtureRequest, say: Callable[[str], None]) -> Callable[[int], int]:
    """The seed of a campaign: its own, or `SVAG_SEED`. A failure shows it, and how to have it again."""

    def seeded(own: int) -> int:
        seed = int(os.environ.get("SVAG_SEED", own))
        request.node.add_report_section("call", "seed", f"SVAG_SEED={seed} pytest -m slow '{request.node.nodeid}'")
        say(f"{request.node.nodeid}: seed {seed}")
        return seed

    return seeded


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what was said."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    said = [
        sentence
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, sentence in report.user_properties
        if name == SAID
    ]
    if said:
        terminalreporter.section("campaigns")
        for sentence in said:
            terminalreporter.write_line(sentence)
