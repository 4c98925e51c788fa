"""The examples of the steppers run as a user would run them, print their results, and stay short."""

import runpy
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("svag_loop", "ell = 4"),
        ("ngd_against_sgd", "NGD"),
        ("svag_predicts_critical_batch", "Linear scaling from 8 cannot hold beyond B*"),
    ],
)
def test_example(name: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    torch.set_num_threads(threads)
    assert words in capsys.readouterr().out
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60
