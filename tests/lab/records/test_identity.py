"""The identity of a run changes with everything that changes its numbers, and with nothing else."""

from pathlib import Path

import numpy as np
import pytest
from tests.lab.specs.specs import base

from svag.lab.records import identity as module
from svag.lab.records.identity import identity, own_source
from svag.lab.specs.fields import SpecError
from svag.lab.specs.optimizers import SgdOptimizer
from svag.lab.specs.parts import DataSpec
from svag.lab.specs.spec import RunSpec


def test_every_field_counts_and_writing_does_not() -> None:
    spec = base()
    assert identity(RunSpec.from_yaml(spec.to_yaml())) == identity(spec)
    others = [
        base({"lr": 0.2}),
        base({"seed": 1}),
        base({"budget": 21}),
        base({"evaluate.every": 3}),
        base({"sampling": "shuffle"}),
        base({"optimizer.momentum": 0.9}),
        base({"process": {"kind": "svag", "ell": 2}}),
        base({"schedule": {"kind": "steps", "at": [10]}}),
        base({"schedule": {"kind": "steps", "at": [0.5]}}),
    ]
    assert len({identity(other) for other in [spec, *others]}) == 1 + len(others)


def test_the_numerics_version_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(base())
    monkeypatch.setattr(module, "NUMERICS_VERSION", module.NUMERICS_VERSION + 1)
    assert identity(base()) != before


def test_a_new_setting_of_an_optimizer_leaves_old_identities_alone() -> None:
    class Nesterov(SgdOptimizer):
        nesterov: bool = False

    old, spec = base({"optimizer.momentum": 0.9}), base()
    with_setting = [
        one.model_copy(update={"optimizer": Nesterov(momentum=beta)}) for one, beta in ((old, 0.9), (spec, 0))
    ]
    assert [identity(one) for one in with_setting] == [identity(old), identity(spec)]
    other = old.model_copy(update={"optimizer": Nesterov(momentum=0.9, nesterov=True)})
    assert identity(other) != identity(old)


def test_a_new_field_leaves_old_identities_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cropped(DataSpec):
        crop: int = 0

    class Sorted(RunSpec):
        data: Cropped
        sort: bool = False

    old = base()
    same, crops, sorts = (
        Sorted.from_dict(old.to_dict() | new)
        for new in ({}, {"data": old.data.model_dump() | {"crop": 2}}, {"sort": True})
    )
    assert identity(same) != identity(old), "the negative control: it is not listed yet"
    monkeypatch.setattr(module, "ADDED", (*module.ADDED, "sort", "data.crop", "process.of_another_kind"))
    assert identity(same) == identity(old)
    assert len({identity(one) for one in (old, crops, sorts)}) == 3


def test_the_scale_of_the_first_weights_counts_and_one_is_none() -> None:
    spec = base({"model.norm": "layer", "model.scale_invariant": True})
    fields = spec.to_dict()
    del fields["model"]["init_scale"]
    assert identity(spec.edited({"model.init_scale": 0.5})) != identity(spec)
    assert identity(spec.edited({"model.init_scale": 1.0})) == identity(RunSpec.from_dict(fields)) == identity(spec)


def test_a_compiled_run_is_another_run() -> None:
    assert identity(base().edited({"compile": True})) != identity(base())
    assert identity(base().edited({"compile": False})) == identity(base())


def test_identities_stay_what_they_are() -> None:
    spec = RunSpec.from_yaml("{data: {name: svhn}, model: {arch: mlp}, batch_size: 8, lr: 1, budget: 9}")
    assert module.NUMERICS_VERSION == 2
    assert identity(spec)[:12] == "75701702f89d", "list a new field in ADDED"


def test_the_contents_of_an_npz_count_and_its_place_does_not(tmp_path: Path) -> None:
    one, same, other = (tmp_path / name for name in ("one.npz", "same.npz", "other.npz"))
    np.savez(one, train_x=np.zeros(3))
    same.write_bytes(one.read_bytes())
    np.savez(other, train_x=np.ones(3))
    found = [identity(base({"data": {"name": "npz", "path": str(path)}})) for path in (one, same, other)]
    assert found[0] == found[1] != found[2]
    with pytest.raises(SpecError, match=r"^data\.path: .*none\.npz"):
        identity(base({"data": {"name": "npz", "path": str(tmp_path / "none.npz")}}))


def test_the_source_of_a_users_network_counts_and_that_of_its_own_modules(tmp_path: Path) -> None:
    package = tmp_path / "lab_nets"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "blocks.py").write_text("WIDTH = 3\n")
    (package / "unused.py").write_text("raise RuntimeError('never run, never read')\n")
    (package / "nets.py").write_text("import torch\nfrom lab_nets import blocks\nfrom .blocks import WIDTH\n")
    (tmp_path / "alone.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("x = 1\n")
    before = own_source("lab_nets.nets", tmp_path), own_source("alone", tmp_path)
    (package / "unused.py").write_text("")
    assert own_source("lab_nets.nets", tmp_path) == before[0]
    (package / "blocks.py").write_text("WIDTH = 4\n")
    assert own_source("lab_nets.nets", tmp_path) != before[0]
    (tmp_path / "helper.py").write_text("x = 2\n")
    assert own_source("alone", tmp_path) != before[1]
    (package / "nets.py").write_text("def build(:\n")
    with pytest.raises(SpecError, match=r"^model\.arch: .*nets\.py"):
        own_source("lab_nets.nets", tmp_path)
    with pytest.raises(SpecError, match=r"^model\.arch:.*lab_nets\.other"):
        own_source("lab_nets.other", tmp_path)


def test_a_network_of_the_users_is_found_and_hashed(tmp_path: Path) -> None:
    (tmp_path / "my_net.py").write_text("def build():\n    return 1\n")
    spec = base({"model": {"arch": "my_net:build"}})
    before = identity(spec, tmp_path)
    (tmp_path / "my_net.py").write_text("def build():\n    return 2\n")
    assert identity(spec, tmp_path) != before


def test_folders_without_init_are_packages_too(tmp_path: Path) -> None:
    (tmp_path / "outer_folder" / "inner_folder").mkdir(parents=True)
    (tmp_path / "outer_folder" / "inner_folder" / "nets.py").write_text("def build():\n    return 1\n")
    before = own_source("outer_folder.inner_folder.nets", tmp_path)
    (tmp_path / "outer_folder" / "inner_folder" / "nets.py").write_text("def build():\n    return 2\n")
    assert own_source("outer_folder.inner_folder.nets", tmp_path) != before
