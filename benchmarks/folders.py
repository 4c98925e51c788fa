"""How `svag list`, `svag predict` and `svag report` grow with the number of runs in a folder.

Budgets on 1,000 runs: list 5 s and 500 MB, predict 10 s, report 30 s, all of them by the clock of a machine that does
nothing else. Copies of the shortest runs in results/atlas and results/figures fill the folders: ten seeds of every
setting, and settings told apart by the width of the network. Each command is started as a user starts it, so importing
the package is part of its time. A command that is linear in the number of runs takes at most ten times as long for ten
times as many; the ratio is that of the processor's seconds, which other work hardly changes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from svag.lab.records.identity import NUMERICS_VERSION, identity
from svag.lab.records.record import RunRecord, load_headers, metrics_of, read_record
from svag.lab.records.storage import METRICS, OUTCOME, digest

RESULTS = Path(__file__).parent.parent / "results"
SOURCES = (RESULTS / "atlas", RESULTS / "figures")
FEW, MANY, SEEDS = 100, 1000, 10
BUDGETS: dict[str, tuple[float, float | None]] = {"list": (5.0, 500.0), "predict": (10.0, None), "report": (30.0, None)}


@dataclass(frozen=True)
class Spent:
    """What one command took: seconds by the clock and of the processor, and megabytes of memory at its peak."""

    seconds: float
    processor: float
    megabytes: float

    def __str__(self) -> str:
        return f"{self.seconds:5.1f} s ({self.processor:4.1f} s of the processor), {self.megabytes:4.0f} MB"


def shortest_runs() -> list[RunRecord]:
    """The finished run with the shortest metrics of every experiment among the sources."""
    folders: dict[Path, list[Path]] = {}
    for header in (header for place in SOURCES for header in load_headers(place)):
        if header.numerics == NUMERICS_VERSION and header.spec.data.path is None:
            folders.setdefault(header.path.parent, []).append(header.path)
    shortest = (min(paths, key=lambda path: len(metrics_of(path))) for paths in folders.values())
    return [record for path in shortest if (record := read_record(path)).state == "finished"]


def write_copies(sources: list[RunRecord], runs: int, folder: Path) -> None:
    """Fill a folder with copies that are runs of their own: seed, setting and identity differ, and digests hold."""
    for number in range(runs):
        setting, seed = divmod(number, SEEDS)
        source = sources[setting % len(sources)]
        assert source.spec is not None
        widened = source.spec.model.width * (1 + setting // len(sources))
        spec = source.spec.edited({"seed": seed, "model.width": widened})
        name = identity(spec)
        place = folder / name[:12]
        place.mkdir(parents=True)
        header = {"identity": name, "numerics": NUMERICS_VERSION, "steps": source.steps, "spec": spec.to_dict()}
        content, metrics = json.dumps(header, indent=2).encode(), metrics_of(source.path)
        (place / "spec.json").write_bytes(content)
        (place / METRICS).write_bytes(metrics)
        outcome = {**source.outcome, "spec_sha256": digest(content), "metrics_sha256": digest(metrics)}
        (place / OUTCOME).write_text(json.dumps(outcome))


def spent_on(command: str, folder: Path) -> Spent:
    """Run one command on a folder; it must succeed."""
    start, nowhere = time.perf_counter(), subprocess.DEVNULL
    words = [sys.executable, "-m", "svag", command, str(folder)]
    program = subprocess.Popen(words, stdout=nowhere, stderr=nowhere)
    _, status, used = os.wait4(program.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise RuntimeError(f"svag {command} failed: run it by hand")
    # bytes on a Mac, kilobytes elsewhere
    megabytes = used.ru_maxrss / 1024 ** (2 if sys.platform == "darwin" else 1)
    return Spent(seconds, used.ru_utime + used.ru_stime, megabytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs=2, default=(FEW, MANY), metavar=("FEW", "MANY"))
    few, many = parser.parse_args().runs
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / str(runs) for runs in (few, many)]
        sources = shortest_runs()
        for runs, folder in zip((few, many), folders, strict=True):
            write_copies(sources, runs, folder)
        for command, (seconds, megabytes) in BUDGETS.items():
            small, large = (spent_on(command, folder) for folder in folders)
            ratio = large.processor / small.processor
            met = large.seconds <= seconds and (megabytes is None or large.megabytes <= megabytes)
            met = met and ratio <= many / few
            budget = f"{seconds:g} s" if megabytes is None else f"{seconds:g} s and {megabytes:g} MB"
            print(f"svag {command}: {few:,} runs {small}; {many:,} runs {large}; {ratio:.1f} times as much")
            print(f"  budget for {MANY:,} runs {budget}: {'met' if met else 'MISSED'}", flush=True)


if __name__ == "__main__":
    main()
