"""Writes src/svag/prices/ranges.json: how far measured prices were from announced ones, by ladder.

    python tools/make_ranges.py

The pairs are those of the planned arm of results/gain, which is what the price list prints; the sampling error of their
prices comes from the readings of their baselines.
"""

import json
import math
from pathlib import Path
from statistics import median

from svag.lab import load_records
from svag.lab.experiments import load_experiment
from svag.lab.experiments.gain_finding import baseline_history
from svag.lab.experiments.ladder import Ladder
from svag.lab.experiments.runs import gather
from svag.paper.atlas.gain_atlas import calibration, find_gain_atlas

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "gain"
TABLE = ROOT / "src" / "svag" / "prices" / "ranges.json"


def log_errors(folder: Path) -> list[float]:
    """Standard errors of the logarithm of the announced prices of one ladder."""
    ladder = load_experiment(folder)
    assert isinstance(ladder, Ladder)
    history = baseline_history(ladder.panels[0], gather(ladder, load_records(folder), "train_loss")[0][0])
    assert history is not None
    return [history.log_error(size) for size in ladder.panels[0].sizes[1:]]


def table() -> str:
    """The text of the table."""
    ladders = calibration(find_gain_atlas(RECORDS))
    errors = [error for name in ladders for error in log_errors(RECORDS / "planned" / name)]
    lines = ",\n".join(
        f"    {json.dumps(name)}: {json.dumps([round(one, 3) if math.isfinite(one) else None for one in ratios])}"
        for name, ratios in ladders.items()
    )
    return f'{{\n  "rule": "planned",\n  "log_error": {median(errors):.3f},\n  "ladders": {{\n{lines}\n  }}\n}}\n'


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
