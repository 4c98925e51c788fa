"""What can go wrong with a run directory is one sentence, and the last good checkpoint survives it."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.specs.fuzz import answers_within
from tests.lab.training.small import same_bits, small

import svag
import svag.lab
from svag.lab.records.record import RunFailed
from svag.lab.records.storage import DiskError, FolderInUse, RunLock
from svag.lab.training import loop, state
from svag.lab.training.run import run
from svag.lab.training.run_folder import RunFolder
from svag.lab.training.state import CheckpointError, load_checkpoint, save_checkpoint


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Files may not grow beyond `size` bytes: what a full disk looks like from inside."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_sentence_and_the_run_goes_on_later(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, folder = small(npz), tmp_path / "run"
    save, calls = RunFolder.save, [0]

    def save_on_a_disk_that_fills(self: RunFolder, moving: Any) -> None:
        calls[0] += 1
        if calls[0] == 4:
            with room_for(3000):
                save(self, moving)
        else:
            save(self, moving)

    monkeypatch.setattr(RunFolder, "save", save_on_a_disk_that_fills)
    with pytest.raises(DiskError, match=r"checkpoint\.pt .*\bdisk\b"):
        run(spec, folder, progress=False, save_seconds=0)
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert state["step"] == 3, "the checkpoint before survives"
    assert not list(folder.glob("*.part"))
    assert svag.lab.load_records(folder)[0].state == "interrupted"
    assert run(spec, folder, progress=False).state == "finished"
    run(spec, tmp_path / "straight", progress=False)
    assert same_bits(folder, tmp_path / "straight")


def test_metrics_on_a_full_disk(npz: Path, tmp_path: Path) -> None:
    with room_for(100), pytest.raises(DiskError, match=r"\bdisk\b"):
        run(small(npz), tmp_path / "run", progress=False)
    assert run(small(npz), tmp_path / "run", progress=False).state == "finished"


@pytest.mark.parametrize("place", ["file/run", "file"])
def test_a_folder_that_cannot_be_made_is_one_sentence(npz: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match=r" \(.*\): .*--out"):
        run(small(npz), tmp_path / place, progress=False)


def test_a_second_process_is_refused(npz: Path, tmp_path: Path) -> None:
    """The other process is a real one, and its death frees the folder."""
    folder = tmp_path / "run"
    folder.mkdir()
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom svag.lab.records.storage import RunLock\n"
        "with RunLock(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(FolderInUse):
            run(small(npz), folder, progress=False)
        other.kill()
    assert run(small(npz), folder, progress=False).state == "finished"


def test_a_run_that_another_process_has_just_ended_is_only_read(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter = RunLock.__enter__

    def too_late(self: RunLock) -> RunLock:
        monkeypatch.setattr(RunLock, "__enter__", enter)
        run(small(npz), tmp_path / "run", progress=False)
        return enter(self)

    monkeypatch.setattr(RunLock, "__enter__", too_late)
    assert run(small(npz), tmp_path / "run", progress=False).state == "finished"
    assert len((tmp_path / "run" / "timings.jsonl").read_text().splitlines()) == 4


def test_a_file_of_a_terabyte_is_refused_before_it_takes_memory(npz: Path, tmp_path: Path) -> None:
    for name, refusal in (("timings.jsonl", DiskError), ("checkpoint.pt", CheckpointError)):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
        os.truncate(tmp_path / name / name, 2**40)  # on the paper only: the disk holds none of it
        with answers_within(60), pytest.raises(refusal, match=rf"{name} .*\bremove\b"):
            run(small(npz), tmp_path / name, progress=False)


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04half a zip"], ids=["empty", "text", "cut"])
def test_a_checkpoint_that_cannot_be_read_names_the_way_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt .*\bdamaged\b.*\bremove\b"):
        load_checkpoint(tmp_path / "checkpoint.pt", "me", torch.device("cpu"))


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    """A pickle that would write a file when it is loaded is refused and writes nothing."""

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.write_text, (tmp_path / "owned", "")

    save_checkpoint(tmp_path / "checkpoint.pt", {"identity": Evil()})  # with a digest that is right
    with pytest.raises(CheckpointError, match=r"\bread\b"):
        load_checkpoint(tmp_path / "checkpoint.pt", "me", torch.device("cpu"))
    assert not (tmp_path / "owned").exists()


def test_a_checkpoint_of_another_run_or_device_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    assert load_checkpoint(path, "me", torch.device("cpu")) is None
    save_checkpoint(path, {"identity": "you", "device": "cpu"})
    with pytest.raises(CheckpointError, match=r"\bversion\b"):
        load_checkpoint(path, "me", torch.device("cpu"))
    save_checkpoint(path, {"identity": "me", "device": "cuda"})
    with pytest.raises(CheckpointError, match=r"cuda.*--device"):
        load_checkpoint(path, "me", torch.device("cpu"))
    assert state.FORMAT == 4


def test_a_folder_with_something_broken_in_it_is_left_alone(npz: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "spec.json").write_text("{")
    with pytest.raises(RunFailed, match=r"\bread\b"):
        run(small(npz), folder, progress=False)
    assert (folder / "spec.json").read_text() == "{"


def test_the_number_of_threads_of_the_checkpoint_is_used_and_put_back(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, used = small(npz), list[int]()
    take = loop.Loop._take_step

    def stop(self: loop.Loop) -> None:
        used.append(torch.get_num_threads())
        if len(used) == 5:
            raise KeyboardInterrupt
        take(self)

    monkeypatch.setattr(loop.Loop, "_take_step", stop)
    with pytest.raises(KeyboardInterrupt):
        run(spec, tmp_path / "run", progress=False, save_seconds=0)
    torch.set_num_threads(2)
    try:
        assert run(spec, tmp_path / "run", progress=False).state == "finished"
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert set(used) == {1}


def test_threads_are_an_argument(npz: Path, tmp_path: Path) -> None:
    assert run(small(npz), tmp_path / "run", progress=False, threads=2).outcome["hardware"]["threads"] == 2
    assert torch.get_num_threads() == 1
    with pytest.raises(ValueError, match=r"^threads\b.*got 0"):
        run(small(npz), tmp_path / "none", progress=False, threads=0)
