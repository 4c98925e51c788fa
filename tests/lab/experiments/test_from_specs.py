"""A folder of runs that nobody asked an experiment of, read as one: what its slots give back, and nothing else."""

from pathlib import Path
from typing import Any

import pytest
from tests.lab.experiments.on_disk import at, write_run

from svag.lab.experiments import EXPERIMENT, experiment_from, save_experiment
from svag.lab.experiments.compare import Compare
from svag.lab.experiments.finding import Finding, PanelFinding
from svag.lab.experiments.from_runs import experiment_of_runs, from_specs
from svag.lab.experiments.ladder import Ladder, LadderPanel
from svag.lab.experiments.ngd import Ngd
from svag.lab.records.record import RunRecord, load_records
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec


def on_disk(root: Path, *specs: RunSpec) -> list[RunRecord]:
    for spec in specs:
        write_run(root, spec, 0.8)
    return load_records(root)


def run(size: int, kind: str = "sgd", seed: int = 0, **settings: Any) -> RunSpec:
    return at(size, seed=seed, process={"kind": kind, **settings})


def test_a_ladder(tmp_path: Path) -> None:
    records = on_disk(tmp_path, run(64), run(16), run(128), run(16, seed=3))
    found = experiment_of_runs(tmp_path, "ladder")
    assert isinstance(found, Ladder)
    [panel] = found.panels
    assert (panel.batch_sizes, panel.base.batch_size, found.seeds) == ((16, 64, 128), 16, (0, 3))
    assert found.title == f"Runs in {tmp_path.name}"
    assert experiment_from(found.model_dump(mode="json")) == found
    finding = found.find(records)
    assert len(finding.missing) == 2  # seed 3 was run at one batch size only
    assert finding.strangers == ()


@pytest.mark.parametrize("batch_sizes", [(32, 48, 96), (10, 48, 70, 96)])
def test_a_ladder_is_found_again_whatever_its_base_was(batch_sizes: tuple[int, ...]) -> None:
    """Rates that are scaled in another order may differ in the last digit: the base that reproduces all is taken."""
    base = at(48, lr=0.3, budget=1001, schedule={"kind": "constant"})
    panel = LadderPanel(name="p", base=base, batch_sizes=batch_sizes)
    specs = Ladder(title="t", seeds=(0, 1), panels=(panel,)).runs()
    [found] = from_specs(Ladder, specs, "t").panels
    assert found.batch_sizes == batch_sizes


def test_a_ladder_with_the_sde_limit() -> None:
    specs = [run(size) for size in (16, 32, 64)] + [run(size, "svag", ell=4, split=2) for size in (16, 32, 64)]
    found = from_specs(Ladder, specs, "t")
    assert (found.panels[0].ells, found.panels[0].split) == ((4,), 2)
    assert set(found.runs()) == set(specs)


@pytest.mark.parametrize(("family", "sizes"), [(Compare, (32,)), (Ladder, (16, 32, 64))])
def test_the_momentum_limit_of_the_svag_runs(family: type[Compare] | type[Ladder], sizes: tuple[int, ...]) -> None:
    svag4 = {"kind": "svag", "ell": 4, "momentum_limit": "overdamped"}
    specs = [at(size, momentum=0.9, process=process) for size in sizes for process in ({"kind": "sgd"}, svag4)]
    found = from_specs(family, specs, "t")
    assert found.panels[0].momentum_limit == "overdamped"
    assert set(found.runs()) == set(specs)


def test_two_batch_sizes_with_svag_are_two_panels(tmp_path: Path) -> None:
    specs = [run(size) for size in (16, 512)] + [run(size, "svag", ell=ell) for size in (16, 512) for ell in (4, 16)]
    records = on_disk(tmp_path, *specs, run(16, "glsr", parts=4), run(512, "ngd"))
    found = experiment_of_runs(tmp_path, "compare")
    assert isinstance(found, Compare)
    small, large = found.panels
    assert (small.ells, small.glsr, small.ngd) == ((1, 4, 16), (4,), False)
    assert (large.glsr, large.ngd) == ((), True)
    assert (small.name, large.base.lr) == ("preresnet8 group on fashion-small, B=16", 1.6)
    finding = found.find(records)
    assert not finding.missing
    assert not finding.strangers


def test_noisy_gradient_descent() -> None:
    specs = [run(32), run(32, "ngd"), run(32, "gd")]
    assert from_specs(Ngd, specs, "t").runs() == specs


def test_settings_that_differ_are_panels_with_names_and_seeds_of_their_own() -> None:
    processes = ({"kind": "sgd"}, {"kind": "svag", "ell": 4})
    specs = [at(32, process=process, seed=seed) for process in processes for seed in (0, 1)]
    specs += [at(32, process=process, weight_decay=2e-3) for process in processes]
    found = from_specs(Compare, specs, "t")
    assert [panel.name[-8:] for panel in found.panels] == ["B=32 (1)", "B=32 (2)"]
    assert (found.seeds, [panel.seeds for panel in found.panels]) == ((0, 1), [(), (0,)])
    assert set(found.runs()) == set(specs)


def test_what_was_measured_and_svag_that_is_sgd_make_no_difference(tmp_path: Path) -> None:
    specs = [
        at(32, probe={"kind": "in_run"}),
        at(64, process={"kind": "svag", "ell": 1}, evaluate={"every": 0.5}),
        at(128, seed=0),
    ]
    finding = finding_in(tmp_path, "ladder", *specs)
    assert (finding.missing, finding.strangers) == ((), ())


def test_runs_that_do_not_fit_are_strangers(tmp_path: Path) -> None:
    other = [run(32, "svag", ell=4, split=2), at(64, lr=0.1), at(32, weight_decay=0.01)]
    mine = [run(32), run(32, "svag", ell=4), run(32, "svag", ell=8)]
    finding = finding_in(tmp_path, "compare", *mine, *other)
    assert (len(finding.strangers), finding.missing) == (3, ())


def finding_in(root: Path, kind: str, *specs: RunSpec) -> Finding[PanelFinding]:
    records = on_disk(root, *specs)
    return experiment_of_runs(root, kind).find(records)


@pytest.mark.parametrize(
    ("kind", "specs", "sentence"),
    [
        ("ladder", [run(32), run(32, seed=1)], "ladder .*SGD"),
        ("ladder", [run(32), at(64, lr=0.1)], "ladder .*SGD"),
        (
            "compare",
            [run(32), run(64)],
            "compare .*SVAG",
        ),
        ("compare", [run(32, "svag", ell=4)], "compare .*SVAG"),
        ("ngd", [run(32), run(32, "svag", ell=4)], "ngd .*NGD or GD"),
        ("ladder", [], "/test_what_is_no_experiment"),
        ("scaling", [run(32)], "^kind: .*got 'scaling'"),
    ],
)
def test_what_is_no_experiment_is_refused_in_a_sentence(
    tmp_path: Path, kind: str, specs: list[RunSpec], sentence: str
) -> None:
    on_disk(tmp_path, *specs)
    with pytest.raises(SpecError, match=sentence):
        experiment_of_runs(tmp_path, kind)


def test_what_was_asked_is_not_asked_again(tmp_path: Path) -> None:
    on_disk(tmp_path, run(16), run(32))
    save_experiment(experiment_of_runs(tmp_path, "ladder"), tmp_path)
    with pytest.raises(SpecError, match=rf"{EXPERIMENT}: .*--as"):
        experiment_of_runs(tmp_path, "ladder")
