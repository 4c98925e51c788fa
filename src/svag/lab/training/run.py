"""`svag.lab.run`: one run from a spec, from where it was left to its end."""

import ctypes
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import torch
from torch.distributed import ProcessGroup

from svag.lab.records.files import DiskError, RunLock, make_folder
from svag.lab.records.identity import identity
from svag.lab.records.record import REMEDY, RunFailed, RunRecord, holds_run, read_record
from svag.lab.specs.parts import FrozenProbe
from svag.lab.specs.spec import Base, RunSpec
from svag.lab.training.folder import NoFolder, RunFolder, restore, run_header
from svag.lab.training.loop import Loop
from svag.lab.training.measuring import Diverged, FrozenReadings
from svag.lab.training.ranks import RankLost, Ranks, ranks_answer
from svag.lab.training.state import Progress, Run, start_together
from svag.lab.training.steppers import stepper_for
from svag.lab.training.streams import stream_seed
from svag.lab.training.training import (
    Training,
    check_inputs,
    load_inputs,
    note_on_batch_norm,
    pick_device,
    prepare,
    refuse_small_shares,
)
from svag.lab.training.watching import HeldSignals, Watcher, say, watcher
from svag.noise.group import LostMessage
from svag.theory import domain


def run(
    spec: Base,
    out: str | Path,
    *,
    device: str = "auto",
    data_dir: str | Path | None = None,
    threads: int = 1,
    progress: bool = True,
    save_seconds: float = 60.0,
    process_group: ProcessGroup | None = None,
    watching: Watcher | None = None,
) -> RunRecord:
    """Run a spec in a folder of its own, or continue there, and return what it left.

    A folder in which the same spec has ended is only read: nothing is computed twice. Killed at any moment, the next
    call continues from the last checkpoint and ends bit for bit as if nothing had happened. Ctrl-C and SIGTERM wait for
    the end of the step and for a checkpoint; a second one does not.

    >>> import tempfile
    >>> spec = RunSpec.from_yaml('''
    ... data: {name: fashion-small, subset: 200}
    ... model: {arch: mlp, norm: layer, width: 0.0625}
    ... process: {kind: svag, ell: 2}
    ... batch_size: 20
    ... lr: 0.1
    ... budget: {epochs: 2}
    ... ''')
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     record = run(spec, folder, progress=False)
    >>> record.state, record.step
    ('finished', 20)

    Args:
        spec: what to run: a spec, a mapping of its fields, or the path of a YAML file.
        out: the run directory; made if it is not there.
        device: "auto", "cpu" or "cuda".
        data_dir: where the files of the data set are, or shall be; $SVAG_DATA or the user's cache when None.
        threads: threads of torch on the CPU. One is fastest for small networks, immune to other work there, and
            gives the same bits whatever the number of cores. A checkpoint goes on with the number it was made with.
        progress: show a bar to a person, lines to a file.
        save_seconds: seconds between two checkpoints.
        process_group: the ranks that share every batch of the run, all of which call this; this one alone by default.
            Only the first of them looks at `out`, shows progress, and writes.
        watching: who is told where the run is, instead of the bar or the lines.
    """
    spec = RunSpec.of(spec)
    folder, place, ranks = Path(out), pick_device(device), Ranks.of(process_group)
    name = identity(spec)
    with ranks_answer():
        before, first_name = ranks.first(lambda: (_look(folder, name), name))
        if name != first_name:
            raise ValueError(
                "the processes of this run see different data or code: give them the same files and versions"
            )
        if before.ended:
            return before
        data = load_inputs(spec.data, data_dir, place)
        check_inputs(spec, data)
        with _reproducible(spec.seed, place, threads):
            training = prepare(spec, data, ranks)
            refuse_small_shares(training)
            first, steps = ranks.rank == 0, spec.steps(training.examples)
            told = watching if first and watching else watcher(steps, progress=progress and first)
            note = note_on_batch_norm(training) if first and progress else ""
            return _run(training, folder, name, told, note, save_seconds)


def _run(training: Training, folder: Path, name: str, told: Watcher, note: str, save_seconds: float) -> RunRecord:
    spec, place, ranks = training.spec, training.data.device, training.ranks
    frozen = FrozenReadings(training, spec.probe) if isinstance(spec.probe, FrozenProbe) else None
    stepper = stepper_for(training)
    counted = Progress(torch.zeros((), dtype=torch.float64, device=place), processes=[ranks.size])
    moving = Run(training, stepper, frozen, counted)
    header = run_header(spec, name, training.examples)
    written: RunFolder | NoFolder = NoFolder()
    with ExitStack() as until_the_end:

        def open_folder() -> RunRecord | None:
            """Lock the folder and go to where the run was left, unless another program has just ended it."""
            nonlocal written
            make_folder(folder)
            until_the_end.enter_context(RunLock(folder))
            now = _look(folder, name)
            if now.ended:
                return now
            kept = restore(folder, name, moving)
            written = until_the_end.enter_context(RunFolder(folder, name, header))
            written.resume(moving, kept)
            return None

        if (ended := ranks.first(open_folder)) is not None:
            return ended
        start_together(moving, ranks)
        if note:
            say(note)
        until_the_end.enter_context(told)
        held = HeldSignals() if ranks.size == 1 else None  # ranks would not stop at the same step
        try:
            with held or nullcontext():
                Loop(moving, written, told, save_seconds if ranks.rank == 0 else math.inf, held).go()
                written.end(moving, "finished")
        except Diverged as lost:
            written.end(moving, "diverged", str(lost))
        except (DiskError, RankLost, LostMessage):
            raise
        except (Exception, SystemExit) as error:  # a user's network may fail in any way, or end the program
            if isinstance(error, SystemExit) and held is not None and held.delivered:
                raise  # what a signal does in this program: the run is interrupted, and saved
            sentence = f"{type(error).__name__}: {' '.join(str(error).split())}"
            written.end(moving, "failed", sentence)
            raise RunFailed(
                f"the run in {folder} failed at effective step {moving.progress.step}: {sentence}"
            ) from error
        finally:
            stepper.close()
    return ranks.first(lambda: read_record(folder))


def _look(folder: Path, name: str) -> RunRecord:
    """What is in the folder, or refuse it."""
    record = read_record(folder)
    _refuse_another(folder, record, name)
    return record


def _refuse_another(folder: Path, record: RunRecord, name: str) -> None:
    if record.identity and record.identity != name:
        raise ValueError(f"{folder} holds another run ({record.identity[:12]}): give another --out")
    if not record.identity and holds_run(folder):
        if REMEDY in record.problem:
            raise RunFailed(f"{folder} holds a run that cannot be read: {record.problem}")
        raise RunFailed(f"{folder} holds a run that cannot be read ({record.problem}): give another --out")


@contextmanager
def _reproducible(seed: int, device: torch.device, threads: int) -> Iterator[None]:
    """Seed torch's global generators, which dropout uses; put them, threads and algorithms back afterwards."""
    before, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(stream_seed(seed, "dropout"))
        try:
            torch.set_num_threads(domain.whole("threads", threads))
            if device.type == "cuda":
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
                torch.use_deterministic_algorithms(True, warn_only=True)
            yield
        finally:
            torch.set_num_threads(before)
            torch.use_deterministic_algorithms(strict, warn_only=warn_only)


# Numbers that malloc.h gives to two settings of glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Let this process keep the memory that a step on the CPU frees, for the next step.

    Glibc gives large pieces back to the system at once, which clears them page by page when the next step asks again:
    at batch 512 a fifth to two fifths of a step went into that. It cannot be undone, so it is for programs of our own;
    where there is no glibc, nothing happens.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
