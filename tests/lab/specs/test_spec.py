"""A spec means what it says, survives YAML, and refuses nonsense with the path of the field and the reason."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from tests.lab.specs.specs import BASE, any_spec, base

from svag.lab.specs.fields import SpecError
from svag.lab.specs.optimizers import SgdOptimizer
from svag.lab.specs.spec import RunSpec

DESIGN = """
data: {name: fashion-small, subset: 5000, pool: 1, augment: {pad: 1, flip: true}}
model: {arch: preresnet8, norm: group, width: 0.5, scale_invariant: true}
process: {kind: svag, ell: 4, split: 2}
batch_size: 64
lr: 0.2
weight_decay: 1.0e-3
optimizer: {kind: sgd, momentum: 0.0}
schedule: {kind: steps, at: [0.8], factor: 0.1}
budget: 5000
sampling: without_replacement
probe: {kind: in_run, parts: 4}
evaluate: {every: 500}
seed: 0
"""


def test_the_format_of_the_design_is_understood_and_written_back() -> None:
    spec = RunSpec.from_yaml(DESIGN)
    assert spec.steps() == 5000
    assert spec.learning_rate(3999) == 0.2
    assert spec.learning_rate(4000) == pytest.approx(0.02)
    assert RunSpec.from_yaml(spec.to_yaml()) == spec
    assert RunSpec.from_dict(spec.to_dict()) == spec


def test_yaml_numbers_without_a_point_are_numbers() -> None:
    """YAML reads 1e-3 as text; a person means a number."""
    assert RunSpec.from_yaml(DESIGN.replace("1.0e-3", "1e-3")) == RunSpec.from_yaml(DESIGN)
    assert RunSpec.from_yaml(DESIGN.replace("budget: 5000", "budget: 5e3")) == RunSpec.from_yaml(DESIGN)


def test_epochs_are_ordinary_epochs_of_whole_batches() -> None:
    """160 epochs of CIFAR-10 at 128 are the paper's 62,400 effective steps."""
    assert base({"data": {"name": "cifar10"}, "batch_size": 128, "budget": {"epochs": 160}}).steps() == 62_400


