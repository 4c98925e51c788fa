"""Batch sizes along the linear rule: exactly these specs, and times that mean the same at every one of them."""

from typing import Any, Literal

import pytest
from tests.lab.experiments.bases import base

from svag.lab.experiments.from_runs import from_specs
from svag.lab.experiments.ladder import Ladder, LadderPanel, rung, with_probe
from svag.lab.specs.fields import SpecError
from svag.lab.specs.optimizers import AdamOptimizer, AdamwOptimizer, RmspropOptimizer
from svag.lab.specs.spec import RunSpec


def ladder(spec: RunSpec, sizes: tuple[int, ...], seeds: tuple[int, ...] = (0,), **fields: Any) -> Ladder:
    panel = LadderPanel(name="left", base=spec, batch_sizes=sizes, **fields)
    return Ladder(title="t", panels=(panel,), seeds=seeds)


def test_rate_and_batch_grow_together_and_nothing_else_changes() -> None:
    spec = base(probe={"kind": "in_run", "parts": 4, "window": [0.5, 0.8], "every": 0.001}, evaluate={"every": 0.1})
    found = ladder(spec, (16, 64, 256), seeds=(3, 4)).runs()
    wanted = [
        spec.edited({"batch_size": size, "lr": rate, "seed": seed})
        for size, rate in ((16, 0.05), (64, 0.2), (256, 0.8))
        for seed in (3, 4)
    ]
    assert found == wanted


def test_svag_at_every_rung() -> None:
    spec = base()
    found = ladder(spec, (32, 64), ells=(1, 4), split=2).runs()
    svag = {"kind": "svag", "ell": 4, "split": 2}
    low = {"batch_size": 32, "lr": 0.1}
    assert found == [spec.edited(low), spec.edited({"process": svag, **low}), spec, spec.edited({"process": svag})]


def test_a_frozen_probe_may_read_other_batches_at_every_rung() -> None:
    spec = base(probe={"kind": "frozen", "readings": 5, "batches": 10})
    found = ladder(spec, (64, 32), ells=(4,), probe_batches=(6, 12)).runs()
    wanted = [(32, 12), (32, 12), (64, 6), (64, 6)]
    assert [(one.batch_size, one.to_dict()["probe"]["batches"]) for one in found] == wanted
    in_run = base(probe={"kind": "in_run"})
    assert {one.probe for one in ladder(in_run, (64, 32), probe_batches=(6, 12)).runs()} == {in_run.probe}
    with pytest.raises(SpecError, match=r"^probe_batches:") as refused:
        ladder(spec, (64, 32), probe_batches=(6,)).runs()
    assert refused.value.path == "probe_batches"


def test_svag_can_stand_at_some_rungs_only() -> None:
    asked = ladder(base(), (32, 64, 128), ells=(4,), split=2, refined=(128,))
    assert [(spec.batch_size, spec.process.kind) for spec in asked.runs()] == [
        (32, "sgd"),
        (64, "sgd"),
        (128, "sgd"),
        (128, "svag"),
    ]
    again = from_specs(Ladder, asked.runs(), "t")
    assert again.panels[0].refined == (128,)
    assert set(again.runs()) == set(asked.runs())
    with pytest.raises(SpecError, match=r"^refined:"):
        ladder(base(), (32, 64), ells=(4,), refined=(256,)).runs()


def test_a_base_and_flags_make_the_same_experiment_and_a_probe() -> None:
    with pytest.raises(TypeError, match=r"'tolerence'.*tolerance"):
        Ladder.of(base(), (32, 64), 1, tolerence=0.3)  # type: ignore[call-arg]
    found = Ladder.of(base(), (32, 64), [0, 7], ells=(4,), split=2, tolerance=0.3, c2=3, name="left")
    spec = with_probe(base(), (32, 64))
    wanted = ladder(spec, (32, 64), (0, 7), ells=(4,), split=2)
    assert found == wanted.model_copy(update={"title": "Linear scaling", "tolerance": 0.3, "c2": 3.0})
    assert spec.probe.kind == "in_run"


