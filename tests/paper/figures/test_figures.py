"""Every label of the paper's figures, at every size."""

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from svag.lab.experiments import experiment_from
from svag.lab.experiments.compare import Compare
from svag.lab.experiments.experiment import Size
from svag.lab.experiments.ladder import Ladder
from svag.lab.experiments.ngd import Ngd
from svag.lab.specs.fields import SpecError
from svag.lab.specs.optimizers import SgdOptimizer
from svag.lab.specs.parts import DataSpec, SvagSpec
from svag.lab.specs.schedules import Steps
from svag.lab.specs.spec import RunSpec
from svag.paper.figures import LABELS, MEDIUM, UNVERIFIED, family, figure, judged, trained, until
from svag.paper.figures.bases import CIFAR
from svag.paper.figures.compare import CompareRow, PanelRow
from svag.paper.verify import LABELS as CHECKED
from svag.stats.curves import smallest_p

# figures.md of the design, label by label
COMPARE = "svag_accs app_svag_sampling app_svag_baselines app_svag_otherarch app_svag_triangle app_svag_cosine "
COMPARE += "app_svag_c100 app_svag_svhn"
LADDER = "lsr_acc_gnr app_lsr_c10 app_lsr_c100 app_lsr_svhn"
NGD = "ngd_sgd_accs ngd_sgd_b500 ngd_sgd_b125 ngd_sgd_vgg"
THEORY = """thm:sde_svag fig:proof_concept lem:D lem:Dtil thm:one_step_to_multi_steps app:lem:ito_taylor
lem:sgd_moment_estimate lem:sc cor:sc lem:2nd_sde_hessian eq:norm_sgd_wd eq:norm_sde_wd sec:counterexample
subsec:app_levy_sde thm:eq_sde_sgd thm:lsr_condition thm:lsr_kappa_bound thm:app_1st_2nd_sde thm:2nd_order_sde thm:test
thm:test_on_gaussian sec:app_heayvtailed fig:app_exotic_lr fig:diagram fig:app_proof_overview lem:u_eta_estimate
app:lem:delta_prod_estimate eq:noisy_gd"""
TRAINED = [f"fig:{name}" for name in f"{COMPARE} {LADDER} {NGD}".split()] + ["eq:noise_decomposition"]


def test_every_label_has_its_family() -> None:
    wanted = {f"fig:{name}": "compare" for name in COMPARE.split()} | {"eq:noise_decomposition": "compare"}
    wanted |= {f"fig:{name}": "ladder" for name in LADDER.split()}
    wanted |= {f"fig:{name}": "ngd" for name in NGD.split()}
    wanted |= dict.fromkeys(THEORY.split(), "theory")
    assert wanted == LABELS


def test_the_theory_is_what_verify_checks_and_four_labels_more() -> None:
    theory = {label for label in LABELS if family(label) == "theory"}
    assert set(UNVERIFIED) == {"sec:app_heayvtailed", "fig:app_exotic_lr", "fig:diagram", "fig:app_proof_overview"}
    of_the_paper = {label for label in CHECKED if not label.startswith("ours:")}
    assert theory == of_the_paper | set(UNVERIFIED)
    assert not set(CHECKED) & set(UNVERIFIED)


@pytest.mark.parametrize(
    ("label", "size"),
    [(label, size) for label in TRAINED for size in get_args(Size) if size != "medium" or label in MEDIUM],
)
def test_every_figure_becomes_runs_at_every_size(label: str, size: Size) -> None:
    experiment = figure(label, size)
    assert (experiment.label, experiment.size, experiment.kind) == (label, size, family(label))
    assert bool(experiment.note) == (size != "paper"), "a caption says what differs"
    assert experiment_from(experiment.model_dump(mode="json")) == experiment, "it survives experiment.json"
    specs = experiment.runs()
    assert len(specs) == len(set(specs)) > 0
    wanted = {seed for panel in experiment.panels for seed in experiment.seeds_of(panel)}
    assert {spec.seed for spec in specs} == wanted
    names = [panel.name for panel in experiment.panels]
    assert len(set(names)) == len(names)
    data = "fashion-small" if size in {"smoke", "small"} else "cifar10" if size == "medium" else None
    assert data is None or {spec.data.name for spec in specs} == {data}


def test_three_figures_have_a_medium_size_and_the_others_say_so() -> None:
    assert set(MEDIUM) == {"fig:svag_accs", "fig:lsr_acc_gnr", "fig:ngd_sgd_accs"}
    for label in set(TRAINED) - set(MEDIUM):
        with pytest.raises(SpecError, match=r"^size: "):
            figure(label, "medium")
    with pytest.raises(SpecError):
        trained("medium")


@pytest.mark.parametrize("label", MEDIUM)
def test_the_medium_size_is_the_papers_setting_on_a_shorter_run_of_a_shallower_network(label: str) -> None:
    """Ten epochs or more, at the paper's own rate per example and weight decay, with the decay of the learning rate."""
    medium, paper = figure(label, "medium"), figure(label, "paper")
    assert type(medium) is type(paper)
    for spec in (panel.base for panel in medium.panels):
        assert isinstance(spec.data, DataSpec)
        assert spec.steps() * spec.batch_size / (spec.data.examples or 0) >= 10
        assert isinstance(spec.schedule, Steps)
        assert spec.weight_decay == CIFAR.weight_decay
        assert spec.lr / spec.batch_size == pytest.approx(CIFAR.lr / CIFAR.batch_size, rel=0.03)
    whole = {panel.base.data.examples for panel in medium.panels}
    if isinstance(medium, Ngd):
        assert len(medium.seeds) >= 5
    else:
        assert whole == {50_000}
    if isinstance(medium, Compare):
        assert [panel.base.batch_size for panel in medium.panels] == [panel.base.batch_size for panel in paper.panels]
        assert all({2, 4, 8} <= set(panel.ells) for panel in medium.panels), "enough to see convergence"
        assert len(medium.seeds) >= 4
    if isinstance(medium, Ladder):
        assert all(len(medium.seeds_of(panel)) == 8 for panel in medium.panels)
    nothing = medium.find([])
    claims = judged(medium, nothing)
    assert {one.panel for one in claims} == {panel.name for panel in medium.panels}
    assert {one.verdict for one in claims} == {"cannot tell"}


