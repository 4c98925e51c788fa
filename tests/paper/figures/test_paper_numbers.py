"""The paper's numbers, typed in again from its captions: rates at given epochs, widths, norms, batches, ell."""

from typing import Any

import pytest

from svag.lab.experiments.compare import Compare
from svag.lab.experiments.ladder import Ladder
from svag.lab.specs.optimizers import SgdOptimizer
from svag.lab.specs.parts import FrozenProbe
from svag.lab.specs.spec import RunSpec
from svag.paper.figures import figure

PRE, WIDE, VGG16, VGG19 = ("preresnet32", 1.0), ("preresnet32", 4.0), ("vgg16", 1.0), ("vgg19", 1.0)

# label: (network, width), norm, B, lr of each panel
PANELS: dict[str, list[tuple[tuple[str, float], str, int, float]]] = {
    "fig:svag_accs": [(PRE, "batch", 64, 0.4), (PRE, "batch", 1024, 6.4)],
    "fig:app_svag_sampling": [(PRE, "batch", 128, 0.8)] * 3,
    "fig:app_svag_baselines": [(PRE, "batch", 128, 0.8), (WIDE, "batch", 128, 0.8), (PRE, "group", 128, 0.8)],
    "fig:app_svag_otherarch": [(VGG16, "none", 128, 0.01), (VGG16, "batch", 128, 0.8), (VGG16, "group", 128, 0.8)],
    "fig:app_svag_triangle": [(PRE, "batch", 128, 0.8), (VGG16, "batch", 128, 0.8)],
    "fig:app_svag_cosine": [(PRE, "batch", 128, 0.8), (VGG16, "batch", 128, 0.8)],
    "fig:app_svag_c100": [(one, norm, 128, 0.8) for one in (WIDE, VGG19) for norm in ("batch", "group")],
    "fig:app_svag_svhn": [(PRE, "group", 128, 0.8), (PRE, "batch", 128, 0.8), (PRE, "group", 1024, 6.4)],
    "fig:lsr_acc_gnr": [(PRE, "batch", 128, 0.8), (PRE, "group", 128, 0.8), (VGG19, "group", 128, 0.8)],
    "fig:app_lsr_c10": [
        (("resnet32", 1.0), "batch", 128, 0.8),
        (WIDE, "batch", 128, 0.8),
        (WIDE, "group", 128, 0.8),
    ],
    "fig:app_lsr_c100": [(one, norm, 128, 0.8) for one in (WIDE, VGG19) for norm in ("batch", "group")],
    "fig:app_lsr_svhn": [(PRE, "group", 128, 0.8)],
    "fig:ngd_sgd_accs": [(WIDE, "group", 125, 0.8)],
    "fig:ngd_sgd_b500": [(PRE, "group", 500, 3.2)],
    "fig:ngd_sgd_b125": [(PRE, "group", 125, 0.8)],
    "fig:ngd_sgd_vgg": [(VGG16, "group", 125, 0.8)],
}


# max(200, 50000/B) by B, worked out by hand
BATCHES_READ = {
    2: 25_000, 4: 12_500, 8: 6_250, 16: 3_125, 32: 1_562, 64: 781, 128: 390, 256: 200, 512: 200, 1024: 200, 2048: 200
}  # fmt: skip


def bases(label: str) -> list[RunSpec]:
    return [panel.base for panel in figure(label, "paper").panels]


@pytest.mark.parametrize("label", PANELS)
def test_networks_batches_and_rates(label: str) -> None:
    found = [((b.model.arch, b.model.width), b.model.norm, b.batch_size, b.lr) for b in bases(label)]
    assert found == PANELS[label]
    for base in bases(label):
        assert (base.weight_decay, base.optimizer, base.process.kind) == (5e-4, SgdOptimizer(), "sgd")
        assert base.model.scale_invariant == (base.model.arch != "resnet32" and base.model.norm != "none")


@pytest.mark.parametrize("label", PANELS)
def test_data_and_augmentation(label: str) -> None:
    name = "cifar100" if "c100" in label else "svhn" if "svhn" in label else "cifar10"
    plain: dict[str, Any] = {"name": name, "path": None, "subset": None, "pool": 1, "augment": None}
    wanted = plain if "svhn" in label or "ngd" in label else plain | {"augment": {"pad": 4, "flip": True}}
    assert [base.data.model_dump() for base in bases(label)] == [wanted] * len(PANELS[label])


def test_sampling_is_independent_but_where_it_is_the_question() -> None:
    for label in PANELS:
        found = [base.sampling for base in bases(label)]
        if label == "fig:app_svag_sampling":
            assert found == ["shuffle", "with_replacement", "without_replacement"]
        else:
            assert set(found) == {"without_replacement"}


