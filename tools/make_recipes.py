"""Writes the table of docs/train.md from the records in results/recipes: the printed recipe, followed literally.

    python tools/make_recipes.py

The table stands between `<!-- recipes -->` and `<!-- end of recipes -->`. A test compares its numbers with the records.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from svag.lab.experiments import EXPERIMENT, load_experiment
from svag.lab.experiments.gain_finding import GainFinding
from svag.lab.experiments.ladder import Ladder
from svag.lab.records.record import load_records

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "recipes"
MEASURED = RECORDS / "measured"
PAGE = ROOT / "docs" / "train.md"
TABLE = re.compile(r"(?<=<!-- recipes -->\n\n).*?(?=\n\n<!-- end of recipes -->)", re.DOTALL)
NETWORKS = {"mlp": "perceptron", "conv": "residual network"}
OPTIMIZERS = {"constant": "SGD, constant", "cosine": "SGD, cosine", "momentum": "momentum 0.9, cosine"}
OPTIMIZERS |= {"adamw": "AdamW, cosine"}


def recipes(measured: bool = False) -> dict[str, GainFinding]:
    """What each committed ladder came to, with its gains planned beforehand or measured while training."""
    found = {}
    for folder in sorted(
        path for path in (MEASURED if measured else RECORDS).iterdir() if (path / EXPERIMENT).exists()
    ):
        experiment = load_experiment(folder)
        assert isinstance(experiment, Ladder)
        # the baselines of the measured runs are those of the planned ones
        records = [*load_records(folder), *(load_records(RECORDS / folder.name) if measured else ())]
        gain = experiment.find(records).panels[0].gain
        assert gain is not None, f"{folder} is no ladder by the gain rule"
        assert gain.measured == measured
        found[folder.name] = gain
    return found


def table(planned: dict[str, GainFinding], measured: dict[str, GainFinding]) -> Iterator[str]:
    """One row a setting and larger batch size: examples, and final training loss over the baseline's."""
    base = next(iter(planned.values())).baseline
    over = f"loss over that of {base}"
    yield f"| network | optimizer | batch | planned: examples | {over} | on line: examples | {over} |"
    yield "|---|---|---|---|---|---|---|"
    for name in (f"{network}_{optimizer}" for network in NETWORKS for optimizer in OPTIMIZERS):
        network, _, optimizer = name.partition("_")
        for one, other in zip(planned[name].rungs, measured[name].rungs, strict=True):
            cells = [str(one.batch_size), f"{one.price:.2f}×", str(one.loss), f"{other.paid:.2f}×", str(other.loss)]
            yield f"| {NETWORKS[network]} | {OPTIMIZERS[optimizer]} | {' | '.join(cells)} |"


def main() -> None:
    """Rewrite the page."""
    text = "\n".join(table(recipes(), recipes(measured=True)))
    PAGE.write_text(TABLE.sub(lambda _: text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
