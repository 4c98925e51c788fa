"""Copies finished experiments into a folder that is committed, with what findings read and nothing else.

    python tools/keep_ladder.py FOLDER … --into results/atlas
    python tools/keep_ladder.py FOLDER … --into results/figures

Kept: experiment.json and the spec, the outcome and the compressed metrics of every run. Left behind: checkpoints,
timings and reports. A run whose metrics are not those of its digest is refused, and so is an experiment with a run
missing. A figure gets the folder that its label names, without the runs that another folder of the results has:
`svag reproduce LABEL` finds them there.
"""

import argparse
import lzma
import shutil
import sys
from pathlib import Path

from svag.lab.experiments import EXPERIMENT, load_experiment
from svag.lab.records.record import RUNS, load_records
from svag.lab.records.storage import COMPRESSED_METRICS, METRICS, OUTCOME, SPEC
from svag.paper.figures import folder_name


def keep(folder: Path, into: Path) -> Path:
    """Copy one folder; return where it is now."""
    records, experiment = load_records(folder), load_experiment(folder)
    missing = 0 if experiment is None else len(experiment.find(records).missing)
    bad = [record for record in records if not record.ended]
    if not records or bad or missing:
        raise SystemExit(f"{folder}: {len(bad)} of {len(records)} runs have not ended, {missing} are missing")
    target = into / folder.resolve().name
    if experiment is not None and experiment.label is not None and into.name == "figures":
        target = into / folder_name(experiment.label)
    elsewhere = {path.name for path in into.parent.glob(f"**/{RUNS}/*") if target not in path.parents}
    own = [record for record in records if record.path.name not in elsewhere]
    for stale in {path.name for path in (target / RUNS).glob("*")} - {record.path.name for record in own}:
        shutil.rmtree(target / RUNS / stale)  # asked for before the experiment was changed
    for record in own:
        place = target / RUNS / record.path.name
        place.mkdir(parents=True, exist_ok=True)
        for name in (SPEC, OUTCOME):
            shutil.copyfile(record.path / name, place / name)
        if (record.path / METRICS).exists():
            packed = lzma.compress((record.path / METRICS).read_bytes(), preset=9 | lzma.PRESET_EXTREME)
            (place / COMPRESSED_METRICS).write_bytes(packed)
        else:
            shutil.copyfile(record.path / COMPRESSED_METRICS, place / COMPRESSED_METRICS)
    if experiment is not None:
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / EXPERIMENT, target / EXPERIMENT)
    if [one.rows for one in load_records(target)] != [one.rows for one in own]:
        raise SystemExit(f"{target}: what was written is not what was read")
    return target


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--into", type=Path, default=Path("results/atlas"))
    given = parser.parse_args()
    for folder in given.folders:
        kept = keep(folder, given.into)
        size = sum(path.stat().st_size for path in kept.rglob("*") if path.is_file())
        sys.stdout.write(f"{kept}: {size / 1e6:.2f} MB\n")
