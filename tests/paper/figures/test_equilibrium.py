"""Every ladder reads G and N at equilibrium: its window begins after enough e-folds at the rate that it has there.

The ordinary ResNet at its small size is a run of the atlas, at the small rate that people use: it has no equilibrium.
"""

from itertools import product

import pytest

from svag.lab.experiments.ladder import Ladder
from svag.lab.specs.fields import step_of
from svag.lab.specs.parts import FrozenProbe, InRunProbe, ModelSpec
from svag.lab.specs.schedules import Constant, Steps
from svag.lab.specs.spec import RunSpec
from svag.paper.figures import LABELS, MEDIUM, figure

LADDERS = [label for label, kind in LABELS.items() if kind == "ladder"]
# Weights that start near the norm at which they settle have less to forget; every ladder's balance is measured besides.
LEAST, LEAST_IF_SCALED = 3.5, 1.0


def e_folds(spec: RunSpec) -> float:
    """4ηλ × (steps at the rate of the window before it begins).

    The weight norm forgets where it was by a factor e in 1/(4ηλ) steps. An earlier, larger rate has an equilibrium of
    its own, which the window's has to forget too: steps before the last decay do not count.
    """
    assert isinstance(spec.schedule, Steps | Constant)
    assert spec.schedule.warmup == 0
    assert isinstance(spec.probe, InRunProbe | FrozenProbe)
    steps = spec.steps()
    read = spec.probe.steps(steps)
    decays = spec.schedule.at if isinstance(spec.schedule, Steps) else ()
    since = max([0, *(when for at in decays if (when := step_of(at, steps)) <= read[0])])
    lr = spec.learning_rate(read[0])
    assert lr == spec.learning_rate(since) == spec.learning_rate(read[-1]), "the rate does not change while it is read"
    assert since == 0 or spec.learning_rate(since - 1) != lr
    return 4 * lr * spec.weight_decay * (read[0] - since)


@pytest.mark.parametrize(
    ("label", "size"), [*product(LADDERS, ["small", "paper"]), *((one, "medium") for one in LADDERS if one in MEDIUM)]
)
def test_enough_e_folds_at_every_rung(label: str, size: str) -> None:
    experiment = figure(label, size)  # type: ignore[arg-type]
    assert isinstance(experiment, Ladder)
    specs = [spec for spec in experiment.runs() if spec.model.scale_invariant or size == "paper"]
    for spec in specs:
        assert isinstance(spec.model, ModelSpec)
        assert e_folds(spec) >= (LEAST if spec.model.init_scale == 1 else LEAST_IF_SCALED), spec


def test_the_count_is_that_of_the_rate_in_the_window() -> None:
    """By hand: 20 epochs of 312 steps, a decay to .01 at step 1664, the window from step 4160."""
    base = RunSpec.from_yaml("""
        data: {name: fashion-small}
        model: {arch: mlp}
        batch_size: 32
        lr: 0.1
        weight_decay: 1.0e-3
        schedule: {kind: steps, at: [0.26666666666666666, 0.8333333333333334]}
        budget: {epochs: 20}
        probe: {kind: frozen, window: [0.6666666666666666, 0.8333333333333334]}
    """)
    assert e_folds(base) == pytest.approx(4 * 0.01 * 1e-3 * (4160 - 1664))
    once = base.edited({"schedule.at": [5 / 6]})
    assert e_folds(once) == pytest.approx(4 * 0.1 * 1e-3 * 4160)
    assert e_folds(once) < LEAST, "what the small ladders had before λ was raised"
