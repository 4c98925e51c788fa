"""Every example runs as its first lines say, prints its results, and stays short."""

import subprocess
import sys
from pathlib import Path

import pytest

import svag
import svag.lab

EXAMPLES = Path(__file__).parents[2] / "examples"
TWO_RANKS = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# how it is started, in how many steps where it takes them, and what it must say
RUNS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "price_list.py": ([], ["250"], ["batch size  learning rate", "× the examples", "fastest"]),
    "gain_rule.py": ([], ["300"], ["batch 32: training loss", "1.00×", "batch 256: training loss"]),
    "gain_planned.py": ([], ["250"], ["batch 16: training loss", "planned from 25% of the baseline: training loss"]),
    "gain_data_parallel.py": (TWO_RANKS, ["250"], ["training loss", "× the examples"]),
    "plain_loop.py": ([], ["250"], ["batch size  learning rate", "The linear rule from batch size 32"]),
    "accumulation.py": ([], ["250"], ["batch size  learning rate", "× the examples"]),
    "data_parallel.py": (TWO_RANKS, ["250"], ["batch size  learning rate", "× the examples"]),
    "svag_loop.py": ([], [], ["ell = 4"]),
    "ngd_against_sgd.py": ([], [], ["NGD"]),
    "svag_predicts_critical_batch.py": (
        [],
        [],
        ["batch size  learning rate", "ruled out"],
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_example(name: str) -> None:
    how, steps, words = RUNS[name]
    command = [sys.executable, *how, str(EXAMPLES / name), *steps]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    for word in words:
        assert word in done.stdout


@pytest.mark.slow
def test_the_ladder_of_adamw_shows_predicted_and_observed_distortion_on_every_pair(tmp_path: Path) -> None:
    """Cut short: a smaller network on 600 steps, three batch sizes, one seed."""
    short = {"model.depth": 1, "model.width": 16, "data.context": 64, "lr": 0.003, "budget": 600, "evaluate.every": 1.0}
    base = svag.lab.RunSpec.load(EXAMPLES / "transformer_adamw.yaml", short)
    here = svag.lab.Execution(workers=1, device="cpu", progress=False)
    (panel,) = svag.lab.ladder(base, [8, 16, 32], seeds=1, rule="square_root", out=tmp_path, execution=here).panels
    assert panel.metric == "test_bits_per_character"
    assert panel.drift is not None
    assert panel.drift.compared == "V"
    assert [(pair.baseline, pair.batch_size) for pair in panel.drift.pairs] == [(8, 16), (8, 32), (16, 32)]
    for pair in panel.drift.pairs:
        predicted, observed = pair.distortion, pair.second_moment_over_noise
        assert observed is not None
        assert min(predicted.value, observed.value) > 1
        assert predicted.low <= observed.high
        assert observed.low <= predicted.high


def test_examples_are_short_and_all_are_run() -> None:
    files = {path.name: path.read_text().count("\n") for path in EXAMPLES.glob("*.py")}
    assert files.keys() == RUNS.keys()
    assert max(files.values()) < 60
