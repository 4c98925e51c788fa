"""Every setting beside the paper's: complete, stated, and with a reason wherever it differs."""

import json
from typing import get_args

import pytest

from svag.lab.experiments.experiment import Size
from svag.paper.figures import LABELS, MEDIUM, figure
from svag.paper.figures.settings import Deviation, FigureSetting, PaperSource, settings

TRAINED = [label for label, kind in LABELS.items() if kind != "theory"]
NO_EXPERIMENT = "eq:noise_decomposition"


def by_name(found: list[FigureSetting], panel: str | None = None) -> dict[str, FigureSetting]:
    return {one.name: one for one in found if one.panel == (panel or found[0].panel)}


SIZES = [(label, size) for label in TRAINED for size in get_args(Size) if size != "medium" or label in MEDIUM]


@pytest.mark.parametrize(("label", "size"), SIZES)
def test_every_setting_has_a_statement_and_every_deviation_a_reason(label: str, size: Size) -> None:
    found = settings(label, size)
    assert {one.panel for one in found} == {panel.name for panel in figure(label, size).panels}
    for one in found:
        assert (one.paper is None) == (one.source is PaperSource.SILENT), one
        assert all(one.row()[:3]), one
        assert bool(one.reason) == one.differs, one
    assert all(one.paper is None for one in found) == (label == NO_EXPERIMENT)


@pytest.mark.parametrize("label", [label for label in TRAINED if label != NO_EXPERIMENT])
def test_at_the_paper_size_only_sampling_differs_and_arms_are_added(label: str) -> None:
    differing = {one.name: one.reason for one in settings(label, "paper") if one.differs}
    wanted: dict[str, Deviation] = {} if "sampling" in label else {"sampling": Deviation.INDEPENDENT_BATCHES}
    assert differing == wanted | ({"arms": Deviation.MORE} if label == "fig:ngd_sgd_b500" else {})


@pytest.mark.parametrize(
    ("label", "edits"),
    [
        ("fig:svag_accs", {"model.arch": "preresnet56"}),
        ("fig:svag_accs", {"weight_decay": 1e-5}),
        ("fig:app_svag_sampling", {"data.augment": {"pad": 5}}),
        ("fig:lsr_acc_gnr", {"optimizer.momentum": 0.9}),
        ("fig:ngd_sgd_b125", {"model.scale_invariant": False}),
    ],
)
def test_no_reason_covers_what_is_not_as_it_says(
    label: str, edits: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same change is a flag where a user makes it, and unexplained where the figure itself has it."""
    assert {one.reason for one in settings(label, "paper", edits) if one.name in edits} == {Deviation.FLAG}
    changed = figure(label, "paper").edited(edits).model_copy(update={"size": "small"})
    paper = figure(label, "paper")
    monkeypatch.setattr("svag.paper.figures.settings.figure", lambda _, size: paper if size == "paper" else changed)
    assert {one.name for one in settings(label, "small") if one.differs and one.reason is None} == set(edits)


def test_the_reasons_of_the_headline_figure() -> None:
    found = by_name(settings("fig:svag_accs", "small"))
    assert (found["data.name"].paper, found["data.name"].reason) == ("cifar10", Deviation.EMBEDDED_DATA)
    assert (found["model.arch"].here, found["model.arch"].reason) == ("preresnet8", Deviation.SMALLER_NETWORK)
    assert found["budget"].paper == "234,300 steps (300 epochs)"
    assert (found["sampling"].paper, found["sampling"].reason) == ("shuffle", Deviation.INDEPENDENT_BATCHES)
    assert (found["seeds"].paper, found["seeds"].source) == (None, PaperSource.SILENT)
    assert found["weight_decay"].source is PaperSource.CODE


@pytest.mark.parametrize(
    ("label", "panel", "name", "reason"),
    [
        ("fig:app_lsr_c100", "PreResNet-8 BN", "schedule", Deviation.GENTLER_DECAY),
        ("fig:app_lsr_c10", "ResNet-8 BN, unmodified", "schedule", Deviation.GENTLER_DECAY),
        ("fig:svag_accs", "PreResNet-8 GN, B = 8", "schedule", Deviation.SHORTER_SCHEDULE),
        ("fig:app_svag_otherarch", "perceptron without norm", "model.arch", Deviation.NO_PLATEAU),
        ("fig:app_svag_otherarch", "VGG-11 BN", "model.arch", Deviation.SMALLER_NETWORK),
    ],
)
def test_a_setting_that_is_not_for_the_budget_says_what_it_is_for(
    label: str, panel: str, name: str, reason: Deviation
) -> None:
    assert by_name(settings(label, "small"), panel)[name].reason is reason


def test_what_the_paper_reads_stands_beside_what_is_read_here() -> None:
    found = by_name(settings("fig:lsr_acc_gnr", "small"), "PreResNet-8 BN")
    assert found["probe.batches"].paper == "max(200, 50000/B)"
    assert found["probe.window"].paper == "67%–83%"
    assert not found["c2"].differs
    assert not found["lr"].differs, "0.1 at 16 is 0.8 at 128"
    assert by_name(settings("fig:app_svag_sampling", "small"))["sampling"].paper == "shuffle"
    assert by_name(settings("fig:ngd_sgd_b500", "paper"))["schedule"].paper == "×0.1 at step 8,000"


def test_fewer_panels_than_the_paper_are_compared_by_their_network(monkeypatch: pytest.MonkeyPatch) -> None:
    paper, small = figure("fig:lsr_acc_gnr", "paper"), figure("fig:lsr_acc_gnr", "small")
    one = small.model_copy(update={"panels": small.panels[2:]})
    monkeypatch.setattr("svag.paper.figures.settings.figure", lambda _, size: paper if size == "paper" else one)
    assert by_name(settings("fig:lsr_acc_gnr", "small"))["model.arch"].paper == "vgg19"


def test_a_code_is_written_and_has_words() -> None:
    assert json.dumps([Deviation.MORE, PaperSource.CODE]) == '["more", "code"]'
    assert all(deviation.said for deviation in Deviation)
