"""`svag.lab.run`: one run from a spec, from its last checkpoint to its end."""

import ctypes
import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

import torch
from torch.distributed import ProcessGroup

from svag.lab.records.identity import identity
from svag.lab.records.record import RunFailed, RunRecord, holds_run, read_record
from svag.lab.records.storage import DiskError, RunLock, make_folder
from svag.lab.specs.parts import FrozenProbe
from svag.lab.specs.spec import Base, RunSpec
from svag.lab.training.loop import Loop
from svag.lab.training.measuring import Diverged, FrozenReadings
from svag.lab.training.ranks import RankLost, Ranks, ranks_answer
from svag.lab.training.run_folder import NoFolder, RunFolder, restore, run_header
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
    """Run a spec in a folder of its own, or continue it there, and return its record.

    If the same spec has ended in the folder, its record is only read. A run that is killed at any moment continues from
    its last checkpoint with the next call, and ends bit for bit as if nothing had happened. After Ctrl-C or SIGTERM the
    run finishes its step and makes a checkpoint; a second Ctrl-C ends it at once.

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
        out: the run directory; created if it does not exist.
        device: "auto", "cpu" or "cuda".
        data_dir: folder of the data files; $SVAG_DATA or the user's cache when None.
        threads: threads of torch on the CPU. One is fastest for small networks, is not slowed by other programs, and
            gives the same bits on any number of cores. A checkpoint continues with the number it was made with.
        progress: show a bar at a terminal, lines in a file.
        save_seconds: seconds between two checkpoints.
        process_group: the ranks that share every batch of the run, all of which call this; by default there is one.
            Only rank 0 uses `out`, prints and writes.
        watching: is told the progress of the run, instead of the bar or the lines.
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
            prints = progress and ranks.rank == 0 and watching is None
            told = watching if ranks.rank == 0 and watching else None
            told = told or watcher(spec.steps(training.examples), spec.step_name, progress=prints)
            return _run(training, folder, name, told, save_seconds, prints=prints)


def _run(training: Training, folder: Path, name: str, told: Watcher, save_seconds: float, *, prints: bool) -> RunRecord:
    spec, place, ranks = training.spec, training.data.device, training.ranks
    frozen = FrozenReadings(training, spec.probe) if isinstance(spec.probe, FrozenProbe) else None
    stepper = stepper_for(training)
    counted = Progress(torch.zeros((), dtype=torch.float64, device=place), processes=[ranks.size])
    moving = Run(training, stepper, frozen, counted)
    header = run_header(spec, name, training.examples)
    written: RunFolder | NoFolder = NoFolder()
    with ExitStack() as until_the_end:

        def open_folder() -> RunRecord | None:
            """Lock the folder and restore the last checkpoint, unless another program has just ended the run."""
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
        if prints and (step := moving.progress.step):
            say(f"Continues at {spec.step_name} {step} of {header['steps']}.")
        if prints and (note := note_on_batch_norm(training)):
            say(note)
        until_the_end.enter_context(told)
        held = HeldSignals() if ranks.size == 1 else None  # several ranks would not stop at the same step
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
                raise  # a signal handler of this program ended it: the run was interrupted after a checkpoint
            sentence = f"{type(error).__name__}: {' '.join(str(error).split())}"
            written.end(moving, "failed", sentence)
            raise RunFailed(
                f"the run in {folder} failed at {spec.step_name} {moving.progress.step}: {sentence}"
            ) from error
        finally:
            stepper.close()
    return ranks.first(lambda: read_record(folder))


def _look(folder: Path, name: str) -> RunRecord:
    """Read the record in the folder; refuse that of another run, and one that cannot be read."""
    record = read_record(folder)
    if record.identity and record.identity != name:
        raise ValueError(f"{folder} holds another run ({record.identity[:12]}): give another --out")
    if not record.identity and holds_run(folder):
        raise RunFailed(f"{folder} holds a run that cannot be read: {record.problem}")
    return record


@contextmanager
def _reproducible(seed: int, device: torch.device, threads: int) -> Iterator[None]:
    """Seed torch's global generators, which dropout uses; restore them, threads and algorithms afterwards."""
    before, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    devices = [torch.cuda.current_device()] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(stream_seed(seed, "dropout"))
        try:
            torch.set_num_threads(domain.whole("threads", threads))
            if device.type == "cuda":
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS needs this to be deterministic
                torch.use_deterministic_algorithms(True, warn_only=True)
            yield
        finally:
            torch.set_num_threads(before)
            torch.use_deterministic_algorithms(strict, warn_only=warn_only)


# Two settings of glibc, by their numbers in malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Let this process keep the memory that a step on the CPU frees, for the next step.

    By default glibc returns large blocks to the system at once, which clears them page by page when the next step asks
    for them: at batch 512 that took 20 to 40% of a step. The setting cannot be undone, so only svag's own programs use
    it. Without glibc nothing happens.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, 2**30)
        libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