def decays(base: RunSpec) -> dict[int, float]:
    """Effective steps at which the learning rate changes, with what it is multiplied by."""
    steps = base.steps()
    rates = [base.schedule.multiplier(step, steps) for step in range(steps)]
    return {step: round(rates[step] / rates[step - 1], 9) for step in range(1, steps) if rates[step] != rates[step - 1]}


@pytest.mark.parametrize(
    ("label", "epochs", "at"),
    [
        ("fig:svag_accs", 300, [250]),
        ("fig:app_svag_sampling", 160, [80, 120]),  # passes over a loader of 2B in the caption: 320, 160, 240
        ("fig:app_svag_baselines", 160, [80, 120]),
        ("fig:app_svag_otherarch", 160, [80, 120]),
        ("fig:app_svag_c100", 160, [80, 120]),
        ("fig:app_svag_svhn", 120, [100]),
        ("fig:lsr_acc_gnr", 300, [250]),
        ("fig:app_lsr_c10", 300, [250]),
        ("fig:app_lsr_c100", 300, [80, 250]),
        ("fig:app_lsr_svhn", 120, [100]),
    ],
)
def test_budgets_and_decays_in_epochs(label: str, epochs: int, at: list[int]) -> None:
    examples = 73_257 if "svhn" in label else 50_000
    for base in bases(label):
        epoch = examples // base.batch_size
        assert base.steps() == epochs * epoch
        assert decays(base) == {epoch * when: 0.1 for when in at}


@pytest.mark.parametrize(
    ("label", "at"),
    [
        ("fig:ngd_sgd_accs", 24_000),
        ("fig:ngd_sgd_b500", 8_000),
        ("fig:ngd_sgd_b125", 32_000),
        ("fig:ngd_sgd_vgg", 32_000),
    ],
)
def test_ngd_decays_at_a_step_and_averages_over_100(label: str, at: int) -> None:
    [base] = bases(label)
    assert decays(base) == {at: 0.1}
    assert base.steps() == at / 0.8
    assert base.evaluate.interval(base.steps()) == 100


def test_62_400_effective_steps() -> None:
    for label in ("sampling", "baselines", "otherarch", "triangle", "cosine", "c100"):
        assert {base.steps() for base in bases(f"fig:app_svag_{label}")} == {62_400}


def test_cosine_and_triangle_go_where_the_paper_says() -> None:
    quarter = 15_600
    for base in bases("fig:app_svag_triangle"):
        wanted = {0: 0.001, quarter: 0.8, 2 * quarter: 0.001, 3 * quarter: 0.4}
        assert {step: pytest.approx(base.learning_rate(step)) for step in wanted} == wanted
        assert base.learning_rate(4 * quarter - 1) == pytest.approx(0.001, abs=1e-4)
        assert base.learning_rate(quarter // 2) == pytest.approx((0.001 + 0.8) / 2)
    for base in bases("fig:app_svag_cosine"):
        assert base.learning_rate(0) == 0.8
        assert base.learning_rate(2 * quarter) == pytest.approx((0.001 + 0.8) / 2)
        assert base.learning_rate(4 * quarter - 1) == pytest.approx(0.001, abs=1e-6)


@pytest.mark.parametrize("label", [label for label in PANELS if "svag" in label])
def test_ell(label: str) -> None:
    experiment = figure(label, "paper")
    assert isinstance(experiment, Compare)
    for panel in experiment.panels:
        assert (panel.ells, panel.split, panel.glsr, panel.ngd) == ((1, 2, 4, 8, 16), 1, (), False)


@pytest.mark.parametrize("label", [label for label in PANELS if "lsr" in label])
def test_the_rungs_and_the_window_of_the_readings(label: str) -> None:
    experiment = figure(label, "paper")
    assert isinstance(experiment, Ladder)
    assert (experiment.tolerance, experiment.c2) == (0.2, 2.0)
    for panel in experiment.panels:
        assert panel.batch_sizes == (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
    examples, window = (73_257, (80, 100)) if "svhn" in label else (50_000, (200, 250))
    for spec in experiment.runs():
        assert spec.lr == 0.8 * spec.batch_size / 128
        assert isinstance(spec.probe, FrozenProbe)
        epoch = examples // spec.batch_size
        read = spec.probe.steps(spec.steps())
        assert read[0] == window[0] * epoch
        assert window[1] * epoch - 2 * epoch < read[-1] < window[1] * epoch
        assert (len(read), spec.probe.batches) == (50, BATCHES_READ[spec.batch_size])
