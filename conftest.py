"""One thread of torch for every test, and the integrations left out unless they are asked for.

Workers that each take all cores wait for each other most of the time. The integrations import Lightning and
transformers, which `make test` does not have: without `-m integrations` neither their modules nor their tests are
collected.
"""

import os
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

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
