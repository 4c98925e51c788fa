"""A run that did not live to say so itself: written down as failed by whoever watched it."""

from pathlib import Path

import torch

from svag.lab.folder import make_folder, run_header, write_header, write_outcome
from svag.records.examples import examples_per_step
from svag.records.files import parse_lines
from svag.records.record import SPEC, TIMINGS, RunRecord, read_record
from svag.records.run_lock import RunLock
from svag.records.spec import RunSpec


def record_failure(
    spec: RunSpec, folder: Path, identity: str, examples: int, reason: str, device: torch.device
) -> RunRecord:
    """Write that a run failed; what it left stays, and running it again continues from there.

    A run that has ended by now, here or on another machine, keeps its own outcome.

    Args:
        spec: what was to be run.
        folder: the run directory.
        identity: of the spec.
        examples: number of training examples.
        reason: why it failed, in one sentence.
        device: what it was to run on.
    """
    make_folder(folder)
    with RunLock(folder):
        now = read_record(folder)
        if now.ended:
            return now
        if not (folder / SPEC).exists():
            write_header(folder, run_header(spec, identity, examples))
        seconds = _seconds(folder)
        write_outcome(
            folder,
            "failed",
            reason,
            step=now.step,
            seconds=seconds,
            examples=now.step * examples_per_step(spec, examples),
            processes=[1],
            device=device,
        )
    return read_record(folder)


def _seconds(folder: Path) -> float:
    """Seconds up to the last evaluation."""
    try:
        rows = parse_lines((folder / TIMINGS).read_bytes())
    except OSError:
        return 0.0
    return float(rows[-1].get("seconds", 0.0)) if rows else 0.0
