"""Writes the table of docs/train.md from the records in results/recipes: the printed recipe, followed literally.

    python tools/make_recipes.py

The table stands between `<!-- recipes -->` and `<!-- end of recipes -->`. A test compares its numbers with the records.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from svag.lab.experiments import load_experiment
from svag.lab.experiments.gain_finding import GainFinding
from svag.lab.experiments.ladder import Ladder
from svag.lab.records.record import load_records

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "recipes"
PAGE = ROOT / "docs" / "train.md"
TABLE = re.compile(r"(?<=<!-- recipes -->\n\n).*?(?=\n\n<!-- end of recipes -->)", re.DOTALL)
NETWORKS = {"mlp": "perceptron", "conv": "residual network"}
OPTIMIZERS = {"constant": "SGD, constant", "cosine": "SGD, cosine", "momentum": "momentum 0.9, cosine"}
OPTIMIZERS |= {"adamw": "AdamW, cosine"}


def recipes() -> dict[str, GainFinding]:
    """What each committed ladder of recipes came to."""
    found = {}
    for folder in sorted(path for path in RECORDS.iterdir() if (path / "experiment.json").exists()):
        experiment = load_experiment(folder)
        assert isinstance(experiment, Ladder)
        gain = experiment.find(load_records(folder)).panels[0].gain
        assert gain is not None, f"{folder} is no ladder by the gain rule"
        found[folder.name] = gain
    return found


def table(found: dict[str, GainFinding]) -> Iterator[str]:
    """One row a ladder: predicted price and final training loss at every larger batch size."""
    sizes = list(dict.fromkeys(rung.batch_size for one in found.values() for rung in one.rungs))
    base = next(iter(found.values())).baseline
    heads = [head for size in sizes for head in (f"examples at {size}", f"loss at {size} over loss at {base}")]
    yield f"| network | optimizer | {' | '.join(heads)} |"
    yield "|---|---|" + "---|" * len(heads)
    for name in (f"{network}_{optimizer}" for network in NETWORKS for optimizer in OPTIMIZERS):
        network, _, optimizer = name.partition("_")
        cells = [cell for rung in found[name].rungs for cell in (f"{rung.price:.2f}×", str(rung.loss))]
        yield f"| {NETWORKS[network]} | {OPTIMIZERS[optimizer]} | {' | '.join(cells)} |"


def main() -> None:
    """Rewrite the page."""
    text = "\n".join(table(recipes()))
    PAGE.write_text(TABLE.sub(lambda _: text, PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
