"""The run directory while a run works in it: header, journal, checkpoint, outcome.

If several processes share a run, only rank 0 has a `RunFolder`; the others have a `NoFolder`. If a run dies, its
supervisor records the failure (`record_failure`).
"""

import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.records.record import LOSS, RunRecord, read_record
from svag.lab.records.storage import (
    CHECKPOINT,
    METRICS,
    OUTCOME,
    SPEC,
    TIMINGS,
    DiskError,
    Journal,
    RunLock,
    content_of,
    digest,
    forget_parts,
    make_folder,
    parse_lines,
    replace_file,
    writing,
)
from svag.lab.specs.spec import RunSpec, examples_per_step
from svag.lab.training.state import (
    CheckpointError,
    Run,
    check_state,
    load_checkpoint,
    refuse_other_number,
    save_checkpoint,
)
from svag.noise.frozen import PartsComparison
from svag.noise.reading import KIND, LARGEST, Reading, reading_of, row_of


def versions() -> dict[str, str]:
    """Versions of the packages that the numbers depend on."""
    return {
        "svag": version("svag"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def hardware(device: torch.device) -> dict[str, Any]:
    """The hardware of a run; the name of a CUDA device on another machine is unknown."""
    return {
        "device": device.type,
        "name": _name(device),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _name(device: torch.device) -> str:
    if device.type != "cuda":
        return _processor()
    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else "unknown"


def _processor() -> str:
    """The name of the processor, if the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123  # reading it whole takes long
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def run_header(spec: RunSpec, identity: str, examples: int) -> dict[str, Any]:
    """The content of `spec.json`: the spec, its identity, and its budget in effective steps."""
    return {
        "identity": identity,
        "numerics": NUMERICS_VERSION,
        "steps": spec.steps(examples),
        "examples": examples,
        "spec": spec.to_dict(),
    }


def write_header(path: Path, header: dict[str, Any]) -> str:
    """Write `spec.json`, and return the digest of its content."""
    content = json.dumps(header, indent=2, ensure_ascii=False).encode() + b"\n"
    replace_file(path / SPEC, content)
    return digest(content)


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
    spec: str,
    metrics: str,
    layout: torch.memory_format | None = None,
) -> None:
    """Write `outcome.json`: how a run ended, and on what hardware.

    Args:
        path: the run directory.
        state: finished, diverged or failed.
        reason: why it diverged or failed.
        step: effective steps that are done.
        seconds: seconds that they took.
        examples: number of examples that they used.
        processes: number of processes in each session, the last session last.
        device: the device.
        spec: digest of `spec.json`.
        metrics: digest of `metrics.jsonl`.
        layout: memory layout of the images, if a network was built.
    """
    outcome: dict[str, Any] = {
        "state": state,
        "reason": reason,
        "step": step,
        "seconds": round(seconds, 3),
        "examples": examples,
        "processes": processes[-1],
        "spec_sha256": spec,
        "metrics_sha256": metrics,
        "versions": versions(),
        "hardware": hardware(device),
    }
    if layout is not None:
        outcome["memory_layout"] = str(layout).removeprefix("torch.")
    if before := list(processes[:-1]):
        outcome["processes_before"] = before
    replace_file(path / OUTCOME, json.dumps(outcome, indent=2, ensure_ascii=False).encode() + b"\n")


def restore(path: Path, identity: str, run: Run) -> int:
    """Load the checkpoint of a run directory, and return how many bytes of the metrics were written before it.

    Without a checkpoint the run stays at its start. Everything is checked first, and no file is changed.
    """
    place, training, metrics = path / CHECKPOINT, run.training, content_of(path / METRICS, LARGEST)
    state = load_checkpoint(place, identity, training.data.device)
    if state is None:
        return 0
    try:
        check_state(state, run)
    except ValueError as error:
        raise CheckpointError(f"{place} is not of this run, {error}: remove it to start the run anew") from error
    refuse_other_number(place, state["processes"][-1], training.ranks, training.model)
    kept: int = state["metrics_length"]
    whole_lines = kept == 0 or metrics[kept - 1 : kept] == b"\n"
    if not whole_lines or digest(metrics[:kept]) != state["metrics_sha256"]:
        raise CheckpointError(
            f"{path / METRICS} is damaged, it is not what it was when {CHECKPOINT} was made: remove both to start the "
            "run anew"
        )
    try:
        run.load_state_dict(state)
        for row in parse_lines(metrics[:kept]):
            if row.get("kind") == KIND:
                run.progress.since.append(reading_of(row))
            elif row.get("kind") == "evaluation":
                run.progress.since.clear()
    except Exception as error:  # torch may still refuse a state that passed the checks
        raise CheckpointError(f"{place} is damaged: remove it to start the run anew") from error
    return kept


class RunFolder:
    """Writes the five files of a run directory, which the caller has locked."""

    def __init__(self, path: Path, identity: str, header: dict[str, Any]) -> None:
        self._path, self._identity, self._steps = path, identity, header["steps"]
        forget_parts(path, (SPEC, CHECKPOINT, OUTCOME))
        with writing(path / OUTCOME):
            (path / OUTCOME).unlink(missing_ok=True)  # of an earlier attempt that failed
        self._header = write_header(path, header)
        self._metrics = Journal(path / METRICS)
        try:
            self._timings = Journal(path / TIMINGS)
        except DiskError:
            self._metrics.close()
            raise
        self._began = time.monotonic()
        self._before = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._metrics.close()
        finally:
            self._timings.close()

    @property
    def seconds(self) -> float:
        """Seconds of this run in all sessions, without the time of a killed session after its last checkpoint."""
        return self._before + time.monotonic() - self._began

    def resume(self, run: Run, kept: int) -> None:
        """Continue from the checkpoint that `restore` has loaded; later rows are removed, and will be written again."""
        self._metrics.cut(kept)
        self._before = run.progress.seconds

    def write_readings(self, run: Run, readings: Sequence[Reading]) -> None:
        """Append readings, and keep them for the summary in the next evaluation."""
        run.progress.since.extend(readings)
        self._metrics.append(map(row_of, readings))

    def write_comparison(self, step: int, found: PartsComparison) -> None:
        """Append the comparison of parts of a batch with whole batches, made before effective step `step`."""
        self._metrics.append([{"kind": "comparison", "step": step, **found.to_dict()}])

    def write_loss(self, step: int, train_loss: float, gained: dict[str, Any]) -> None:
        """Append the mean training loss since the last such row, with the state of the gain rule if there is one."""
        self._metrics.append([{"kind": LOSS, "step": step, "train_loss": train_loss, **gained}])

    def write_evaluation(self, row: dict[str, Any], timing: dict[str, Any]) -> None:
        """Append an evaluation to the metrics, and its times to the timings."""
        self._metrics.append([{"kind": "evaluation", **row}])
        self._timings.append([{"step": row["step"], "seconds": round(self.seconds, 3), **timing}])

    def save(self, run: Run) -> None:
        """Make a checkpoint."""
        run.progress.seconds = self.seconds
        self._metrics.to_disk()
        metrics = {"metrics_length": self._metrics.length, "metrics_sha256": self._metrics.digest}
        save_checkpoint(self._path / CHECKPOINT, {"identity": self._identity, **metrics, **run.state_dict()})
        if run.progress.step < self._steps:  # a reader of the record cannot open checkpoints: that takes torch
            self._timings.append([{"step": run.progress.step, "seconds": round(self.seconds, 3)}])

    def end(self, run: Run, state: str, reason: str = "") -> None:
        """Write how the run ended."""
        self._metrics.to_disk()
        write_outcome(
            self._path,
            state,
            reason,
            step=run.progress.step,
            seconds=self.seconds,
            examples=run.stepper.seen(run.progress.step),
            processes=run.progress.processes,
            device=run.training.data.device,
            spec=self._header,
            metrics=self._metrics.digest,
            layout=run.training.data.layout,
        )


def record_failure(
    spec: RunSpec, folder: Path, identity: str, examples: int, reason: str, device: torch.device
) -> RunRecord:
    """Record that a run failed; its files stay, and running it again continues from them.

    If the run has ended meanwhile, here or on another machine, its own outcome is kept.

    Args:
        spec: spec of the run.
        folder: the run directory.
        identity: identity of the spec.
        examples: number of training examples.
        reason: why it failed, in one sentence.
        device: device of the run.
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
            examples=round(now.step * examples_per_step(spec, examples)),
            processes=[1],
            device=device,
            spec=digest(content_of(folder / SPEC)),
            metrics=digest(content_of(folder / METRICS, LARGEST)),
        )
    return read_record(folder)


def _seconds(folder: Path) -> float:
    """Seconds up to the last evaluation or checkpoint."""
    rows = parse_lines(content_of(folder / TIMINGS, LARGEST))
    return float(rows[-1].get("seconds", 0.0)) if rows else 0.0


class NoFolder:
    """Writes nothing, in place of a `RunFolder` on ranks other than 0."""

    def write_readings(self, run: Run, readings: Sequence[Reading]) -> None:
        """Write nothing."""

    def write_comparison(self, step: int, found: PartsComparison) -> None:
        """Write nothing."""

    def write_loss(self, step: int, train_loss: float, gained: dict[str, Any]) -> None:
        """Write nothing."""

    def write_evaluation(self, row: dict[str, Any], timing: dict[str, Any]) -> None:
        """Write nothing."""

    def save(self, run: Run) -> None:
        """Save nothing: rank 0 saves the state of all."""

    def end(self, run: Run, state: str, reason: str = "") -> None:
        """Write nothing."""