def test_steps_keep_their_meaning() -> None:
    spec = base(
        budget=1000,
        schedule={"kind": "steps", "at": [500, 0.8], "warmup": 10},
        probe={"kind": "in_run", "window": [0, 400], "every": 20},
        evaluate={"every": 100},
    )
    high = rung(spec, 256)
    assert high.budget == 250
    for step in range(1000):
        if step >= 10:  # a warm-up of 10 steps ends after 2 or 3 of 250
            ratio = high.learning_rate(step // 4) / spec.learning_rate(step)
            assert ratio == pytest.approx(4), f"κ = 4 at the same time, step {step}"
    assert high.to_dict() == spec.to_dict() | {
        "batch_size": 256,
        "lr": 0.8,
        "budget": 250,
        "schedule": {"kind": "steps", "at": [125, 0.8], "factor": 0.1, "warmup": 2},
        "probe": {"kind": "in_run", "parts": 4, "window": [0, 100], "every": 5},
        "evaluate": {"every": 25, "train": False},
    }
    assert rung(spec, 64) is spec, "a baseline that has been run is not run again"


def test_a_probe_at_every_step_stays_one() -> None:
    every = base(probe={"kind": "in_run", "every": 1}, evaluate={"every": 10})
    assert rung(every, 16).probe == every.probe
    assert rung(every, 16).evaluate.every == 40
    assert rung(every, 640).evaluate.every == 1
    assert rung(base(evaluate={"every": 4}), 640).evaluate.every == 1, "never none at all"


def test_the_size_of_a_file_need_not_be_known() -> None:
    own = base(data={"name": "npz", "path": "mine.npz"}, evaluate={"every": 40})
    assert rung(own, 32).to_dict() == own.to_dict() | {
        "batch_size": 32,
        "lr": 0.1,
        "evaluate": {"every": 80, "train": False},
    }


ADAMW = {"optimizer": {"kind": "adamw", "betas": [0.96875, 0.984375], "eps": 1e-6}, "lr": 0.25, "weight_decay": 0.5}


def test_an_adaptive_optimizer_scales_by_the_square_root_rule() -> None:
    """lr√κ, 1−β → κ(1−β), eps/√κ, decoupled weight decay·√κ; κ below 1 is the way back, bit for bit at powers of 4."""
    spec = base(**ADAMW)
    high = rung(spec, 256)
    assert high.optimizer == AdamwOptimizer(betas=(0.875, 0.9375), eps=5e-7)
    assert (high.lr, high.weight_decay, high.budget) == (0.5, 1.0, spec.budget)
    assert rung(high, 64) == spec
    adam = rung(base(**ADAMW | {"optimizer": {"kind": "adam", "betas": [0.0, 0.984375]}}), 256)
    assert adam.optimizer == AdamOptimizer(betas=(0.0, 0.9375), eps=5e-9), "β₁ = 0 stays 0"
    assert (adam.lr, adam.weight_decay) == (0.5, 0.5), "coupled L2 is part of the gradient"
    rmsprop = rung(base(**ADAMW | {"optimizer": {"kind": "rmsprop", "alpha": 0.984375}}), 256)
    assert (rmsprop.optimizer, rmsprop.lr) == (RmspropOptimizer(alpha=0.9375, eps=5e-9), 0.5)


def test_a_ladder_of_adam_is_found_again_in_a_folder_of_its_runs() -> None:
    runs = ladder(base(**ADAMW), (16, 64, 256)).runs()
    (panel,) = from_specs(Ladder, runs, "t").panels
    assert sorted(panel.batch_sizes) == [16, 64, 256]
    linear = [spec.edited({"lr": 0.25 * spec.batch_size / 64}) for spec in runs]
    with pytest.raises(SpecError, match=r"\bladder\b"):
        from_specs(Ladder, linear, "t")


@pytest.mark.parametrize(
    ("optimizer", "name", "size", "fits"),
    [
        ({"kind": "adamw", "betas": [0.9, 0.999]}, "betas[0]", 640, 639),
        ({"kind": "adam", "betas": [0.0, 0.5]}, "betas[1]", 128, 127),
        ({"kind": "rmsprop", "alpha": 0.75}, "alpha", 256, 255),
    ],
)
def test_a_rung_without_an_average_is_refused(optimizer: dict[str, Any], name: str, size: int, fits: int) -> None:
    spec = base(**ADAMW | {"optimizer": optimizer})
    with pytest.raises(SpecError, match=rf"\b64, .*\b{size}$") as no:
        ladder(spec, (64, size)).runs()
    assert no.value.path == f"optimizer.{name}"
    assert rung(spec, fits).batch_size == fits


def test_the_rule_is_that_of_the_optimizer() -> None:
    rules: tuple[Literal["linear"], Literal["square_root"]] = ("linear", "square_root")
    for spec, (own, other) in ((base(), rules), (base(**ADAMW), (rules[1], rules[0]))):
        assert Ladder.of(spec, [16, 64], 1, rule=own).runs() == Ladder.of(spec, [16, 64], 1).runs()
        with pytest.raises(SpecError, match=rf"^rule: .*\b{own}\b"):
            Ladder.of(spec, [16, 64], 1, rule=other).runs()
    assert Ladder.of(base(**ADAMW), [16, 64], 1).title == "Square-root scaling"


@pytest.mark.parametrize(
    ("experiment", "path"),
    [
        (ladder(base(), (64,)), "batch_sizes"),
        (ladder(base(weight_decay=1.0), (64, 640)), "batch_sizes"),
        (ladder(base(), (64, 20_000)), "batch_size"),
        (ladder(base(probe={"kind": "in_run", "parts": 4}), (2, 64)), "probe.parts"),
        (ladder(base(model__norm="batch"), (32, 64), ells=(4,), split=2), "process.split"),
        (ladder(base(process={"kind": "gd"}), (32, 64)), "process.kind"),
        (ladder(base(budget=100), (64, 6400)), "schedule.at"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_path_of_the_field(experiment: Ladder, path: str) -> None:
    with pytest.raises(SpecError) as refused:
        experiment.runs()
    assert refused.value.path == path
