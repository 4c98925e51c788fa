"""The run directory while a run works in it."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from svag.lab.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from svag.lab.machine import hardware, versions
from svag.lab.parallel.refusals import refuse_other_number
from svag.lab.state import Run
from svag.records.files import Journal, disk_error, parse_lines, replace_file
from svag.records.reading import Reading
from svag.records.record import CHECKPOINT, METRICS, OUTCOME, SPEC, TIMINGS
from svag.records.rows import KIND, reading_of, row_of


def make_folder(path: Path) -> None:
    """Make the folder of a run, with those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(path, error) from error


class RunFolder:
    """Writes the five files of a run directory; whoever uses it holds the folder's lock."""

    def __init__(self, path: Path, identity: str, header: dict[str, Any]) -> None:
        self._path, self._identity = path, identity
        try:
            (path / OUTCOME).unlink(missing_ok=True)  # that of a run that failed and is tried again
        except OSError as error:
            raise disk_error(path / OUTCOME, error) from error
        replace_file(path / SPEC, json.dumps(header, indent=2, ensure_ascii=False).encode() + b"\n")
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
            else:
                run.progress.since.clear()

    def write_readings(self, run: Run, readings: Sequence[Reading]) -> None:
        """Append readings; they also wait for the next evaluation, which summarises them."""
        run.progress.since.extend(readings)
        self._metrics.append(map(row_of, readings))

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
        device = run.training.data.device
        outcome: dict[str, Any] = {
            "state": state,
            "reason": reason,
            "step": run.progress.step,
            "seconds": round(self.seconds, 3),
            "examples": run.progress.step * run.stepper.examples,
            "processes": run.progress.processes[-1],
            "versions": versions(),
            "hardware": hardware(device),
        }
        if before := run.progress.processes[:-1]:
            outcome["processes_before"] = before
        self._metrics.to_disk()
        replace_file(self._path / OUTCOME, json.dumps(outcome, indent=2, ensure_ascii=False).encode() + b"\n")
