"""The run directory while a run works in it."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from svag.lab.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from svag.lab.machine import hardware, versions
from svag.lab.parallel.refusals import refuse_other_number
from svag.lab.state import Run
from svag.noise.ghost import PartsComparison
from svag.records.files import Journal, disk_error, parse_lines, replace_file
from svag.records.identity import NUMERICS_VERSION
from svag.records.reading import Reading
from svag.records.record import CHECKPOINT, METRICS, OUTCOME, SPEC, TIMINGS
from svag.records.rows import KIND, reading_of, row_of
from svag.records.spec import RunSpec


def make_folder(path: Path) -> None:
    """Make the folder of a run, with those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(path, error) from error


def run_header(spec: RunSpec, identity: str, examples: int) -> dict[str, Any]:
    """What `spec.json` holds: the spec, its identity, and its budget in effective steps on so many examples."""
    return {
        "identity": identity,
        "numerics": NUMERICS_VERSION,
        "steps": spec.steps(examples),
        "examples": examples,
        "spec": spec.to_dict(),
    }


def write_header(path: Path, header: dict[str, Any]) -> None:
    """Write `spec.json`."""
    replace_file(path / SPEC, json.dumps(header, indent=2, ensure_ascii=False).encode() + b"\n")


def write_outcome(
    path: Path,
    state: str,
    reason: str,
    *,
    step: int,
    seconds: float,
    examples: int,
    processes: Sequence[int],
    device: torch.device,
) -> None:
    """Write `outcome.json`: how a run ended, and on what; `processes` is how many took part, the last number last."""
    outcome: dict[str, Any] = {
        "state": state,
        "reason": reason,
        "step": step,
        "seconds": round(seconds, 3),
        "examples": examples,
        "processes": processes[-1],
        "versions": versions(),
        "hardware": hardware(device),
    }
    if before := list(processes[:-1]):
        outcome["processes_before"] = before
    replace_file(path / OUTCOME, json.dumps(outcome, indent=2, ensure_ascii=False).encode() + b"\n")


class RunFolder:
    """Writes the five files of a run directory; whoever uses it holds the folder's lock."""

    def __init__(self, path: Path, identity: str, header: dict[str, Any]) -> None:
        self._path, self._identity = path, identity
        try:
            (path / OUTCOME).unlink(missing_ok=True)  # that of a run that failed and is tried again
        except OSError as error:
            raise disk_error(path / OUTCOME, error) from error
        write_header(path, header)
        self._metrics = Journal(path / METRICS)
        self._timings = Journal(path / TIMINGS)
        self._began = time.monotonic()
        self._before = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._metrics.close()
        finally:
            self._timings.close()

    @property
    def seconds(self) -> float:
        """Seconds of this run so far, over all sessions; what a killed one did after its checkpoint is not counted."""
        return self._before + time.monotonic() - self._began

    def resume(self, run: Run) -> None:
        """Go to the last checkpoint, or to the start; what was written later is cut off and will be written again."""
        device = run.training.data.device
        state = load_checkpoint(self._path / CHECKPOINT, self._identity, device)
        self._metrics.cut(0 if state is None else state["metrics_length"])
        if state is None:
            return
        processes = state.get("processes", [1])[-1]
        refuse_other_number(self._path / CHECKPOINT, processes, run.training.ranks, run.training.model)
        try:
            run.load_state_dict(state)
        except (KeyError, ValueError, RuntimeError, TypeError) as error:
            raise CheckpointError(f"{self._path / CHECKPOINT} is damaged: remove it to start the run anew") from error
        self._before = run.progress.seconds
        for row in parse_lines((self._path / METRICS).read_bytes()):
            if row.get("kind") == KIND:
                run.progress.since.append(reading_of(row))
            elif row.get("kind") == "evaluation":
                run.progress.since.clear()

    def write_readings(self, run: Run, readings: Sequence[Reading]) -> None:
        """Append readings; they also wait for the next evaluation, which summarises them."""
        run.progress.since.extend(readings)
        self._metrics.append(map(row_of, readings))

    def write_comparison(self, step: int, found: PartsComparison) -> None:
        """Append how parts of a batch compare with whole ones before effective step `step`."""
        self._metrics.append([{"kind": "comparison", "step": step, **found.to_dict()}])

    def write_evaluation(self, row: dict[str, Any], timing: dict[str, Any]) -> None:
        """Append an evaluation, and what the clock says elsewhere."""
        self._metrics.append([{"kind": "evaluation", **row}])
        self._timings.append([{"step": row["step"], "seconds": round(self.seconds, 3), **timing}])

    def save(self, run: Run) -> None:
        """Make a checkpoint."""
        run.progress.seconds = self.seconds
        self._metrics.to_disk()
        state = {"identity": self._identity, "metrics_length": self._metrics.length, **run.state_dict()}
        save_checkpoint(self._path / CHECKPOINT, state)

    def end(self, run: Run, state: str, reason: str = "") -> None:
        """Write how it ended."""
        self._metrics.to_disk()
        write_outcome(
            self._path,
            state,
            reason,
            step=run.progress.step,
            seconds=self.seconds,
            examples=run.progress.step * run.stepper.examples,
            processes=run.progress.processes,
            device=run.training.data.device,
        )
