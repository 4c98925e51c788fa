from pathlib import Path
from typing import Any

import pytest
from tests.findings.experiments.on_disk import at, write_run

from svag.experiments.base import Compare, Ladder, Ngd, experiment_from
from svag.experiments.families import find
from svag.experiments.infer import experiment_of
from svag.records.fields import SpecError
from svag.records.record import RunRecord, load_records
from svag.records.spec import RunSpec


def on_disk(root: Path, *specs: RunSpec) -> list[RunRecord]:
    for spec in specs:
        write_run(root, spec, 0.8)
    return load_records(root)


def run(size: int, kind: str = "sgd", seed: int = 0, **settings: Any) -> RunSpec:
    return at(size, seed=seed, process={"kind": kind, **settings})


def test_a_ladder(tmp_path: Path) -> None:
    records = on_disk(tmp_path, run(64), run(16), run(128), run(16, seed=3))
    found = experiment_of(records)
    assert isinstance(found, Ladder)
    [panel] = found.panels
    assert (panel.batch_sizes, panel.base.batch_size, found.seeds) == ((16, 64, 128), 16, (0, 3))
    assert experiment_from(found.model_dump(mode="json")) == found
    finding = find(found, records)
    assert len(finding.missing) == 2  # seed 3 was run at one batch size only
    assert finding.strangers == ()


def test_a_ladder_with_the_sde_limit(tmp_path: Path) -> None:
    specs = [run(size, *kind) for size in (16, 32, 64) for kind in (("sgd",),)]
    specs += [run(size, "svag", ell=4, split=2) for size in (16, 32, 64)]
    found = experiment_of(on_disk(tmp_path, *specs))
    assert isinstance(found, Ladder)
    assert (found.panels[0].ells, found.panels[0].split) == ((4,), 2)


@pytest.mark.parametrize("sizes", [(32,), (16, 32, 64)])
def test_the_momentum_limit_of_the_svag_runs(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    svag4 = {"kind": "svag", "ell": 4, "momentum_limit": "overdamped"}
    specs = [at(size, momentum=0.9, process=process) for size in sizes for process in ({"kind": "sgd"}, svag4)]
    records = on_disk(tmp_path, *specs)
    found = experiment_of(records)
    assert isinstance(found, Compare | Ladder)
    assert found.panels[0].momentum_limit == "overdamped"
    finding = find(found, records)
    assert (finding.missing, finding.strangers) == ((), ())


def test_two_batch_sizes_with_svag_are_two_panels(tmp_path: Path) -> None:
    specs = [run(size) for size in (16, 512)] + [run(size, "svag", ell=ell) for size in (16, 512) for ell in (4, 16)]
    records = on_disk(tmp_path, *specs, run(16, "glsr", parts=4), run(512, "ngd"))
    found = experiment_of(records)
    assert isinstance(found, Compare)
    small, large = found.panels
    assert (small.ells, small.glsr, small.ngd) == ((1, 4, 16), (4,), False)
    assert (large.glsr, large.ngd) == ((), True)
    assert (small.name, large.base.lr) == ("preresnet8 group on fashion-small, B=16", 1.6)
    finding = find(found, records)
    assert not finding.missing
    assert not finding.strangers


def test_noisy_gradient_descent(tmp_path: Path) -> None:
    found = experiment_of(on_disk(tmp_path, run(32), run(32, "ngd"), run(32, "gd")))
    assert isinstance(found, Ngd)


def test_settings_that_differ_are_panels_of_their_own(tmp_path: Path) -> None:
    specs = [at(32, process=process, weight_decay=decay) for decay in (1e-3, 2e-3) for process in (
        {"kind": "sgd"}, {"kind": "svag", "ell": 4})]  # fmt: skip
    found = experiment_of(on_disk(tmp_path, *specs))
    assert sorted(panel.name[-8:] for panel in found.panels) == ["1), B=32", "2), B=32"]


@pytest.mark.parametrize(
    ("specs", "sentence"),
    [
        ([run(32), run(32, "svag", ell=4), run(32, "svag", ell=4, split=2)], "split = 1, 2"),
        (
            [
                at(32, momentum=0.9, process={"kind": "svag", "ell": 4, "momentum_limit": limit})
                for limit in ("underdamped", "overdamped")
            ],
            "momentum_limit = overdamped, underdamped",
        ),
        ([run(32), run(32, seed=1)], "read a baseline with svag predict"),
        ([run(32), at(64, lr=0.1)], "read a baseline with svag predict"),
        ([run(32), run(32, "gd"), at(64, weight_decay=0.01), at(128, weight_decay=0.01)], r"\(ladder, ngd\)"),
        ([], "no runs here that can be read"),
    ],
)
def test_what_is_no_experiment_is_refused_in_a_sentence(tmp_path: Path, specs: list[RunSpec], sentence: str) -> None:
    with pytest.raises(SpecError, match=sentence):
        experiment_of(on_disk(tmp_path, *specs))
