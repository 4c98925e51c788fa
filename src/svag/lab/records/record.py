"""What a run left, read back: finished, running, interrupted or broken.

A run that has ended vouches for its spec and its metrics: `outcome.json` holds their digests, every line is whole, and
a finished run has its last evaluation at the end of its budget. Where that fails, the record is broken and says so, and
it gives out no numbers. The first runs (numerics version 1) left no digest; they are read with a note.
"""

import errno
import lzma
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from svag.lab.records.files import LARGEST, digest, in_use, parse_json, parse_lines, read_file
from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.specs.fields import SpecError, cut, shown, visible
from svag.lab.specs.spec import RunSpec
from svag.noise.reading import KIND, Reading, reading_of
from svag.printed import Printed

SPEC, METRICS, TIMINGS, CHECKPOINT, OUTCOME = (
    "spec.json",
    "metrics.jsonl",
    "timings.jsonl",
    "checkpoint.pt",
    "outcome.json",
)

# The folder, in that of an experiment, in which its runs are.
RUNS = "runs"

# The kind of the rows that hold the training loss between evaluations.
LOSS = "loss"

# What committed evidence has in place of metrics.jsonl: the same bytes, compressed.
COMPRESSED_METRICS = METRICS + ".xz"

# How the problem of a run ends that was damaged after it had ended.
REMEDY = "restore it from a copy, or remove the folder to run it again"

ENDED: tuple[Literal["finished"], Literal["diverged"]] = ("finished", "diverged")
State = Literal["finished", "diverged", "failed", "running", "interrupted", "broken"]


class RunFailed(Exception):  # noqa: N818
    """A run that could not be finished; the message is one sentence."""


