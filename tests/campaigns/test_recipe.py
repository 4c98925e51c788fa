"""The advice of the price list followed anew, from the baseline to the trained network."""

from pathlib import Path

import pytest

import svag.lab

SPECS = Path(__file__).parents[2] / "results" / "recipes" / "specs"


@pytest.mark.slow
def test_the_recipe_ends_where_the_small_batch_ended(tmp_path: Path) -> None:
    """A perceptron with a cosine at 8 and 32 times the batch; the committed runs ended at 0.98 and 0.96."""
    execution = svag.lab.Execution(workers=1, device="cpu", progress=False)
    found = svag.lab.ladder(
        SPECS / "mlp_cosine.yaml", [16, 128, 512], seeds=2, rule="gain", out=tmp_path, execution=execution
    )
    gain = found.panels[0].gain
    assert gain is not None
    for rung in gain.rungs:
        assert rung.loss.value <= 1.07
        assert abs(rung.paid / rung.price - 1) < 0.03