def test_epochs_of_an_npz_need_its_size() -> None:
    spec = base({"data": {"name": "npz", "path": "mine.npz"}, "budget": {"epochs": 2}})
    assert spec.steps(examples=160) == 20
    with pytest.raises(SpecError, match=r"^budget\.epochs:"):
        spec.steps()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"lr": -1}, "lr: must be greater than 0, got -1"),
    ({"lr": float("nan")}, "lr: must be a finite number, got nan"),
    ({"lr": True}, "lr: must be a number, got True"),
    ({"batchsize": 1}, "batchsize: there is no such field; did you mean batch_size?"),
    ({"model.nrom": "batch"}, "model.nrom: there is no such field; did you mean norm?"),
    ({"model.norm": "bach"}, "model.norm: must be one of batch, group, layer or none, got 'bach'"),
    ({"model.arch": "resnet9"}, "model.arch: the depth of resnet9 must be 6n+2"),
    ({"model.arch": "alexnet"}, "model.arch: no network is called 'alexnet'"),
    ({"model.width": 0.3}, "model.width: 256 × width must be a whole number of channels, got 0.3"),
    (
        {"model": {"arch": "mlp", "norm": "none", "scale_invariant": True}},
        "model.scale_invariant: needs a normalisation",
    ),
    (
        {"model": {"arch": "mlp", "norm": "layer", "init_scale": 0.5}},
        "model.init_scale: changes the loss of this network",
    ),
    ({"data.name": "mnist"}, "data.name: must be one of fashion-small,"),
    ({"data.name": "npz"}, "data.path: is missing"),
    ({"data.path": "a.npz"}, "data.path: belongs to name: npz"),
    ({"data.subset": 10**5}, "data.subset: fashion-small has 10000 examples, got 100000"),
    ({"data.pool": 4}, "data.pool: must divide the 14 pixels"),
    ({"data.augment": True}, "data.augment: must say how"),
    ({"data.augment.pad": 15}, "data.augment.pad: must be less than the 14 pixels"),
    ({"batch_size": 401}, "batch_size: must not exceed the 400 examples of the data, got 401"),
    ({"batch_size": 0}, "batch_size: must be greater than or equal to 1, got 0"),
    ({"budget": 0}, "budget: must be greater than or equal to 1, got 0"),
    ({"budget": 2.5}, "budget: must be a whole number, got 2.5"),
    ({"budget": "many"}, "budget: must be a whole number, got 'many'"),
    ({"budget": {"epochs": 0.001}}, "budget.epochs: is less than one step"),
    ({"budget": {"epoch": 1}}, "budget.epoch: there is no such field; did you mean epochs?"),
    ({"budget": {}}, "budget.epochs: is missing"),
    ({"budget": {"epochs": 1e308}}, "budget.epochs: must be less than or equal to"),
    ({"schedule": {"kind": "steps", "at": [1, 2], "factor": 1e200}}, "schedule.factor: must be less than or equal to"),
    ({"optimizer.momentum": 1}, "optimizer.momentum: must be less than 1, got 1"),
    ({"optimizer.kind": "lion"}, "optimizer: kind must be one of sgd, adam, adamw, rmsprop, got 'lion'"),
    ({"optimizer.momentun": 0.9}, "optimizer.momentun: there is no such field; did you mean momentum?"),
    ({"optimizer": "sgd"}, "optimizer: must be a mapping of fields, got 'sgd'"),
    ({"weight_decay": 20}, "weight_decay: lr × weight_decay must stay below 2"),
    ({"weight_decay": 15, "schedule": {"kind": "triangle", "peaks": [1, 2]}}, "weight_decay: lr × weight_decay must"),
    ({"weight_decay": 15, "schedule": {"kind": "steps", "at": [5], "factor": 2}}, "weight_decay: lr × weight_decay"),
    ({"schedule": {"kind": "steps", "at": [20]}}, "schedule.at: a decay at 20 comes after the end of 20"),
    ({"schedule": {"kind": "steps", "at": [1.0]}}, "schedule.at: a decay at 1.0 comes after the end"),
    ({"schedule": {"kind": "steps", "at": [10, 0.25]}}, "schedule.at: must increase"),
    ({"schedule": {"kind": "steps", "at": []}}, "schedule.at: must name at least one"),
    ({"schedule": {"kind": "steps", "at": [1.5]}}, "schedule.at.0: a fraction of the budget must lie in [0, 1]"),
    ({"schedule": {"kind": "line"}}, "schedule: kind must be one of constant, steps, cosine, triangle, got 'line'"),
    ({"schedule": {"at": [0.5]}}, "schedule: kind is missing: say which of constant, steps, cosine, triangle"),
    ({"probe": {"parts": 4}}, "probe: kind is missing: say which of none, in_run, frozen"),
    ({"schedule.warmup": 20}, "schedule.warmup: must end before the budget"),
    ({"process": {"kind": "svag", "ell": 0}}, "process.ell: must be greater than or equal to 1, got 0"),
    ({"process": {"kind": "svag"}}, "process.ell: is missing"),
    ({"process": {"kind": "svag", "ell": 4, "split": 3}}, "process.split: must divide batch_size=16, got 3"),
    ({"process": {"kind": "svag", "ell": 1, "split": 4}}, "process.split: must be at most 2·ell = 2, got 4"),
    ({"process": {"kind": "svag", "ell": 4, "split": 2}, "model.norm": "batch"}, "process.split: batch norm sees"),
    ({"process": {"kind": "svag", "ell": 4}, "batch_size": 400}, "batch_size: a batch of all examples has no noise"),
    ({"process": {"kind": "svag", "ell": 2, "split": 4}}, "process.split: no real weights have this covariance"),
    (
        {"process": {"kind": "svag", "ell": 4}, "optimizer.momentum": 0.9},
        "process.momentum_limit: momentum has two limits",
    ),
    ({"process": {"kind": "svag", "ell": 4, "momentum_limit": "overdamped"}}, "process.momentum_limit: is named, but"),
    ({"process.ell": 4}, "process.ell: kind sgd has no such field: name another process.kind with it"),
    ({"process.el": 4}, "process.el: there is no such field; did you mean ell?"),
    ({"schedule.at": [0.5]}, "schedule.at: kind constant has no such field"),
    ({"batch_size": 401, "probe.kind": "in_run"}, "batch_size: must not exceed the 400 examples of the data, got 401"),
    ({"process": {"kind": "glsr", "parts": 16}, "probe.kind": "in_run"}, "probe.kind: batches of one example cannot"),
    ({"process": {"kind": "glsr", "parts": 3}}, "process.parts: must divide batch_size=16, got 3"),
    (
        {"process": {"kind": "glsr", "parts": 4}, "optimizer.momentum": 0.9},
        "optimizer.momentum: glsr is defined without momentum",
    ),
    ({"process": {"kind": "glsr", "parts": 16}, "model.norm": "batch"}, "model.norm: batch norm cannot normalise"),
    ({"process.kind": "ngd", "model.norm": "batch"}, "model.norm: ngd needs a loss for every example"),
    ({"process.kind": "ngd", "data.augment": {"flip": True}}, "data.augment: ngd needs the same data"),
    ({"process.kind": "ngd", "sampling": "shuffle"}, "sampling: ngd has the noise of independent batches"),
    ({"process.kind": "gd", "probe.kind": "in_run"}, "probe.kind: gd computes no batch gradients"),
    (
        {"process": {"kind": "sde", "refine": 4}, "optimizer.momentum": 0.5},
        "optimizer.momentum: sde is defined without momentum",
    ),
    ({"probe": {"kind": "in_run", "parts": 3}}, "probe.parts: must divide the batch of 16 examples, got 3"),
    ({"probe": {"kind": "in_run", "parts": 16}, "model.norm": "batch"}, "probe.parts: batch norm cannot normalise"),
    ({"probe": {"kind": "in_run"}, "batch_size": 400}, "probe.kind: a batch of all examples has no noise"),
    ({"probe": {"kind": "frozen", "readings": 7}}, "probe.readings: the window holds 6 steps, too few for 7"),
    ({"probe": {"kind": "frozen", "window": [0.8, 0.5]}}, "probe.window: must hold at least one step"),
    ({"probe": {"kind": "in_run", "window": [0, 1]}}, "probe.window: ends at step 1: write 1.0 for the end"),
    (
        {"probe": {"kind": "in_run", "window": [0.5, 1]}},
        "probe.window: ends at step 1: write 1.0 for the end",
    ),
    ({"probe": {"kind": "frozen", "readings": 1, "window": [0, 30]}}, "probe.window: ends at 30, after the end"),
    ({"probe": {"kind": "frozen", "batches": 1}}, "probe.batches: must be greater than or equal to 2, got 1"),
    ({"evaluate.every": 0}, "evaluate.every: must be positive"),
    ({"evaluate.every": -1}, "evaluate.every: must not be negative"),
    ({"seed": -1}, "seed: must be greater than or equal to 0, got -1"),
    ({"process": "svag"}, "process: must be"),
]


