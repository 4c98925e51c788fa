"""Writes the specs of the raised arm of a ladder of Adam or AdamW: every larger rung and seed at lr·√(κD).

    python tools/raised_rate.py LADDER SPECS [--largest B]

D is what the smallest baseline of the ladder that predicts says. Run each spec into a folder of its own beside the
ladder, and `svag report` on the folder that holds both compares them:

    for spec in SPECS/*.yaml; do svag run $spec --out ATLAS/NAME_raised/$(basename $spec .yaml); done
"""

import argparse
import sys
from pathlib import Path

from svag.lab.experiments import load_experiment
from svag.lab.experiments.ladder import Ladder, rung
from svag.lab.experiments.ladder_finding import find_ladder
from svag.lab.records.record import load_records
from svag.paper.atlas.raised import raised


def write_specs(ladder: Path, specs: Path, largest: int | None = None) -> list[Path]:
    """Write one file for every batch size above the baseline and every seed; return their paths."""
    experiment = load_experiment(ladder)
    if not isinstance(experiment, Ladder):
        raise SystemExit(f"{ladder} holds no ladder")
    (panel,), (found,) = experiment.panels, find_ladder(experiment, load_records(ladder)).panels
    baseline = next((one for one in found.predictions if one.usable), None)
    if baseline is None:
        raise SystemExit(f"{ladder}: no baseline predicts a distortion")
    specs.mkdir(parents=True, exist_ok=True)
    written = []
    for price in baseline.prices:
        if largest is None or price.batch_size <= largest:
            spec = raised(rung(panel.base, int(price.batch_size)), price.distortion)
            for seed in experiment.seeds_of(panel):
                target = specs / f"b{price.batch_size:04d}-seed{seed}.yaml"
                target.write_text(spec.edited({"seed": seed}).to_yaml())
                written.append(target)
    return written


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ladder", type=Path)
    parser.add_argument("specs", type=Path)
    parser.add_argument("--largest", type=int)
    given = parser.parse_args()
    for path in write_specs(given.ladder, given.specs, given.largest):
        sys.stdout.write(f"{path}\n")
