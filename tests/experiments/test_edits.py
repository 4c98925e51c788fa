"""A figure with other seeds and fields."""

import pytest

from svag.experiments.arms import edited
from svag.experiments.families import runs_of
from svag.experiments.figures import figure
from svag.records.fields import SpecError
from svag.records.parts import FrozenProbe


def test_nothing_changes_nothing() -> None:
    before = figure("fig:app_lsr_c10", "small")
    assert edited(before, {}) == before


def test_every_run_is_edited_and_the_note_says_so() -> None:
    before = figure("fig:app_lsr_c10", "small")
    after = edited(before, {"sampling": "shuffle", "data.augment": False}, seeds=1)
    assert after.note == before.note + "; with sampling = shuffle, data.augment = False"
    wanted = [spec.edited({"sampling": "shuffle", "data.augment": False}) for spec in runs_of(before) if spec.seed == 0]
    assert runs_of(after) == wanted


def test_a_probe_that_is_replaced_is_replaced_at_every_rung() -> None:
    before = figure("fig:app_lsr_svhn", "paper")
    assert len({spec.probe for spec in runs_of(before)}) > 1
    [probe] = {spec.probe for spec in runs_of(edited(before, {"probe.batches": 30}))}
    assert probe == FrozenProbe(readings=50, window=(80 / 120, 100 / 120), batches=30)
    assert {spec.probe.kind for spec in runs_of(edited(before, {"probe": {"kind": "none"}}))} == {"none"}


def test_a_refusal_names_the_panel() -> None:
    with pytest.raises(SpecError, match=r"PreResNet-32 BN, B = 64: model.width: 16 × width"):
        edited(figure("fig:svag_accs", "paper"), {"model.width": 0.01})


def test_seeds_asked_for_are_those_of_every_panel() -> None:
    before = figure("fig:svag_accs", "small")
    assert [len(before.seeds_of(panel)) for panel in before.panels] == [10, 4]
    after = edited(before, {}, seeds=2)
    assert {spec.seed for spec in runs_of(after)} == {0, 1}
    assert len(runs_of(after)) == 2 * 2 * 3
