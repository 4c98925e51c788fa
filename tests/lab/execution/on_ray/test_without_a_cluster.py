"""What is refused before any cluster is asked, and how a run directory travels."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.training.small import same_bits, small

from svag.lab.execution.conduct import execute
from svag.lab.execution.execution import Execution
from svag.lab.execution.on_ray.cluster import on_a_node
from svag.lab.execution.on_ray.mailbox import Letter, Mailbox, pack, pack_to_continue, unpack
from svag.lab.execution.plan import plan_runs
from svag.lab.specs.fields import SpecError
from svag.lab.training.run import run

ON_RAY = Execution(executor="ray")


def test_a_missing_extra_is_named(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"'\.\[ray\]'"):
        execute(plan_runs([small(npz)], tmp_path), ON_RAY)


def test_bad_input_is_refused_before_a_cluster_is_asked(npz: Path, tmp_path: Path) -> None:
    plan = plan_runs([small(npz)], tmp_path)
    with pytest.raises(
        ValueError, match="ray://there:10001 is for Ray's remote client: start the command on a machine"
    ):
        execute(plan, replace(ON_RAY, address="ray://there:10001", progress=False))
    with pytest.raises(SpecError, match=r"^batch_size: .* 64 .*got 1000"):
        execute(plan_runs([small(npz, {"batch_size": 1000})], tmp_path), replace(ON_RAY, address="nowhere:1"))


def test_a_run_takes_its_share_of_a_node_and_what_no_node_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {"Alive": False, "Resources": {"CPU": 64, "GPU": 8}}
    nodes = [gone, {"Alive": True, "Resources": {"CPU": 2}}, {"Alive": True, "Resources": {}}]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    assert on_a_node(replace(ON_RAY, threads=2)).device == "cpu"
    with pytest.raises(ValueError, match=r"\bthreads 3 .* 2 CPUs"):
        on_a_node(replace(ON_RAY, threads=3))
    with pytest.raises(ValueError, match=r"\bdevice .*cuda\b.*\bGPU\b"):
        on_a_node(replace(ON_RAY, device="cuda"))
    nodes.append({"Alive": True, "Resources": {"CPU": 1, "GPU": 4}})
    assert [on_a_node(replace(ON_RAY, device=one)).device for one in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]
    assert on_a_node(replace(ON_RAY, device="cpu", threads=2)).threads == 2
    with pytest.raises(ValueError, match=" 1 CPUs"):  # the node with GPUs has no more
        on_a_node(replace(ON_RAY, threads=2))


def test_a_plan_that_is_done_needs_no_ray(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_runs([small(npz)], tmp_path)
    run(plan[0].spec, plan[0].folder, device="cpu", progress=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert [record.state for record in execute(plan, ON_RAY)] == ["finished"]


def test_a_run_directory_travels_whole_and_a_run_that_continues_leaves_its_outcome(npz: Path, tmp_path: Path) -> None:
    run(small(npz), tmp_path / "here", device="cpu", progress=False)
    there = tmp_path / "there"
    there.mkdir()
    unpack(pack(tmp_path / "here"), there)
    assert same_bits(tmp_path / "here", there)
    assert (there / "outcome.json").exists()
    assert set(pack_to_continue(tmp_path / "here")) == {"spec.json", "metrics.jsonl", "timings.jsonl", "checkpoint.pt"}
    (tmp_path / "here" / "checkpoint.pt").unlink()
    assert pack_to_continue(tmp_path / "here") == {}


def test_a_parcel_that_arrives_in_part_is_a_state_that_continues(
    npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    run(small(npz), tmp_path / "here", device="cpu", progress=False)
    monkeypatch.setattr(
        "svag.lab.execution.on_ray.mailbox.replace_file", lambda path, content: written.append(path.name)
    )
    unpack(dict(reversed(pack(tmp_path / "here").items())), tmp_path / "there")
    # a checkpoint that counts more bytes than its metrics have, or an outcome before either, would be a broken run
    assert written == ["spec.json", "metrics.jsonl", "timings.jsonl", "checkpoint.pt", "outcome.json"]


def test_the_mailbox_starts_without_torch() -> None:
    code = "import sys, svag.lab.execution.on_ray.mailbox\nassert not {'torch', 'ray'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_letters_are_kept_in_their_order_until_they_are_known_to_be_read() -> None:
    box = Mailbox()
    letters = [Letter("a", 1, {"event": "at", "step": step}) for step in range(3)]
    for letter in letters:
        box.put(letter)
    assert box.unread(0) == letters
    assert box.unread(0) == letters  # whoever asked was interrupted before the answer came
    assert box.unread(2) == letters[2:]
    box.put(letters[0])
    assert box.unread(3) == letters[:1]
    assert box.unread(4) == []


def test_a_node_keeps_freed_memory_before_it_looks_at_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from svag.lab.execution.on_ray.task import run_on_node

    calls: list[str] = []
    monkeypatch.setattr("svag.lab.execution.on_ray.task.keep_freed_memory", lambda: calls.append("keep"))
    with pytest.raises(KeyError, match="path"):  # an empty order
        run_on_node({}, None)
    assert calls == ["keep"]
