"""Which probe a ladder gets when its base has none."""

import pytest
from tests.lab.experiments.bases import base

from svag.lab.experiments.ladder import rung, with_probe
from svag.lab.specs.fields import SpecError
from svag.lab.specs.parts import FrozenProbe, InRunProbe


def test_a_probe_that_is_there_stays() -> None:
    spec = base(probe={"kind": "frozen"})
    assert with_probe(spec, (8, 64)) is spec


def test_the_parts_divide_every_batch() -> None:
    for sizes, parts in (((8, 64), 4), ((2, 64), 2), ((6, 64), 2)):
        probe = with_probe(base(), sizes).probe
        assert isinstance(probe, InRunProbe)
        assert probe.parts == parts
    assert isinstance(with_probe(base(), (1, 64)).probe, FrozenProbe)
    assert isinstance(with_probe(base(model__arch="my.nets:build"), (8, 64)).probe, FrozenProbe)


@pytest.mark.parametrize(
    ("schedule", "budget", "window"),
    [
        ({"kind": "steps", "at": [0.9]}, 100, (0.6, 0.9)),
        ({"kind": "steps", "at": [0.3, 0.9]}, 100, (0.7, 0.9)),
        ({"kind": "steps", "at": [30, 90]}, 100, (0.7, 0.9)),
        ({"kind": "constant"}, 100, (0.5, 1.0)),
        ({"kind": "cosine"}, 100, (0.5, 1.0)),
    ],
)
def test_the_window_is_the_last_third_of_the_last_but_one_phase(
    schedule: dict[str, object], budget: int, window: tuple[float, float]
) -> None:
    probe = with_probe(base(schedule=schedule, budget=budget), (64, 128)).probe
    assert isinstance(probe, InRunProbe)
    assert probe.window == pytest.approx(window)


def test_frozen_readings_fit_into_the_window_of_the_largest_batch() -> None:
    spec = base(model__norm="batch")  # 10 epochs of 10,000 images: 50 steps at B = 2,000, of which 13 in the window
    probed = with_probe(spec, (64, 2000))
    assert isinstance(probed.probe, FrozenProbe)
    assert probed.probe.readings == 13
    assert len(probed.probe.steps(rung(probed, 2000).steps())) == 13
    plenty = with_probe(spec, (64, 128)).probe
    assert isinstance(plenty, FrozenProbe)
    assert plenty.readings == 60


def test_steps_in_epochs_of_an_unknown_file_need_a_probe() -> None:
    own = {"name": "npz", "path": "mine.npz"}
    with pytest.raises(SpecError, match=r"^probe:"):
        with_probe(base(data=own, schedule={"kind": "steps", "at": [50]}), (64, 128))