@dataclass(frozen=True)
class RunRecord(Printed):
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
        numerics: version of our numerics that computed it; those of two versions do not belong into one answer.
        note: what a reader should know of a record that is fine.
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
    note: str = ""

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

    @cached_property
    def losses(self) -> list[tuple[int, float]]:
        """(effective step, mean training loss since the point before) at 50 points of the run, or at every step.

        Runs of earlier versions have the evaluations' instead, which are fewer.
        """
        return [(row["step"], row["train_loss"]) for row in self._of_kind(LOSS)] or self.curve("train_loss")

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluation; empty if there is none yet."""
        return self.evaluations[-1] if self.evaluations else {}

    @property
    def to_do(self) -> bool:
        """Whether there is something left to compute. A broken run is left alone: somebody may have a copy of it."""
        return not self.ended and self.state != "broken"

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
            "numerics": self.numerics,
            "note": self.note,
            "spec": None if self.spec is None else self.spec.to_dict(),
        }

    def __str__(self) -> str:
        parts = [f"{visible(str(self.path))}: {self.state} at effective step {self.step} of {self.steps}"]
        if "test_bits_per_character" in self.final:
            parts.append(f"{self.final['test_bits_per_character']:.4f} bits per character of the test set")
        elif "test_accuracy" in self.final:
            parts.append(f"test accuracy {self.final['test_accuracy']:.4f}")
        if self.final.get("train_loss") is not None:
            parts.append(f"train loss {self.final['train_loss']:.4g}")
        if self.problem:
            parts.append(visible(self.problem))
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
    return list(each_record(path))


def each_record(path: str | Path, *, whole: bool = True) -> Iterator[RunRecord]:
    """Read the run directories of a folder one after the other, as `load_records` does, and keep none of them.

    Args:
        path: a run directory, or a folder that holds some.
        whole: see `read_record`.
    """
    for file in sorted(_spec_files(Path(path))):
        yield read_record(file.parent, whole=whole)


@dataclass(frozen=True)
class RunHeader:
    """What a run was asked to do.

    Attributes:
        path: the run directory.
        spec: what was run.
        identity: content hash of the spec.
        numerics: version of our numerics.
    """

    path: Path
    spec: RunSpec
    identity: str
    numerics: int


def load_headers(path: str | Path) -> list[RunHeader]:
    """What each run in a folder was asked to do, in the order of their paths, without reading what it measured.

    Runs whose spec cannot be read are left out; whether the others are whole is for `read_record` to say.

    Args:
        path: a run directory, or a folder that holds some.
    """
    found = []
    for file in sorted(_spec_files(Path(path))):
        header = _json(file) or {}
        with suppress(SpecError, ValidationError, KeyError, TypeError, ValueError):
            spec, numerics = RunSpec.from_dict(header["spec"]), _counted("numerics", header.get("numerics", 1))
            found.append(RunHeader(file.parent, spec, str(header["identity"]), numerics))
    return found


def notes_on(records: Sequence[RunRecord]) -> list[str]:
    """Every note that some of the records have, once, with the number of runs that it concerns.

    >>> old = RunRecord(Path("old"), "finished", None, "", 9, (), {}, numerics=1, note="no digest")
    >>> notes_on([old, old, RunRecord(Path("new"), "finished", None, "", 9, (), {})])
    ['2 of 3 runs: no digest']
    """
    counts = Counter(record.note for record in records if record.note)
    runs = "1 run" if len(records) == 1 else f"{len(records)} runs"
    return [f"{count} of {runs}: {note}" for note, count in counts.items()]


# Any of these makes a folder a run directory.
_SIGNS = (SPEC, METRICS, COMPRESSED_METRICS)


def holds_run(folder: Path) -> bool:
    """Whether a run has left something in the folder, be it damaged.

    >>> holds_run(Path("no-such-folder"))
    False
    """
    return any(os.path.lexists(folder / name) for name in _SIGNS)


def read_record(folder: Path, *, whole: bool = True) -> RunRecord:
    """Read one run directory, whatever state it is in.

    Args:
        folder: the run directory.
        whole: read all rows. Otherwise, where the digest vouches for the metrics, `rows` holds the last evaluation
            only: enough for the state, the step and the final numbers, in a tenth of the time.
    """
    found, header = _json(folder / OUTCOME), _json(folder / SPEC)
    if found is None and os.path.lexists(folder / OUTCOME):  # it is written whole, or not at all
        return _broken(folder, {}, f"{OUTCOME} is damaged: {REMEDY}")
    outcome = found or {}
    try:
        _check_outcome(outcome)
    except (ValueError, ArithmeticError) as error:
        return _broken(folder, {}, f"{OUTCOME} is not ours: {error}")
    if _spec_is_damaged(folder, outcome):
        return _broken(folder, outcome, f"{SPEC} is damaged, it is not what it was when the run ended: {REMEDY}")
    try:
        content = metrics_of(folder)
    except lzma.LZMAError:
        return _broken(folder, outcome, f"{COMPRESSED_METRICS} is damaged: {REMEDY}")
    except OSError as error:  # a folder, a pipe, a device, or longer than any run's
        return _broken(folder, outcome, f"{METRICS} cannot be read ({error.strerror}): {REMEDY}")
    if header is None:
        return _broken(folder, outcome, f"{SPEC} is missing or cannot be read")
    try:
        # a run that has not ended, or left no digest, is as long as its lines are whole: all must be parsed
        whole = whole or outcome.get("state") not in ENDED or outcome.get("metrics_sha256") != digest(content)
        rows = tuple(parse_lines(content) if whole else _last_evaluation(content))
        spec = RunSpec.from_dict(header["spec"])
        identity, steps = str(header["identity"]), _counted("steps", header["steps"])
        numerics = _counted("numerics", header.get("numerics", 1))
        state, problem = _state(folder, outcome), _problem(outcome)
        note = _NO_DIGEST if state in ENDED and "metrics_sha256" not in outcome else ""
        record = RunRecord(folder, state, spec, identity, steps, rows, outcome, problem, numerics, note)
        _ = record.readings
        for row in record.evaluations:
            _check_evaluation(row)
        for row in record._of_kind(LOSS):
            _check_loss(row)
    except (SpecError, ValidationError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        return _broken(folder, outcome, f"{SPEC} or {METRICS} is not ours: {cut(str(error), 120)}")
    if damage := _damage(record, content, whole=whole):
        return _broken(folder, outcome, f"{damage}: {REMEDY}")
    return record


_NO_DIGEST = "no digest of the metrics, so that damage to them would not be noticed"


# Lines of metrics that no run exceeds; a few bytes of a compressed file may stand for them.
_MOST_LINES = 2**23
# Bytes that unpacking takes at most, by the header of the file; the strongest setting of xz needs 65 MiB.
_TO_UNPACK = 2**28


def metrics_of(folder: Path) -> bytes:
    """The bytes of metrics.jsonl, which counts when both are there, or of metrics.jsonl.xz."""
    try:
        content = read_file(folder / METRICS, LARGEST)
    except FileNotFoundError:
        if not (folder / COMPRESSED_METRICS).exists():
            return b""
        unpacking = lzma.LZMADecompressor(memlimit=_TO_UNPACK)
        content = unpacking.decompress(read_file(folder / COMPRESSED_METRICS, LARGEST), max_length=LARGEST)
        if not unpacking.eof or unpacking.unused_data:  # cut off, or without end
            raise lzma.LZMAError from None
    if (lines := content.count(b"\n")) > _MOST_LINES:
        raise OSError(errno.EFBIG, f"it has {lines:,} lines, more than {_MOST_LINES:,}")
    return content


def _last_evaluation(content: bytes) -> list[dict[str, Any]]:
    """The last evaluation among the lines of a metrics file; the others are not parsed."""
    for line in reversed(content.split(b"\n")):
        if b'"evaluation"' in line:
            found = [row for row in parse_lines(line + b"\n") if row.get("kind") == "evaluation"]
            if found:
                return found
    return []


def _spec_is_damaged(folder: Path, outcome: dict[str, Any]) -> bool:
    """Whether the spec of a run that has ended is another one by now; not known of runs that left no digest of it."""
    expected, content = outcome.get("spec_sha256"), _bytes(folder / SPEC)
    return outcome.get("state") in ENDED and expected is not None and content != b"" and digest(content) != expected


def _damage(record: RunRecord, content: bytes, *, whole: bool) -> str:
    """What is wrong with the metrics of a run that has ended; empty when nothing is, or when it has not."""
    if not record.ended:
        return ""
    expected = record.outcome.get("metrics_sha256")
    if expected is None and record.numerics > 1:
        return f"{OUTCOME} has lost the digest of {METRICS}"
    if expected is not None and expected != digest(content):
        return f"{METRICS} is damaged, it is not what it was when the run ended"
    if whole and len(record.rows) < content.count(b"\n") + (not content.endswith(b"\n") and content != b""):
        return f"line {len(record.rows) + 1} of {METRICS} is damaged"
    if record.state == "finished" and record.step != record.steps:
        return f"{METRICS} ends at effective step {record.step}, and the run finished at {record.steps}"
    return ""


def _counted(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**18:
        raise ValueError(f"{name} is {shown(value)}")
    return value


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {shown(value)}")


def _check_evaluation(row: dict[str, Any]) -> None:
    _counted("step of an evaluation", row.get("step"))
    for name in ("test_accuracy", "test_loss", "train_loss", "test_bits_per_character"):
        if row.get(name) is not None:
            _check_number(name, row[name])


def _check_loss(row: dict[str, Any]) -> None:
    _counted("step of a training loss", row.get("step"))
    _check_number("train_loss", row.get("train_loss"))


def _check_outcome(outcome: dict[str, Any]) -> None:
    _check_number("seconds", outcome.get("seconds", 0.0))
    if not isinstance(outcome.get("reason", ""), str):
        raise ValueError(f"reason is {shown(outcome['reason'])}")


def _state(folder: Path, outcome: dict[str, Any]) -> State:
    for ended in ENDED:
        if outcome.get("state") == ended:
            return ended
    if in_use(folder):
        return "running"
    return "failed" if outcome.get("state") == "failed" else "interrupted"


def _problem(outcome: dict[str, Any]) -> str:
    return str(outcome.get("reason", ""))


def _broken(folder: Path, outcome: dict[str, Any], why: str) -> RunRecord:
    return RunRecord(folder, "broken", None, "", 0, (), outcome, why)


def _spec_files(root: Path) -> Iterable[Path]:
    if holds_run(root):
        return [root / SPEC]
    return {file.parent / SPEC for name in _SIGNS for file in root.rglob(name)}


def _bytes(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError:  # also one that is too long to be ours
        return b""


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = parse_json(_bytes(path))
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
