"""Finished runs in the real trackers: what is read back from each of them is what the records say."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.cli.answers import invoke

from svag.lab.records.record import RunRecord, load_records
from svag.lab.report.tracking import replay
from svag.paper.cli.app import app

pytestmark = pytest.mark.filterwarnings("default")  # the warnings are of the packages

SPEC = """
data: {name: fashion-small, subset: 200}
model: {arch: mlp, width: 0.125, norm: none}
batch_size: 8
lr: 0.05
budget: 60
probe: {kind: in_run, parts: 4, window: [0.0, 1.0]}
evaluate: {every: 0.25}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("tracked")
    (found / "base.yaml").write_text(SPEC)
    for seed in ("0", "1"):
        done = invoke(app, ["run", str(found / "base.yaml"), "--seed", seed, "--out", str(found / "out" / seed)])
        assert done.exit_code == 0, done.output
    return found / "out"


def records(folder: Path) -> list[RunRecord]:
    return [record for record in load_records(folder) if record.ended]


def tensorboard_curve(folder: Path, name: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import TENSORS, EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    events = EventAccumulator(str(folder), size_guidance={TENSORS: 0})
    events.Reload()
    return [(event.step, float(make_ndarray(event.tensor_proto))) for event in events.Tensors(name)]


def test_tensorboard_has_the_curves_once_however_often_they_are_sent(folder: Path) -> None:
    for _ in range(2):
        assert replay(folder, "tensorboard") == 2
    for record in records(folder):
        found = tensorboard_curve(folder / "tensorboard" / record.path.name, "evaluation/test_accuracy")
        expected = record.curve("test_accuracy")
        assert [step for step, _ in found] == [step for step, _ in expected]
        assert [value for _, value in found] == pytest.approx([value for _, value in expected])


def test_tensorboard_follows_a_run_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(SPEC)
    out = tmp_path / "out"
    done = invoke(app, ["run", str(tmp_path / "base.yaml"), "--out", str(out), "--track", "tensorboard"])
    assert done.exit_code == 0, done.output
    [record] = load_records(out)
    losses = tensorboard_curve(out / "tensorboard" / "out", "train/loss")
    assert [step for step, _ in losses] == [step for step, _ in record.losses]


def offline_messages(content: bytes) -> Iterator[bytes]:
    """The messages of an offline run: a LevelDB log, blocks of 32 kB with pieces (crc, length, kind, bytes)."""
    place, message = 7, b""  # after the header of the file
    while place + 7 <= len(content):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        message += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in {1, 4}:  # a whole message, or the last piece of one
            yield message
            message = b""


def test_wandb_offline_has_the_curves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_X_SERVICE_WAIT", "300")  # seconds for its own process to start, also on a busy machine
    assert replay(folder, "wandb") == 2
    curves = {}
    for file in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        name, curve = "", []
        for data in offline_messages(file.read_bytes()):
            message = wandb_internal_pb2.Record()
            message.ParseFromString(data)
            if message.WhichOneof("record_type") == "run":
                name = message.run.run_id
            items = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in message.history.item
            }
            if "evaluation/test_accuracy" in items:
                curve.append((int(items["_step"]), items["evaluation/test_accuracy"]))
        curves[name] = curve
    assert curves == {record.identity[:32]: record.curve("test_accuracy") for record in records(folder)}


def test_mlflow_has_the_curves_and_the_settings_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
    for _ in range(2):
        assert replay(folder, "mlflow") == 2
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name(f"svag/{folder.name}")
    runs = {run.data.tags["svag.identity"]: run for run in client.search_runs([experiment.experiment_id])}
    assert set(runs) == {record.identity for record in records(folder)}
    for record in records(folder):
        run = runs[record.identity]
        history = client.get_metric_history(run.info.run_id, "evaluation/test_accuracy")
        assert [(one.step, one.value) for one in history] == record.curve("test_accuracy")
        assert run.data.params["batch_size"] == "8"
        assert run.info.status == "FINISHED"
