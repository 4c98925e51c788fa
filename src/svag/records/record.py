"""What a run left, read back: finished, running, interrupted or broken."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from svag.records.fields import SpecError
from svag.records.files import in_use, parse_lines
from svag.records.identity import NUMERICS_VERSION
from svag.records.reading import KIND, Reading, reading_of
from svag.records.spec import RunSpec

SPEC, METRICS, TIMINGS, CHECKPOINT, OUTCOME = (
    "spec.json",
    "metrics.jsonl",
    "timings.jsonl",
    "checkpoint.pt",
    "outcome.json",
)

ENDED: tuple[Literal["finished"], Literal["diverged"]] = ("finished", "diverged")
State = Literal["finished", "diverged", "failed", "running", "interrupted", "broken"]


@dataclass(frozen=True)
class RunRecord:
    """A run directory, as it was when it was read.

    >>> record = RunRecord(Path("runs/a"), "finished", None, "", 200, (
    ...     {"kind": "evaluation", "step": 0, "test_accuracy": 0.1},
    ...     {"kind": "evaluation", "step": 200, "test_accuracy": 0.84}), {})
    >>> record.final["test_accuracy"], record.curve("test_accuracy")
    (0.84, [(0, 0.1), (200, 0.84)])

    Attributes:
        path: the run directory.
        state: "finished", "diverged" (also a result), "failed", "running" (another process has it), "interrupted" (to
            be continued by running it again) or "broken" (see `problem`).
        spec: what was run; None if it cannot be read.
        identity: content hash of the spec; two runs with the same one are the same run.
        steps: the budget in effective steps.
        rows: the lines of metrics.jsonl.
        outcome: versions, hardware, seconds, examples and what else outcome.json holds; empty until the run has ended.
        problem: why a run failed, diverged or is broken.
        numerics: version of the numerics that computed it; only runs of one version are comparable.
    """

    path: Path
    state: State
    spec: RunSpec | None
    identity: str
    steps: int
    rows: tuple[dict[str, Any], ...]
    outcome: dict[str, Any]
    problem: str = ""
    numerics: int = NUMERICS_VERSION

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to compute: finished, or diverged."""
        return self.state in ENDED

    @cached_property
    def evaluations(self) -> list[dict[str, Any]]:
        """One row per evaluation, in order: step, time, lr, test_accuracy, test_loss, train_loss, param_sq and more."""
        return [row for row in self.rows if row.get("kind") == "evaluation"]

    @cached_property
    def readings(self) -> list[Reading]:
        """What the probe measured, in order."""
        return [reading_of(row) for row in self._of_kind(KIND)]

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluation; empty if there is none yet."""
        return self.evaluations[-1] if self.evaluations else {}

    @property
    def step(self) -> int:
        """The effective step of the last evaluation."""
        return int(self.final.get("step", 0))

    def curve(self, metric: str) -> list[tuple[int, float]]:
        """(effective step, value) of a metric, where it was measured."""
        return [(row["step"], row[metric]) for row in self.evaluations if row.get(metric) is not None]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the curves, as JSON values."""
        return {
            "path": str(self.path),
            "state": self.state,
            "identity": self.identity,
            "step": self.step,
            "steps": self.steps,
            "final": self.final,
            "readings": len(self._of_kind(KIND)),
            "outcome": self.outcome,
            "problem": self.problem,
            "spec": None if self.spec is None else self.spec.to_dict(),
        }

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.state} at effective step {self.step} of {self.steps}"]
        if "test_accuracy" in self.final:
            parts.append(f"test accuracy {self.final['test_accuracy']:.4f}")
        if self.final.get("train_loss") is not None:
            parts.append(f"train loss {self.final['train_loss']:.4g}")
        if self.problem:
            parts.append(self.problem)
        return ", ".join(parts)

    def _of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [row for row in self.rows if row.get("kind") == kind]


def load_records(path: str | Path) -> list[RunRecord]:
    """Read all run directories in a folder, at any depth, in the order of their paths; never fails because of one.

    >>> load_records("no-such-folder")
    []

    Args:
        path: a run directory, or a folder that holds some.
    """
    root = Path(path)
    return [read_record(file.parent) for file in sorted(_spec_files(root))]


def read_record(folder: Path) -> RunRecord:
    """Read one run directory, whatever state it is in."""
    rows = tuple(parse_lines(_bytes(folder / METRICS)))
    outcome = _json(folder / OUTCOME) or {}
    header = _json(folder / SPEC)
    if header is None:
        return _broken(folder, rows, outcome, f"{SPEC} is missing or cannot be read")
    try:
        spec = RunSpec.from_dict(header["spec"])
        identity, steps = str(header["identity"]), int(header["steps"])
        state, numerics = _state(folder, outcome), int(header.get("numerics", 1))
        record = RunRecord(folder, state, spec, identity, steps, rows, outcome, _problem(outcome), numerics)
        _ = record.readings
        for row in record.evaluations:
            _check_evaluation(row)
    except (SpecError, ValidationError, KeyError, TypeError, ValueError) as error:
        return _broken(folder, (), outcome, f"{SPEC} or {METRICS} is not ours: {' '.join(str(error).split())[:120]}")
    return record


def _check_evaluation(row: dict[str, Any]) -> None:
    if not isinstance(row.get("step"), int):
        raise ValueError(f"an evaluation at step {row.get('step')!r}")
    for name in ("test_accuracy", "test_loss", "train_loss"):
        if not isinstance(row.get(name), int | float | None):
            raise ValueError(f"{name} is {row[name]!r}")


def _state(folder: Path, outcome: dict[str, Any]) -> State:
    for ended in ENDED:
        if outcome.get("state") == ended:
            return ended
    if in_use(folder):
        return "running"
    return "failed" if outcome.get("state") == "failed" else "interrupted"


def _problem(outcome: dict[str, Any]) -> str:
    return str(outcome.get("reason", ""))


def _broken(folder: Path, rows: tuple[dict[str, Any], ...], outcome: dict[str, Any], why: str) -> RunRecord:
    return RunRecord(folder, "broken", None, "", 0, rows, outcome, why)


def _spec_files(root: Path) -> Iterable[Path]:
    if (root / SPEC).exists() or (root / METRICS).exists():
        return [root / SPEC]
    return {file.parent / SPEC for name in (SPEC, METRICS) for file in root.rglob(name)}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(_bytes(path))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