@pytest.mark.parametrize("label", TRAINED)
def test_the_sizes_have_the_same_method(label: str) -> None:
    small, smoke, paper = (figure(label, size) for size in ("small", "smoke", "paper"))
    assert [panel.name for panel in small.panels] == [panel.name for panel in smoke.panels]
    assert type(small) is type(smoke) is type(paper)
    for one in (small, smoke, paper):
        assert {(panel.base.optimizer, panel.base.process.kind) for panel in one.panels} == {(SgdOptimizer(), "sgd")}
    assert len(small.panels) == len(paper.panels)


def test_the_vgg_of_the_headline_figure_is_made_of_exactly_these_runs() -> None:
    """Field for field: records are found again by the identity of their specs."""
    base = RunSpec.from_yaml("""
        data: {name: fashion-small, augment: {pad: 0, flip: true}}
        model: {arch: vgg11, norm: group, width: 0.125, scale_invariant: true, init_scale: 0.57}
        batch_size: 16
        lr: 0.1
        weight_decay: 1.0e-3
        schedule: {kind: steps, at: [0.8333333333333334]}
        budget: {epochs: 8}
        probe: {kind: in_run, parts: 4, window: [0.6, 0.8333333333333334], every: 0.0005}
        evaluate: {every: 0.025}
    """)
    rates = {8: 0.05, 16: 0.1, 32: 0.2, 64: 0.4, 128: 0.8, 256: 1.6, 512: 3.2}
    wanted = [
        base.edited({"batch_size": size, "lr": lr, "seed": seed}) for size, lr in rates.items() for seed in range(4)
    ]
    assert figure("fig:lsr_acc_gnr", "small").runs()[-28:] == wanted


def test_svag_stands_at_two_rungs_of_one_ladder() -> None:
    """SGD at every batch size, SVAG at 128 and 512 alone."""
    specs = figure("fig:app_lsr_svhn", "small").runs()
    assert {spec.batch_size for spec in specs if spec.process.kind == "sgd"} == {16, 32, 64, 128, 256, 512}
    arms = {(spec.batch_size, spec.process.ell) for spec in specs if isinstance(spec.process, SvagSpec)}
    assert arms == {(128, 2), (128, 8), (512, 2), (512, 8)}


def test_a_label_that_cannot_be_trained_is_refused() -> None:
    with pytest.raises(SpecError, match=r"^thm:sde_svag: .*verify"):
        figure("thm:sde_svag", "small")
    with pytest.raises(SpecError, match=r"^fig:lsr_acc_gn:.*fig:lsr_acc_gnr"):
        figure("fig:lsr_acc_gn", "small")
    with pytest.raises(SpecError, match=r"^size:.*got 'large'"):
        figure("fig:lsr_acc_gnr", "large")  # type: ignore[arg-type]


def test_the_page_of_experiments_has_a_row_for_every_figure() -> None:
    page = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text()
    rows = dict(re.findall(r"^\| `((?:fig|eq):\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert rows == {label: LABELS[label] for label in TRAINED}


def test_the_moments_of_a_training_are_the_same_run_stopped_before_its_rate_changes() -> None:
    whole = trained("small")
    early, later, last = until(whole)
    assert (early.steps(), later.steps(), last) == (312, 1248, whole)
    for one in (early, later):
        assert one.edited({"budget": whole.budget, "schedule": whole.schedule}) == whole
        rates = {whole.learning_rate(step) for step in range(one.steps())}
        assert rates == {one.learning_rate(0)} == {whole.lr}
    assert until(whole.edited({"schedule": {"kind": "steps", "at": [0.3]}}))[1:] == [
        whole.edited({"schedule": {"kind": "steps", "at": [0.3]}})
    ]
    assert len(until(whole.edited({"schedule": {"kind": "cosine"}}))) == 1


@pytest.mark.parametrize("label", [label for label, family in LABELS.items() if family in {"compare", "ngd"}])
def test_the_paper_size_can_decide(label: str) -> None:
    """Three seeds against three have no limits of a curve at 95%; NGD is compared in train accuracy too."""
    experiment = figure(label, "paper")
    assert all(smallest_p(*[len(experiment.seeds_of(panel))] * 2) < 0.05 for panel in experiment.panels)
    assert all(panel.base.evaluate.train for panel in experiment.panels if LABELS[label] == "ngd")


def test_arms_that_only_show_convergence_have_fewer_seeds() -> None:
    row = CompareRow("fig:x", "t", (), (PanelRow("p", {}, ells=(1, 2, 8), fewer=((8, 4),)),), "n", seeds=6)
    slots = row.at("small").slots()
    assert Counter(str(slot.arm) for slot in slots) == {"SGD": 6, "SVAG ell=2": 6, "SVAG ell=8": 4}
