"""SGD, NGD and GD from one base: exactly these specs."""

import pytest
from tests.lab.experiments.bases import base

from svag.lab.experiments.ngd import Ngd, NgdPanel
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec


def ngd(spec: RunSpec, seeds: tuple[int, ...] = (0,)) -> Ngd:
    return Ngd(title="t", panels=(NgdPanel(name="left", base=spec),), seeds=seeds)


def test_three_processes_with_every_seed() -> None:
    spec = base()
    kinds = ("sgd", "ngd", "gd")
    wanted = [spec.edited({"process": {"kind": kind}, "seed": seed}) for kind in kinds for seed in (0, 1)]
    assert ngd(spec, (0, 1)).runs() == wanted


def test_a_base_and_flags_make_the_same_experiment() -> None:
    found = Ngd.of(base(), 2, margin=0.5, name="left")
    assert found == ngd(base(), (0, 1)).model_copy(update={"title": "SGD, NGD and GD", "margin": 0.5})


def test_passes_over_all_data_have_no_batches_for_an_in_run_probe() -> None:
    assert [spec.probe.kind for spec in ngd(base(probe={"kind": "in_run"})).runs()] == ["in_run", "none", "none"]
    assert [spec.probe.kind for spec in ngd(base(probe={"kind": "frozen"})).runs()] == ["frozen"] * 3


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        (base(model__norm="batch"), "model.norm"),
        (base(data__augment={"pad": 1}), "data.augment"),
        (base(sampling="shuffle"), "sampling"),
        (base(process={"kind": "ngd"}), "process.kind"),
    ],
)
def test_what_noise_of_matching_covariance_cannot_do_is_refused(spec: RunSpec, path: str) -> None:
    with pytest.raises(SpecError) as refused:
        ngd(spec).runs()
    assert refused.value.path == path
