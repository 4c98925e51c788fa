"""Every label of the paper's figures, at every size."""

import re
from pathlib import Path
from typing import get_args

import pytest

from svag.lab.experiments import experiment_from, load_experiment
from svag.lab.experiments.base import Size
from svag.lab.specs.fields import SpecError
from svag.lab.specs.optimizers import SgdOptimizer
from svag.lab.specs.parts import SvagSpec
from svag.lab.specs.spec import RunSpec
from svag.paper.figures import LABELS, UNVERIFIED, family, figure
from svag.paper.verify import LABELS as CHECKED

# figures.md of the design, label by label
COMPARE = "svag_accs app_svag_sampling app_svag_baselines app_svag_otherarch app_svag_triangle app_svag_cosine "
COMPARE += "app_svag_c100 app_svag_svhn"
LADDER = "lsr_acc_gnr app_lsr_c10 app_lsr_c100 app_lsr_svhn"
NGD = "ngd_sgd_accs ngd_sgd_b500 ngd_sgd_b125 ngd_sgd_vgg"
THEORY = """thm:sde_svag fig:proof_concept lem:D lem:Dtil thm:one_step_to_multi_steps app:lem:ito_taylor
lem:sgd_moment_estimate lem:sc cor:sc lem:2nd_sde_hessian eq:norm_sgd_wd eq:norm_sde_wd sec:counterexample
subsec:app_levy_sde thm:eq_sde_sgd thm:lsr_condition thm:lsr_kappa_bound thm:app_1st_2nd_sde thm:2nd_order_sde thm:test
thm:test_on_gaussian sec:app_heayvtailed fig:app_exotic_lr lem:u_eta_estimate
app:lem:delta_prod_estimate eq:noisy_gd"""
TRAINED = [f"fig:{name}" for name in f"{COMPARE} {LADDER} {NGD}".split()] + ["eq:noise_decomposition"]


def test_every_label_has_its_family() -> None:
    wanted = {f"fig:{name}": "compare" for name in COMPARE.split()} | {"eq:noise_decomposition": "compare"}
    wanted |= {f"fig:{name}": "ladder" for name in LADDER.split()}
    wanted |= {f"fig:{name}": "ngd" for name in NGD.split()}
    wanted |= dict.fromkeys(THEORY.split(), "theory")
    assert wanted == LABELS


def test_the_theory_is_what_verify_checks_and_two_labels_more() -> None:
    theory = {label for label in LABELS if family(label) == "theory"}
    assert set(UNVERIFIED) == {"sec:app_heayvtailed", "fig:app_exotic_lr"}
    of_the_paper = {label for label in CHECKED if not label.startswith("ours:")}
    assert theory == of_the_paper | set(UNVERIFIED)
    assert not set(CHECKED) & set(UNVERIFIED)


@pytest.mark.parametrize("size", get_args(Size))
@pytest.mark.parametrize("label", TRAINED)
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
    if size != "paper":
        assert {spec.data.name for spec in specs} == {"fashion-small"}, "no download"


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
        data: {name: fashion-small, augment: {pad: 1, flip: true}}
        model: {arch: vgg11, norm: group, width: 0.125, scale_invariant: true}
        batch_size: 16
        lr: 0.1
        weight_decay: 5.0e-3
        budget: {epochs: 6}
        probe: {kind: in_run, parts: 4, window: [0.5, 1.0], every: 0.0005}
        evaluate: {every: 0.025}
    """)
    rates = {8: 0.05, 16: 0.1, 32: 0.2, 64: 0.4, 128: 0.8, 256: 1.6, 512: 3.2}
    wanted = [
        base.edited({"batch_size": size, "lr": lr, "seed": seed}) for size, lr in rates.items() for seed in (0, 1)
    ]
    assert figure("fig:lsr_acc_gnr", "small").runs()[-14:] == wanted


@pytest.mark.parametrize(
    ("label", "panel", "member"),
    [
        ("fig:lsr_acc_gnr", 0, "bn_invariant"),
        ("fig:lsr_acc_gnr", 1, "gn_invariant"),
        ("fig:app_lsr_c10", 0, "bn_small_lr"),
    ],
)
def test_panels_that_the_atlas_has_are_its_runs(label: str, panel: int, member: str) -> None:
    atlas = load_experiment(Path(__file__).parents[3] / "results" / "atlas" / member)
    assert atlas is not None
    small = figure(label, "small")
    runs = {spec for slot, spec in small.slots().items() if slot.panel == panel}
    smallest = min(spec.batch_size for spec in atlas.runs())
    own = {spec for spec in runs if spec.seed > 1 or spec.batch_size < smallest}
    assert set(atlas.runs()) == runs - own, "the figure may have more seeds, and begin lower"


def test_svag_stands_at_two_rungs_of_one_ladder() -> None:
    """SGD at every batch size, SVAG at 128 and 512 alone."""
    specs = figure("fig:app_lsr_svhn", "small").runs()
    assert {spec.batch_size for spec in specs if spec.process.kind == "sgd"} == {16, 32, 64, 128, 256, 512}
    arms = {(spec.batch_size, spec.process.ell) for spec in specs if isinstance(spec.process, SvagSpec)}
    assert arms == {(128, 2), (128, 8), (512, 2), (512, 8)}


def test_a_label_that_cannot_be_trained_is_refused() -> None:
    with pytest.raises(SpecError, match="svag verify checks it"):
        figure("thm:sde_svag", "small")
    with pytest.raises(SpecError, match="did you mean fig:lsr_acc_gnr"):
        figure("fig:lsr_acc_gn", "small")
    with pytest.raises(SpecError, match="size: must be one of smoke, small, paper, got 'large'"):
        figure("fig:lsr_acc_gnr", "large")  # type: ignore[arg-type]


def test_the_page_of_experiments_has_a_row_for_every_figure() -> None:
    page = (Path(__file__).parents[3] / "docs" / "experiments.md").read_text()
    rows = dict(re.findall(r"^\| `((?:fig|eq):\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert rows == {label: LABELS[label] for label in TRAINED}
