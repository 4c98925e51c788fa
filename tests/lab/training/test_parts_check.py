"""An in-run probe on a network with BatchNorm: compared once with whole batches, by the run itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.lab.training.small import small, weights

from svag.lab.data.load import load_data
from svag.lab.training import loop
from svag.lab.training.measuring import check_parts, needs_check
from svag.lab.training.run import run
from svag.lab.training.training import prepare

IN_RUN = {"probe": {"kind": "in_run", "parts": 2, "window": [2, 9]}}
BATCH_NORM = {"model.norm": "batch"}


def comparisons(record: Any) -> list[dict[str, Any]]:
    return [row for row in record.rows if row["kind"] == "comparison"]


def test_it_is_compared_once_before_the_first_measured_step_and_recorded(npz: Path, tmp_path: Path) -> None:
    record = run(small(npz, BATCH_NORM | IN_RUN), tmp_path / "run", progress=False)
    [found] = comparisons(record)
    assert (found["step"], found["whole"]["n"], found["whole"]["batch_size"]) == (2, 20, 8)
    assert found["ratio"] is not None
    assert found["ratio"] != 1
    assert [reading.parts_ratio for reading in record.readings] == [found["ratio"]] * 7
    summaries = [row["noise"] for row in record.evaluations if "noise" in row]
    assert [summary["parts_ratio"] for summary in summaries] == [found["ratio"]] * len(summaries)


def test_it_is_at_the_weights_of_that_moment(npz: Path, tmp_path: Path) -> None:
    spec = small(npz, BATCH_NORM | {"probe": {"kind": "in_run", "parts": 2}})
    record = run(spec, tmp_path / "run", progress=False)
    training = prepare(spec, load_data("npz", path=npz))
    expected = check_parts(training, 2)
    assert expected is not None
    assert comparisons(record) == [{"kind": "comparison", "step": 0, **expected.to_dict()}]
    again = check_parts(training, 2)
    assert again == expected, "asked again at the same weights, the same answer"


def test_it_leaves_no_trace_in_the_run(npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = small(npz, IN_RUN | {"model": {"arch": "tests.lab.training.dropout_net:build"}, "data.augment": {"pad": 1}})
    record = run(spec, tmp_path / "checked", progress=False)
    assert len(comparisons(record)) == 1
    monkeypatch.setattr(loop, "needs_check", lambda training: False)
    plain = run(spec, tmp_path / "plain", progress=False)
    assert comparisons(plain) == []
    one, other = weights(tmp_path / "checked"), weights(tmp_path / "plain")
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert [r.noise_trace for r in record.readings] == [r.noise_trace for r in plain.readings]


@pytest.mark.parametrize(
    ("edits", "needed"),
    [
        (BATCH_NORM | IN_RUN, True),
        (BATCH_NORM | IN_RUN | {"process": {"kind": "glsr", "parts": 2}}, True),
        (BATCH_NORM | IN_RUN | {"process": {"kind": "svag", "ell": 1}}, True),
        (BATCH_NORM | IN_RUN | {"process": {"kind": "svag", "ell": 2}}, False),  # its pairs are whole
        (IN_RUN, False),
        (BATCH_NORM, False),
    ],
)
def test_only_where_batches_are_cut_under_batch_norm(npz: Path, edits: dict[str, Any], needed: bool) -> None:
    assert needs_check(prepare(small(npz, edits), load_data("npz", path=npz))) is needed


def test_the_ladder_compares_its_own_smaller_batches(npz: Path, tmp_path: Path) -> None:
    edits = BATCH_NORM | IN_RUN | {"process": {"kind": "glsr", "parts": 2}}
    [found] = comparisons(run(small(npz, edits), tmp_path / "run", progress=False))
    assert found["whole"]["batch_size"] == 4


def test_a_run_that_has_diverged_is_not_compared(npz: Path) -> None:
    training = prepare(small(npz, BATCH_NORM | IN_RUN), load_data("npz", path=npz))
    with torch.no_grad():
        for parameter in training.model.parameters():
            parameter.fill_(float("nan"))
    assert check_parts(training, 2) is None