@pytest.mark.parametrize(("edits", "reason"), REFUSED, ids=[reason.split(",")[0][:50] for _, reason in REFUSED])
def test_nonsense_is_refused_in_one_sentence(edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError) as refused:
        base(edits)
    assert str(refused.value).startswith(reason)
    assert "\n" not in str(refused.value)


def test_a_run_is_called_by_its_optimizer_and_its_process() -> None:
    adamw = base({"optimizer": {"kind": "adamw"}})
    assert (base().method, adamw.method) == ("sgd", "adamw")
    svag = {"process": {"kind": "svag", "ell": 4}}
    assert (base(svag).method, adamw.edited(svag).method) == ("svag ell=4 split=1", "adamw svag ell=4 split=1")


def test_an_optimizer_without_a_kind_is_sgd() -> None:
    fields = base().to_dict()
    for one, momentum in (({}, 0.0), ({"momentum": 0.9}, 0.9)):
        assert RunSpec.from_dict(fields | {"optimizer": one}).optimizer == SgdOptimizer(momentum=momentum)
    assert RunSpec.from_dict(fields | {"optimizer": SgdOptimizer(momentum=0.9)}).optimizer == SgdOptimizer(momentum=0.9)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_momentum_of_an_old_spec_is_that_of_its_optimizer(tmp_path: Path, momentum: float) -> None:
    new = RunSpec.from_yaml(DESIGN.replace("process: {kind: svag, ell: 4, split: 2}\n", ""))
    new = new.edited({"optimizer": {"kind": "sgd", "momentum": momentum}})
    fields = new.to_dict()
    old = {name: value for name, value in fields.items() if name != "optimizer"} | {"momentum": momentum}
    assert RunSpec.from_dict(old) == new
    assert RunSpec.model_validate({**old, "seed": 3}) == new.edited({"seed": 3})
    assert new.edited({"momentum": 0.5}) == new.edited({"optimizer.momentum": 0.5})
    (tmp_path / "old.yaml").write_text(DESIGN.replace("optimizer: {kind: sgd, momentum: 0.0}", "momentum: 0.5"))
    limit = {"process.momentum_limit": "overdamped"}
    assert RunSpec.load(tmp_path / "old.yaml", limit).optimizer == SgdOptimizer(momentum=0.5)
    assert RunSpec.load(tmp_path / "old.yaml", limit | {"optimizer.momentum": 0.25}).optimizer == SgdOptimizer(
        momentum=0.25
    )
    with pytest.raises(SpecError, match=r"^momentum:"):
        RunSpec.from_dict(fields | {"momentum": momentum})
    for also in ({"optimizer.momentum": 0.7}, {"optimizer": {"kind": "sgd"}}, {"optimizer.kind": "sgd"}):
        with pytest.raises(SpecError, match=r"^momentum:"):
            new.edited({"momentum": 0.3} | also)
        with pytest.raises(SpecError, match=r"^momentum:"):
            RunSpec.load(tmp_path / "old.yaml", {"momentum": 0.3} | also)


