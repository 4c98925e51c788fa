"""Reading back what a run left: finished, running, interrupted or broken.

A run that has ended can be checked: `outcome.json` holds digests of its spec and its metrics, every line is complete,
and a finished run has its last evaluation at the end of its budget. If a check fails, the record is broken: it has a
code for what is wrong, and no numbers. The first runs (numerics version 1) left no digest; they are read with a note.
"""

import errno
import lzma
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from svag.lab.records.identity import NUMERICS_VERSION
from svag.lab.records.problems import Problem, sentence
from svag.lab.records.storage import (
    COMPRESSED_METRICS,
    METRICS,
    OUTCOME,
    SPEC,
    TIMINGS,
    content_of,
    digest,
    in_use,
    parse_json,
    parse_lines,
    read_file,
)
from svag.lab.specs.fields import SpecError, cut, shown, visible
from svag.lab.specs.spec import RunSpec
from svag.noise.reading import KIND, LARGEST, Reading, reading_of
from svag.printed import Printed

# The folder of the runs inside the folder of an experiment.
RUNS = "runs"

# The kind of the rows that hold the training loss between evaluations.
LOSS = "loss"

ENDED: tuple[Literal["finished"], Literal["diverged"]] = ("finished", "diverged")
State = Literal["finished", "diverged", "failed", "running", "interrupted", "broken"]


class RunFailed(Exception):  # noqa: N818
    """A run could not be finished; the message is one sentence."""


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
        state: "finished", "diverged" (also a result), "failed", "running" (in another process), "interrupted" (running
            it again continues it) or "broken" (its files cannot be used).
        spec: what was run; None if it cannot be read.
        identity: content hash of the spec; two runs with the same one are the same run.
        steps: the budget in effective steps.
        rows: the lines of metrics.jsonl.
        outcome: versions, hardware, seconds, examples and whatever else outcome.json holds; empty until the run ends.
        code: what is wrong with it, or why it has no result; None if nothing is.
        detail: what the sentence for the code names; for a run that failed or diverged, the reason.
        numerics: version of the numerics that computed it. Runs of different versions are not comparable.
        saved: effective step of the last checkpoint or evaluation of a run that has not ended; 0 if it is not known.
    """

    path: Path
    state: State
    spec: RunSpec | None
    identity: str
    steps: int
    rows: tuple[dict[str, Any], ...]
    outcome: dict[str, Any]
    code: Problem | None = None
    detail: str = ""
    numerics: int = NUMERICS_VERSION
    saved: int = 0

    @property
    def problem(self) -> str:
        """What is wrong, in one sentence, with what to do about a broken record; empty if nothing is."""
        return sentence(self.code, self.detail)

    @property
    def note(self) -> str:
        """What a reader should know about a record that can be used; usually empty."""
        return _NO_DIGEST if self.ended and "metrics_sha256" not in self.outcome else ""

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to compute: finished or diverged."""
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
        """(effective step, mean training loss since the previous point) at 50 points of the run, or at every step.

        Runs of earlier versions have only the training losses of their evaluations, which are fewer.
        """
        return [(row["step"], row["train_loss"]) for row in self._of_kind(LOSS)] or self.curve("train_loss")

    @property
    def final(self) -> dict[str, Any]:
        """The last evaluation; empty if there is none yet."""
        return self.evaluations[-1] if self.evaluations else {}

    @property
    def to_do(self) -> bool:
        """Whether something is left to compute. A broken run is left alone, as its owner may have a copy of it."""
        return not self.ended and self.state != "broken"

    @property
    def step(self) -> int:
        """The effective step of the last evaluation, or of the last checkpoint if that is later."""
        return max(int(self.final.get("step", 0)), self.saved)

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
            "problem_code": self.code,
            "numerics": self.numerics,
            "note": self.note,
            "spec": None if self.spec is None else self.spec.to_dict(),
        }

    def __str__(self) -> str:
        step = "step" if self.spec is None else self.spec.step_name
        parts = [f"{visible(str(self.path))}: {self.state} at {step} {self.step} of {self.steps}"]
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
    """Read the run directories of a folder one at a time, without keeping them; otherwise like `load_records`.

    Args:
        path: a run directory, or a folder that holds some.
        whole: see `read_record`.
    """
    for folder in run_folders(Path(path)):
        yield read_record(folder, whole=whole)


