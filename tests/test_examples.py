"""Every example runs as a user would run it, prints something, and stays short."""

import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_example(example: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    runpy.run_path(str(example), run_name="__main__")
    torch.set_num_threads(threads)
    assert capsys.readouterr().out
    assert len(example.read_text().splitlines()) < 60