@pytest.mark.parametrize(("wrong", "right"), [("batchsize", "batch_size"), ("modle", "model"), ("budgets", "budget")])
def test_a_misspelt_required_field_is_guessed(wrong: str, right: str) -> None:
    """The right one is missing as well, which is not what a person would say first."""
    fields = {wrong if name == right else name: value for name, value in BASE.items()}
    with pytest.raises(SpecError, match=f"^{wrong}: there is no such field; did you mean {right}"):
        RunSpec.from_yaml(yaml.safe_dump(fields))


def test_a_missing_field_and_a_second_problem_are_named() -> None:
    with pytest.raises(SpecError, match=r"^data: .*\b3\b"):
        RunSpec.from_dict({"model": {"arch": "mlp"}})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [1", "not YAML"),
        ("- 1", "a spec must be a mapping of fields, got [1]"),
        ("lr: 1\nlr: 2", "lr: is given twice"),
        ("model: {arch: mlp, arch: vgg11}", "arch: is given twice"),
        ("1: 2", "the name of a field must be text, got 1"),
        ("!!python/object/apply:os.getcwd []", "not YAML"),
        ("a: 2001-99-99", "not YAML"),
        ("[" * 1200, "not YAML"),
    ],
)
def test_bad_yaml_is_one_sentence(text: str, reason: str) -> None:
    with pytest.raises(SpecError) as refused:
        RunSpec.from_yaml(text)
    assert str(refused.value).startswith(reason)
    assert "\n" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "bad.yaml").write_text("lr: [")
    for name, reason in (("none.yaml", "No such file"), ("latin.yaml", "not a text file"), ("bad.yaml", "not YAML")):
        with pytest.raises(SpecError, match=f"{name}: .*{reason}"):
            RunSpec.load(tmp_path / name)


def test_edits_reach_every_depth_and_a_new_kind_starts_afresh() -> None:
    spec = base({"schedule": {"kind": "steps", "at": [0.5]}, "data.augment.pad": 1})
    assert spec.data.augment is not None
    edited = spec.edited(
        {"schedule.floor": 0.1, "schedule.kind": "cosine", "model.norm": "group", "data.augment": False}
    )
    assert edited.schedule.model_dump() == {"warmup": 0, "kind": "cosine", "floor": 0.1}
    assert edited.model.norm == "group"
    assert edited.data.augment is None
    assert spec.model.norm == "layer", "the original is untouched"


def test_a_spec_is_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        setattr(base(), "lr", 1.0)  # noqa: B010  # what a type checker would not let through


def refused_or_valid(fields: dict[str, Any]) -> RunSpec | None:
    try:
        return RunSpec.from_dict(fields)
    except SpecError as refused:
        sentence = str(refused)
    assert "\n" not in sentence
    assert len(sentence) < 300
    return None


def check(fields: Any) -> None:
    spec = refused_or_valid(fields) if isinstance(fields, dict) else None
    if spec is not None:
        assert RunSpec.from_yaml(spec.to_yaml()) == spec
        rates = [spec.learning_rate(step) for step in range(min(spec.steps(), 30))]
        assert all(0 <= rate <= spec.lr * spec.schedule.top for rate in rates)


# Deterministic, so that a failure is everybody's; about one in eight is valid.
FUZZ = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@settings(FUZZ, max_examples=500)
@given(any_spec())
def test_random_specs_are_refused_in_one_sentence_or_valid(fields: Any) -> None:
    check(fields)


@pytest.mark.slow
@settings(FUZZ, max_examples=10_000)
@given(any_spec())
def test_many_random_specs_are_refused_in_one_sentence_or_valid(fields: Any) -> None:
    check(fields)


def test_the_optimizer_itself_is_stored_under_its_old_name() -> None:
    spec = base({"process": {"kind": "optimizer"}})
    assert spec == base({"process": {"kind": "sgd"}})
    assert spec.to_dict()["process"] == {"kind": "sgd"}


def test_a_spec_error_is_a_value_error_that_pydantic_has_not_wrapped() -> None:
    with pytest.raises(ValueError, match=r"^process\.ell: ") as refused:
        base({"process": {"kind": "svag", "ell": 0}})
    assert isinstance(refused.value, SpecError)