def run_folders(root: Path) -> list[Path]:
    """The run directories in a folder, at any depth, in the order of their paths; the folder itself if it is one."""
    if holds_run(root):
        return [root]
    return sorted({file.parent for name in _SIGNS for file in root.rglob(name) if not file.is_dir()})


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
    """Read the specs of all runs in a folder, in the order of their paths, but nothing that they measured.

    Runs whose spec cannot be read are left out. Only `read_record` tells whether the others are intact.

    Args:
        path: a run directory, or a folder that holds some.
    """
    headers = []
    for folder in run_folders(Path(path)):
        header = _json_object(content_of(folder / SPEC)) or {}
        with suppress(SpecError, ValidationError, KeyError, TypeError, ValueError):
            spec, numerics = RunSpec.from_dict(header["spec"]), _counted("numerics", header.get("numerics", 1))
            headers.append(RunHeader(folder, spec, str(header["identity"]), numerics))
    return headers


def notes_on(records: Sequence[RunRecord]) -> list[str]:
    """Each distinct note of the records, with the number of runs that it applies to.

    >>> old = RunRecord(Path("old"), "finished", None, "", 9, (), {}, numerics=1)
    >>> new = RunRecord(Path("new"), "finished", None, "", 9, (), {"metrics_sha256": "0a9f"})
    >>> notes_on([old, old, new])
    ['2 of 3 runs: no digest of the metrics, so that damage to them would not be noticed']
    """
    counts = Counter(record.note for record in records if record.note)
    runs = "1 run" if len(records) == 1 else f"{len(records)} runs"
    return [f"{count} of {runs}: {note}" for note, count in counts.items()]


# Any of these makes a folder a run directory, unless it is itself a folder: a run may have that name, too.
_SIGNS = (SPEC, METRICS, COMPRESSED_METRICS)


def holds_run(folder: Path) -> bool:
    """Whether a run has left something in the folder, damaged or not.

    >>> holds_run(Path("no-such-folder"))
    False
    """
    return any(os.path.lexists(folder / name) and not (folder / name).is_dir() for name in _SIGNS)


def read_record(folder: Path, *, whole: bool = True) -> RunRecord:
    """Read one run directory, whatever state it is in.

    Args:
        folder: the run directory.
        whole: read all rows. Otherwise, if the digest matches the metrics, `rows` holds the last evaluation only:
            enough for the state, the step and the final numbers, in a tenth of the time.
    """
    ended, spec_file = _json_object(content_of(folder / OUTCOME)), content_of(folder / SPEC)
    if ended is None and os.path.lexists(folder / OUTCOME):  # it is written completely or not at all
        return _broken(folder, {}, Problem.OUTCOME_DAMAGED)
    outcome, header = ended or {}, _json_object(spec_file)
    try:
        _check_outcome(outcome)
    except (ValueError, ArithmeticError) as error:
        return _broken(folder, {}, Problem.OUTCOME_INVALID, str(error))
    if _spec_is_damaged(spec_file, outcome):
        return _broken(folder, outcome, Problem.SPEC_CHANGED)
    try:
        content = metrics_of(folder)
    except lzma.LZMAError:
        return _broken(folder, outcome, Problem.METRICS_UNPACKABLE)
    except OSError as error:  # a folder, a pipe, a device, or a file longer than any run leaves
        return _broken(folder, outcome, Problem.METRICS_UNREADABLE, error.strerror or str(error))
    if header is None:
        return _broken(folder, outcome, Problem.SPEC_MISSING)
    try:
        # without a matching digest, only parsing every line tells how many of them are complete
        whole = whole or outcome.get("state") not in ENDED or outcome.get("metrics_sha256") != digest(content)
        rows = tuple(parse_lines(content) if whole else _last_evaluation(content))
        spec = RunSpec.from_dict(header["spec"])
        identity, steps = str(header["identity"]), _counted("steps", header["steps"])
        numerics = _counted("numerics", header.get("numerics", 1))
        state = _state(folder, outcome)
        code, reason = _CODES.get(state), str(outcome.get("reason", ""))
        saved = 0 if state in ENDED else min(_saved(folder), steps)
        record = RunRecord(
            folder, state, spec, identity, steps, rows, outcome, code, reason if code else "", numerics, saved
        )
        _ = record.readings
        for row in record.evaluations:
            _check_evaluation(row)
        for row in record._of_kind(LOSS):
            _check_loss(row)
    except (SpecError, ValidationError, KeyError, TypeError, ValueError, ArithmeticError) as error:
        return _broken(folder, outcome, Problem.CONTENT_INVALID, cut(str(error), 120))
    damage = _damage(record, content, whole=whole)
    return record if damage is None else _broken(folder, outcome, *damage)


