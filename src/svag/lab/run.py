"""`svag.run`: one run from a spec, from where it was left to its end."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from svag.lab.diverged import Diverged
from svag.lab.folder import RunFolder, make_folder, run_header
from svag.lab.frozen_probe import FrozenReadings
from svag.lab.inputs import check_inputs, load_inputs
from svag.lab.loop import Loop
from svag.lab.state import Progress, Run
from svag.lab.steppers.choose import stepper_for
from svag.lab.streams import stream_seed
from svag.lab.training import Training, pick_device, prepare
from svag.lab.watching import Watcher, watcher
from svag.records.files import DiskError
from svag.records.identity import identity
from svag.records.probe_spec import FrozenProbe
from svag.records.record import METRICS, SPEC, RunRecord, read_record
from svag.records.run_lock import RunLock
from svag.records.spec import RunSpec
from svag.theory import domain


class RunFailed(Exception):  # noqa: N818
    """A run that could not be finished; the message is one sentence."""


def run(
    spec: RunSpec,
    out: str | Path,
    *,
    device: str = "auto",
    data_dir: str | Path | None = None,
    threads: int = 1,
    progress: bool = True,
    save_seconds: float = 60.0,
    watching: Watcher | None = None,
) -> RunRecord:
    """Run a spec in a folder of its own, or continue there, and return what it left.

    A folder in which the same spec has ended is only read: nothing is computed twice. Killed at any moment, the next
    call continues from the last checkpoint and ends bit for bit as if nothing had happened.

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
        spec: what to run.
        out: the run directory; made if it is not there.
        device: "auto", "cpu" or "cuda".
        data_dir: where the files of the data set are, or shall be; $SVAG_DATA or the user's cache when None.
        threads: threads of torch on the CPU. One is fastest for small networks, immune to other work there, and
            gives the same bits whatever the number of cores. A checkpoint goes on with the number it was made with.
        progress: show a bar to a person, lines to a file.
        save_seconds: seconds between two checkpoints.
        watching: who is told where the run is, instead of the bar or the lines.
    """
    folder, place = Path(out), pick_device(device)
    name = identity(spec)
    before = read_record(folder)
    if before.ended and before.identity == name:
        return before
    _refuse_another(folder, before, name)
    data = load_inputs(spec.data, data_dir, place)
    check_inputs(spec, data)
    with _reproducible(spec.seed, place, threads):
        training = prepare(spec, data)
        told = watching or watcher(spec.steps(training.examples), progress=progress)
        return _run(training, folder, name, told, save_seconds)


def _run(training: Training, folder: Path, name: str, told: Watcher, save_seconds: float) -> RunRecord:
    spec, place = training.spec, training.data.device
    frozen = FrozenReadings(training, spec.probe) if isinstance(spec.probe, FrozenProbe) else None
    stepper = stepper_for(training)
    moving = Run(training, stepper, frozen, Progress(torch.zeros((), dtype=torch.float64, device=place)))
    header = run_header(spec, name, training.examples)
    make_folder(folder)
    with RunLock(folder):
        now = read_record(folder)
        _refuse_another(folder, now, name)
        if now.ended:  # by another process, while this one was preparing
            return now
        with RunFolder(folder, name, header) as written, told:
            written.resume(moving)
            try:
                Loop(moving, written, told, save_seconds).go()
                written.end(moving, "finished")
            except Diverged as lost:
                written.end(moving, "diverged", str(lost))
            except DiskError:
                raise
            except Exception as error:
                sentence = f"{type(error).__name__}: {' '.join(str(error).split())}"
                written.end(moving, "failed", sentence)
                raise RunFailed(
                    f"the run in {folder} failed at effective step {moving.progress.step}: {sentence}"
                ) from error
            finally:
                stepper.close()
    return read_record(folder)


def _refuse_another(folder: Path, record: RunRecord, name: str) -> None:
    if record.identity and record.identity != name:
        raise ValueError(f"{folder} holds another run ({record.identity[:12]}): give another --out")
    if not record.identity and ((folder / SPEC).exists() or (folder / METRICS).exists()):
        raise ValueError(f"{folder} holds a run that cannot be read ({record.problem}): give another --out")


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
