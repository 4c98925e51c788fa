"""SGD, SVAG, the coupled ladder and NGD from one base: exactly these specs."""

from typing import Any

import pytest
from tests.lab.experiments.bases import base

from svag.lab.experiments.compare import Compare, ComparePanel
from svag.lab.experiments.from_runs import from_specs
from svag.lab.experiments.ngd import Ngd
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec


def compare(*panels: ComparePanel, seeds: tuple[int, ...] = (0,)) -> Compare:
    return Compare(title="t", panels=panels, seeds=seeds)


def panel(spec: RunSpec, ells: tuple[int, ...] = (1, 4), **fields: Any) -> ComparePanel:
    return ComparePanel(name="left", base=spec, ells=ells, **fields)


def test_every_arm_is_the_base_with_another_process_and_seed() -> None:
    spec = base()
    found = compare(panel(spec, (1, 4, 8), split=2, glsr=(1, 2, 4), ngd=True), seeds=(0, 7)).runs()
    processes: list[dict[str, Any]] = [
        {"kind": "sgd"},
        {"kind": "svag", "ell": 4, "split": 2},
        {"kind": "svag", "ell": 8, "split": 2},
        {"kind": "glsr", "parts": 2},
        {"kind": "glsr", "parts": 4},
        {"kind": "ngd"},
    ]
    assert found == [spec.edited({"process": one, "seed": seed}) for one in processes for seed in (0, 7)]


def test_sgd_is_run_whether_or_not_ell_1_is_named_and_nothing_twice() -> None:
    assert compare(panel(base(), (4,))).runs() == compare(panel(base(), (1, 4, 4, 1))).runs()
    twice = compare(panel(base()), panel(base(), (1, 2)), seeds=(0, 0))
    assert [spec.process.model_dump() for spec in twice.runs()] == [
        {"kind": "sgd"},
        {"kind": "svag", "ell": 4, "split": 1, "momentum_limit": None},
        {"kind": "svag", "ell": 2, "split": 1, "momentum_limit": None},
    ]


def test_only_an_arm_that_an_in_run_probe_cannot_measure_goes_without() -> None:
    spec = base(batch_size=20, probe={"kind": "in_run", "parts": 2})
    found = compare(panel(spec, glsr=(2, 4), ngd=True)).runs()
    kinds = ["sgd", "svag", "glsr", "glsr", "ngd"]
    assert [one.process.kind for one in found] == kinds
    assert [one.probe.kind for one in found] == ["in_run", "in_run", "in_run", "none", "none"]  # 20/4 is odd
    frozen = base(batch_size=20, probe={"kind": "frozen"})
    assert {one.probe for one in compare(panel(frozen, glsr=(2, 4), ngd=True)).runs()} == {frozen.probe}
    with pytest.raises(SpecError, match=r"^process\.parts:") as refused:
        compare(panel(spec, glsr=(3,))).runs()
    assert refused.value.path == "process.parts"


def test_a_base_and_flags_make_the_same_experiment_as_its_parts() -> None:
    of = Compare.of(base(), (1, 4), 2, split=2, glsr=(4,), ngd=True, margin=0.5, name="left")
    assert of == Compare(
        title="SGD and SVAG", panels=(panel(base(), split=2, glsr=(4,), ngd=True),), seeds=(0, 1), margin=0.5
    )
    assert Compare.of(base(), (1, 4), (3, 5)).panels[0].name == "preresnet8 group on fashion-small"


def test_a_text_is_judged_by_its_bits_per_character() -> None:
    text = RunSpec.from_dict(
        {
            "data": {"name": "moby-dick"},
            "model": {"arch": "transformer"},
            "optimizer": {"kind": "adamw"},
            "batch_size": 8,
            "lr": 0.001,
            "budget": 10,
        }
    )
    found = Compare.of(text, ells=[1, 4], seeds=1)
    assert (found.metric, Compare.of(base(), ells=[1, 4], seeds=1).metric) == (
        "test_bits_per_character",
        "test_accuracy",
    )
    assert from_specs(Compare, found.runs(), "t").metric == "test_bits_per_character"
    assert Compare.of(text, ells=[1, 4], seeds=1, metric="test_loss").metric == "test_loss"
    only_sgd: list[dict[str, Any]] = [{"ngd": True}, {"glsr": [2]}, {"split": 2}, {"momentum_limit": "overdamped"}]
    for fields in only_sgd:
        with pytest.raises(SpecError, match="SGD"):
            Compare.of(text, ells=[1, 4], seeds=1, **fields).runs()
    with pytest.raises(SpecError, match=r"^process\.kind:"):
        Ngd.of(text, seeds=1).runs()