# States in which outcome.json gives a reason.
_CODES = {"failed": Problem.FAILED, "diverged": Problem.DIVERGED}

_NO_DIGEST = "no digest of the metrics, so that damage to them would not be noticed"


# More lines of metrics than any run leaves: a few compressed bytes can expand to more.
_MOST_LINES = 2**23
# Memory that unpacking may take, in bytes; the strongest setting of xz needs 65 MiB.
_TO_UNPACK = 2**28


def metrics_of(folder: Path) -> bytes:
    """The bytes of metrics.jsonl, or if it is not there those of metrics.jsonl.xz, unpacked."""
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
    """The last evaluation in a metrics file, found without parsing the lines before it."""
    for line in reversed(content.split(b"\n")):
        if b'"evaluation"' in line:
            found = [row for row in parse_lines(line + b"\n") if row.get("kind") == "evaluation"]
            if found:
                return found
    return []


def _spec_is_damaged(content: bytes, outcome: dict[str, Any]) -> bool:
    """Whether the spec was changed after the run ended; False for runs that left no digest of it."""
    expected = outcome.get("spec_sha256")
    return outcome.get("state") in ENDED and expected is not None and content != b"" and digest(content) != expected


def _damage(record: RunRecord, content: bytes, *, whole: bool) -> tuple[Problem, str] | None:
    """What is wrong with the metrics of a run that has ended, as a code and its detail; None if nothing is."""
    if not record.ended:
        return None
    expected = record.outcome.get("metrics_sha256")
    if expected is None and record.numerics > 1:
        return Problem.DIGEST_MISSING, ""
    if expected is not None and expected != digest(content):
        return Problem.METRICS_CHANGED, ""
    if whole and len(record.rows) < content.count(b"\n") + (not content.endswith(b"\n") and content != b""):
        return Problem.METRICS_LINE_DAMAGED, str(len(record.rows) + 1)
    if record.state == "finished" and record.step != record.steps:
        return Problem.METRICS_INCOMPLETE, f"at step {record.step} of {record.steps}"
    return None


def _saved(folder: Path) -> int:
    """The step of the last row of the timings; 0 without one, as they are not worth refusing a run for."""
    rows = parse_lines(content_of(folder / TIMINGS, LARGEST))
    step = rows[-1].get("step") if rows else None
    return step if isinstance(step, int) else 0


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


def _broken(folder: Path, outcome: dict[str, Any], code: Problem, detail: str = "") -> RunRecord:
    return RunRecord(folder, "broken", None, "", 0, (), outcome, code, detail)


def _json_object(content: bytes) -> dict[str, Any] | None:
    try:
        value = parse_json(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
