"""A figure with other seeds and fields."""

import pytest

from svag.lab.specs.fields import SpecError
from svag.lab.specs.parts import FrozenProbe
from svag.paper.figures import figure


def test_nothing_changes_nothing() -> None:
    before = figure("fig:app_lsr_c10", "small")
    assert before.edited({}) == before


def test_every_run_is_edited_and_the_note_says_so() -> None:
    before = figure("fig:app_lsr_c10", "small")
    after = before.edited({"sampling": "shuffle", "data.augment": False}, seeds=1)
    assert after.note == before.note + "; with sampling = shuffle, data.augment = False"
    wanted = [spec.edited({"sampling": "shuffle", "data.augment": False}) for spec in before.runs() if spec.seed == 0]
    assert after.runs() == wanted


def test_a_probe_that_is_replaced_is_replaced_at_every_rung() -> None:
    before = figure("fig:app_lsr_svhn", "paper")
    assert len({spec.probe for spec in before.runs()}) > 1
    [probe] = {spec.probe for spec in before.edited({"probe.batches": 30}).runs()}
    assert probe == FrozenProbe(readings=50, window=(80 / 120, 100 / 120), batches=30)
    assert {spec.probe.kind for spec in before.edited({"probe": {"kind": "none"}}).runs()} == {"none"}


def test_a_refusal_names_the_panel() -> None:
    with pytest.raises(SpecError, match=r"PreResNet-32 BN, B = 64: model.width: 16 × width"):
        figure("fig:svag_accs", "paper").edited({"model.width": 0.01})


def test_seeds_asked_for_are_those_of_every_panel() -> None:
    before = figure("fig:svag_accs", "small")
    assert [len(before.seeds_of(panel)) for panel in before.panels] == [10, 4]
    after = before.edited({}, seeds=2)
    assert {spec.seed for spec in after.runs()} == {0, 1}
    assert len(after.runs()) == 2 * 2 * 4