def test_nonsense_is_refused_in_one_sentence_with_the_path_of_the_field() -> None:
    with pytest.raises(SpecError, match=r"^compare\.margin:.*got -1"):
        Compare.of(base(), (1, 4), 2, margin=-1)
    with pytest.raises(SpecError, match=r"^compare\.seeds: "):
        Compare.of(base(), (1, 4), 0)
    with pytest.raises(SpecError, match=r"^compare\.panels\.0\.ells\.1:.*got 0"):
        Compare.of(base(), (1, 0), 1)


def test_momentum_has_a_limit() -> None:
    spec = base(momentum=0.9)
    *_, svag = compare(panel(spec, momentum_limit="overdamped")).runs()
    assert svag.process.model_dump()["momentum_limit"] == "overdamped"
    with pytest.raises(SpecError, match=r"^process\.momentum_limit:") as refused:
        compare(panel(spec)).runs()
    assert refused.value.path == "process.momentum_limit"


@pytest.mark.parametrize(
    ("one", "path"),
    [
        (panel(base(model__norm="batch"), split=2), "process.split"),
        (panel(base(), split=3), "process.split"),
        (panel(base(), (1, 2), split=8), "process.split"),
        (panel(base(), glsr=(3,)), "process.parts"),
        (panel(base(model__norm="batch"), ngd=True), "model.norm"),
        (panel(base(data__augment={"flip": True}), ngd=True), "data.augment"),
        (panel(base(process={"kind": "svag", "ell": 2})), "process.kind"),
        (panel(base(), (1,)), "ell"),
        (panel(base(), ()), "ell"),
    ],
)
def test_what_is_not_covered_is_refused_with_the_path_of_the_field(one: ComparePanel, path: str) -> None:
    with pytest.raises(SpecError) as refused:
        compare(one).runs()
    assert refused.value.path == path
    with pytest.raises(SpecError) as refused:
        compare(panel(base()), one).runs()
    assert refused.value.path == f"left: {path}"


def test_a_panel_may_have_seeds_of_its_own() -> None:
    few, many = panel(base()), panel(base().edited({"batch_size": 32})).model_copy(update={"seeds": (0, 5)})
    found = compare(few, many).runs()
    assert [spec.seed for spec in found if spec.process.kind == "sgd"] == [0, 0, 5]


def test_a_pilot_cuts_batches_in_two_where_it_can() -> None:
    assert Compare.pilot(base()).panels[0].split == 2
    assert Compare.pilot(base(model={"arch": "mlp", "norm": "batch"})).panels[0].split == 1
    assert Compare.pilot(base(batch_size=9)).panels[0].split == 1
    assert {(one.process.kind, one.seed) for one in Compare.pilot(base()).runs()} == {
        (kind, seed) for kind in ("sgd", "svag") for seed in range(4)
    }
    with pytest.raises(SpecError, match=r"^process\.momentum_limit:"):
        Compare.pilot(base(momentum=0.9)).runs()


def test_slots_are_built_once_and_again_for_another_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command asks for them when it plans, announces and finds; a copy with other fields has its own."""
    built = []

    def counted(panel: ComparePanel) -> list[Any]:
        built.append(panel)
        return arms(panel)

    arms = ComparePanel.arms
    monkeypatch.setattr(ComparePanel, "arms", counted)
    asked = Compare.of(base(), (1, 4), 2)
    assert asked.slots() is asked.slots()
    assert len(asked.runs()) == 4
    assert len(built) == 1
    more = asked.model_copy(update={"seeds": (0, 1, 2)})
    assert len(more.runs()) == 6
    assert len(asked.runs()) == 4
    assert len(built) == 2
