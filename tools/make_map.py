"""Writes the end of docs/theorems.md: each label of the paper with code, test and command, and what is left out.

    python tools/make_map.py

What a label says, and which test to look at, is written down here for every label of the paper, but for what the labels
of the theory say, which the commands show too; code and commands are read off the sources. A label that the software
does not name, such as that of a section, has the code of another one (`SEE`). Remarks without a label of their own have
a table of their own: where they are shown, or why they are left out (`REMARKS`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from svag.paper.figures import THEORY
from svag.paper.verify import LABELS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "svag"
PAGE = ROOT / "docs" / "theorems.md"
LABEL = re.compile(
    r"(?<![\w:])((?:ours|thm|lem|cor|eq|fig|sec|subsec|def|app|appsec|app_sec):(?:lem:)?[A-Za-z0-9_]+(?:-[a-z]+)*)"
)
VERIFIED = "paper/test_labels.py"
ABOUT_LABELS = (
    "docs/",
    "lab/cli/",
    "paper/cli/",
    "test_architecture.py",
)  # tests that name labels and are not about what they say

HEAD = """## From label to code

Each label of the paper: what it says, where to look (in `src/svag/`), a test (in `tests/`), and the command that shows
it, followed by the label. A row with a second label in brackets shows the code of that one. `tools/make_map.py` writes
this section from the sources.
"""
GATHERING = ("__init__.py", "paper/figures/settings.py")
LOOKED_AT = 2  # files shown for a label, those nearest to the mathematics
NEAREST = (
    "theory/",
    "dynamics/",
    "noise/",
    "paper/exact/",
    "paper/verify/",
    "paper/figures/",
    "lab/",
    "prices/",
    "paper/",
)

# label: what it says, and the test to look at (under tests/; None: the one that names the label or imports its code)
GROUPS: dict[str, dict[str, tuple[str, str | None]]] = {
    "SVAG and its limit": {
        "sec:svag": ("the algorithm: two weights, mean kept, covariance times l", "theory/test_weights.py"),
        "eq:sgd_iter": ("one step of SGD", None),
        "eq:svag_iter": ("one step of SVAG", "dynamics/test_svag_moments.py"),
        "eq:motivating_sde": ("the Itô SDE of SGD", "paper/exact/test_affine.py"),
        "eq:noisy_gd": (THEORY["eq:noisy_gd"], "dynamics/test_noisy_gd.py"),
        "eq:em": ("Euler–Maruyama of the SDE", "dynamics/test_noisy_gd.py"),
        "eq:noise_decomposition": ("discretisation plus non-Gaussian noise", None),
        "def:weak_approx": ("weak error: the largest over all steps", "paper/exact/test_weak_order.py"),
        "def:test_func": ("test functions of polynomial growth", None),
        "subsec:svagsde": ("SVAG approximates the SDE", None),
        "subsec:app_sde_schemes": ("schemes that solve SDEs", None),
        "thm:sde_svag": (THEORY["thm:sde_svag"], VERIFIED),
        "fig:proof_concept": (THEORY["fig:proof_concept"], VERIFIED),
        "lem:D": (THEORY["lem:D"], "dynamics/test_svag_moments.py"),
        "lem:Dtil": (THEORY["lem:Dtil"], VERIFIED),
        "thm:one_step_to_multi_steps": (THEORY["thm:one_step_to_multi_steps"], VERIFIED),
        "app:lem:ito_taylor": (THEORY["app:lem:ito_taylor"], VERIFIED),
        "lem:sgd_moment_estimate": (THEORY["lem:sgd_moment_estimate"], VERIFIED),
        "appsec:svag_details": ("the proof of the limit", None),
        "sec:one_to_n_step": ("from one step to many", None),
        "fig:app_proof_overview": (THEORY["fig:app_proof_overview"], None),
        "lem:u_eta_estimate": (THEORY["lem:u_eta_estimate"], VERIFIED),
        "app:lem:delta_prod_estimate": (THEORY["app:lem:delta_prod_estimate"], VERIFIED),
        "app_sec:aux_2": ("lemmas of the proof", None),
    },
    "Linear scaling": {
        "def:lsr": ("the linear scaling rule", "theory/test_optimizers.py"),
        "def:glsr": ("the rule continued to fractions of a batch: the coupled ladder", "lab/training/test_run.py"),
        "def:lsi": ("(C, κ)-linear-scaling invariance", "theory/test_bounds.py"),
        "thm:lsr_condition": (THEORY["thm:lsr_condition"], "theory/test_bounds.py"),
        "thm:lsr_kappa_bound": (THEORY["thm:lsr_kappa_bound"], "theory/test_bounds.py"),
        "subsec:provable_lsr_failure": ("where linear scaling fails provably", None),
        "eq:C_kappa_close": ("what the invariance compares", None),
        "eq:R_to_GN": ("the condition on N/G of the large run", None),
        "eq:lb_RGN_sgd": ("balance of the large run", None),
        "eq:sb_RGN_sgd": ("balance of the baseline", None),
    },
    "The gain rule (a label of our own)": {
        "ours:gain_rule": (
            "only the rate κ/D, up to ηλ, can keep R, G and κN at κ times the batch",
            "theory/test_gain.py",
        ),
    },
    "Equilibrium of scale-invariant losses": {
        "sec:failure_mode_1": ("scale-invariant losses with weight decay", "lab/networks/test_build.py"),
        "subsec:provable_sde_failure": ("where the SDE fails provably", None),
        "appsec:omit_proofs_lsr": ("the proofs", None),
        "appsec:sc": ("properties of scale-invariant functions", None),
        "eq:sgd_wd": ("SGD with weight decay", None),
        "eq:sde_wd": ("its SDE", None),
        "eq:app_sgd_wd": ("SGD with weight decay, again", None),
        "eq:app_1st_sde_wd": ("its first-order SDE", None),
        "eq:C_close": ("what C-closeness compares", None),
        "eq:app_C_close": ("the same for two SDEs", None),
        "def:c_close": ("C-closeness of the equilibria of SGD and SDE", "theory/test_bounds.py"),
        "def:app_lsi": ("C-closeness of two SDEs", "theory/test_bounds.py"),
        "thm:eq_sde_sgd": (THEORY["thm:eq_sde_sgd"], "theory/test_bounds.py"),
        "thm:app_1st_2nd_sde": (THEORY["thm:app_1st_2nd_sde"], "theory/test_bounds.py"),
        "eq:norm_sgd_wd": (THEORY["eq:norm_sgd_wd"], VERIFIED),
        "eq:norm_sde_wd": (THEORY["eq:norm_sde_wd"], VERIFIED),
        "eq:RGN_sgd": ("balance of R, G and N for SGD", "theory/test_equilibrium.py"),
        "eq:RGN_sde": ("balance for the SDE", "theory/test_equilibrium.py"),
        "eq:app_RGN_2nd_sde": ("balance for the second-order SDE", "theory/test_equilibrium.py"),
        "eq:app_ito_lemma": ("the weight norm of the second-order SDE in time", "theory/test_equilibrium.py"),
        "eq:app_2nd_sde_wd": ("the second-order SDE", "paper/exact/test_affine.py"),
        "eq:2nd-sgd-sde-wd": ("the same, written out", None),
        "thm:2nd_order_sde": (THEORY["thm:2nd_order_sde"], VERIFIED),
        "lem:sc": (THEORY["lem:sc"], "noise/test_invariance.py"),
        "cor:sc": (THEORY["cor:sc"], "paper/verify/test_network.py"),
        "lem:2nd_sde_hessian": (THEORY["lem:2nd_sde_hessian"], "paper/verify/test_network.py"),
    },
    "Noise that is not Gaussian": {
        "sec:counterexample": (THEORY["sec:counterexample"], "paper/exact/test_poisson.py"),
        "def:poisson_process": ("Poisson processes", None),
        "def:levy_process": ("Lévy processes", None),
        "sec:levy_sde_prelim": ("stochastic processes", None),
        "eq:divisible_noise": ("infinitely divisible noise", "paper/exact/test_affine.py"),
        "subsec:app_levy_sde": (THEORY["subsec:app_levy_sde"], VERIFIED),
        "eq:levy_sde": ("that Lévy SDE", "paper/exact/test_affine.py"),
        "eq:levy_sde_sgd": ("SGD with parts of its noise", None),
        "fig:diagram": (THEORY["fig:diagram"], None),
        "sec:heavy_tailed": ("is the noise heavy-tailed?", None),
        "sec:app_heayvtailed": (THEORY["sec:app_heayvtailed"], None),
        "thm:test": (THEORY["thm:test"], "theory/test_tail_index.py"),
        "thm:test_on_gaussian": (THEORY["thm:test_on_gaussian"], "theory/test_tail_index.py"),
    },
    "Adam, AdamW and RMSprop (labels of our own)": {
        "ours:rmsprop_sde": ("SVAG around RMSprop is an order-1 weak approximation of its SDE", VERIFIED),
        "ours:adam_sde": ("the same for Adam and AdamW, with bias corrections", VERIFIED),
        "ours:square_root_rule": ("the distortion of the square-root rule", VERIFIED),
    },
    "Figures: SGD and SVAG": {
        "sec:experiments": ("the experiments", None),
        "sec:app_exp": ("their settings", None),
        "subsec:app_svag_exp": ("settings of SVAG", None),
        "fig:svag_accs": ("PreResNet-32 at B = 64 and 1024", None),
        "fig:app_svag_sampling": ("three ways to sample", None),
        "fig:app_svag_baselines": ("PreResNet-32: BatchNorm, wide, GroupNorm", None),
        "fig:app_svag_otherarch": ("VGG-16: no norm, BatchNorm, GroupNorm", None),
        "fig:app_svag_triangle": ("a triangular schedule", None),
        "fig:app_svag_cosine": ("a cosine schedule", None),
        "fig:app_svag_c100": ("CIFAR-100", None),
        "fig:app_svag_svhn": ("SVHN", None),
        "fig:app_exotic_lr": (THEORY["fig:app_exotic_lr"], None),
    },
    "Figures: the ladder": {
        "subsec:app_lsr_exps": ("settings of the ladder", None),
        "fig:lsr_acc_gnr": ("test error and G/N against the batch size", None),
        "fig:app_lsr_c10": ("CIFAR-10: ResNet-32, and PreResNet-32 4×", None),
        "fig:app_lsr_c100": ("CIFAR-100", None),
        "fig:app_lsr_svhn": ("SVHN", None),
    },
    "Figures: noisy gradient descent": {
        "sec:app_ngd_exps": ("settings of NGD", None),
        "fig:ngd_sgd_accs": ("PreResNet-32 4×, B = 125", None),
        "fig:ngd_sgd_b500": ("PreResNet-32, B = 500", None),
        "fig:ngd_sgd_b125": ("PreResNet-32, B = 125", None),
        "fig:ngd_sgd_vgg": ("VGG-16, B = 125", None),
    },
}
ROWS = {label: row for group in GROUPS.values() for label, row in group.items()}

# labels that the software does not name: sections, and equations that others contain or repeat
SEE = {
    "app_sec:aux_2": "app:lem:ito_taylor",
    "appsec:omit_proofs_lsr": "thm:lsr_kappa_bound",
    "appsec:sc": "lem:sc",
    "appsec:svag_details": "thm:sde_svag",
    "def:levy_process": "eq:levy_sde",
    "def:poisson_process": "sec:counterexample",
    "def:test_func": "def:weak_approx",
    "eq:2nd-sgd-sde-wd": "eq:app_2nd_sde_wd",
    "eq:C_close": "def:c_close",
    "eq:C_kappa_close": "def:lsi",
    "eq:R_to_GN": "thm:lsr_condition",
    "eq:app_1st_sde_wd": "eq:norm_sde_wd",
    "eq:app_C_close": "def:app_lsi",
    "eq:app_sgd_wd": "eq:norm_sgd_wd",
    "eq:lb_RGN_sgd": "eq:RGN_sgd",
    "eq:levy_sde_sgd": "def:glsr",
    "eq:sb_RGN_sgd": "eq:RGN_sgd",
    "eq:sde_wd": "eq:norm_sde_wd",
    "eq:sgd_iter": "eq:svag_iter",
    "eq:sgd_wd": "eq:norm_sgd_wd",
    "sec:app_exp": "fig:svag_accs",
    "sec:experiments": "fig:svag_accs",
    "sec:heavy_tailed": "sec:app_heayvtailed",
    "sec:levy_sde_prelim": "eq:levy_sde",
    "sec:one_to_n_step": "thm:one_step_to_multi_steps",
    "subsec:app_sde_schemes": "eq:em",
    "subsec:provable_lsr_failure": "thm:lsr_kappa_bound",
    "subsec:provable_sde_failure": "thm:eq_sde_sgd",
    "subsec:svagsde": "thm:sde_svag",
}


@dataclass(frozen=True)
class Remark:
    """What the paper says without a label of its own.

    Attributes:
        at: the label that it stands at.
        what: it says.
        shown: the command that shows it; nothing if it is left out.
        why: it is left out; nothing if it is shown.
    """

    at: str
    what: str
    shown: str = ""
    why: str = ""


REMARKS = (
    Remark("lem:D", "three or more batches a step, with other weights, reach the same SDE", "svag verify lem:D"),
    Remark(
        "thm:eq_sde_sgd",
        "along the linear scaling rule SGD degrades, and its SDE does not",
        "svag reproduce fig:app_lsr_svhn",
    ),
    Remark(
        "fig:app_svag_c100",
        "BatchNorm ends above GroupNorm, and GroupNorm improves with ell",
        "svag reproduce fig:app_svag_c100",
    ),
    Remark(
        "sec:app_heayvtailed",
        "Tr Σ does not grow with the number of batches",
        "svag reproduce sec:app_heayvtailed",
    ),
    Remark(
        "thm:sde_svag",
        "condition (ii) holds for networks with norms as long as the weights stay away from 0 and infinity",
        why="a condition for the proof on a path, which no finite set of readings can establish",
    ),
    Remark(
        "eq:divisible_noise",
        "ghost BatchNorm makes batches divisible",
        why="no figure uses it; GroupNorm makes batches divisible too, and is what the ladders and split SVAG use",
    ),
    Remark(
        "subsec:app_sde_schemes",
        "Milstein and stochastic Runge–Kutta schemes",
        why="a step needs the full gradient, Σ^½ and its derivatives, which the paper calls intractable; extrapolating "
        "SVAG in ell has weak order 2 without them (`svag verify thm:sde_svag`)",
    ),
    Remark(
        "thm:app_1st_2nd_sde",
        "the second-order SDE on networks",
        why="a step needs ∇²L∇L over all data, and its balance at equilibrium is that of SGD up to terms of ηλ "
        "(`eq:app_RGN_2nd_sde`); it is checked where answers are exact (`svag verify thm:2nd_order_sde`)",
    ),
)


def labels_in(path: Path) -> set[str]:
    """The labels that a file names."""
    return set(LABEL.findall(path.read_text(encoding="utf-8")))


def naming(folder: Path) -> dict[str, list[str]]:
    """For each label, the files in a folder that name it, as paths inside it."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*.py")):
        for label in labels_in(path):
            found.setdefault(label, []).append(path.relative_to(folder).as_posix())
    return found


def code_of(files: list[str]) -> list[str]:
    """The files to show: those that do something, not those that gather others or print them."""
    doing = [name for name in files if not name.endswith(GATHERING) and "cli" not in name.split("/")]
    return sorted(doing or files, key=_distance)[:LOOKED_AT]


def _distance(name: str) -> int:
    return next((place for place, folder in enumerate(NEAREST) if name.startswith(folder)), len(NEAREST))


def test_of(label: str, code: list[str], tests: dict[str, list[str]]) -> str:
    """The test to look at: the one written down, else one that names the label, else one that imports its code."""
    chosen = ROWS[label][1]
    if chosen is not None:
        return chosen
    naming_it = [name for name in tests.get(label, []) if not name.startswith(ABOUT_LABELS)]
    return next(iter([*naming_it, *importing(code)]), "")


def importing(code: list[str]) -> Iterator[str]:
    """The tests that import one of these files, those beside it first."""
    modules = {"svag." + name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): name for name in code}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        imported = set(re.findall(r"(?:from|import) (svag\.[\w.]+)", path.read_text(encoding="utf-8")))
        if imported & set(modules):
            yield path.relative_to(ROOT / "tests").as_posix()


def command_of(label: str, code: list[str]) -> str:
    """What to type before the label; nothing for a definition that only has code."""
    if label in LABELS:
        return "svag verify"
    if label.startswith(("fig:", "sec:app_hea")) and any(name.startswith("paper/figures") for name in code):
        return "svag reproduce"
    return ""


def section() -> str:
    """The section on the page."""
    named, tests = naming(SOURCE), naming(ROOT / "tests")
    lines = [HEAD]
    for title, rows in GROUPS.items():
        lines += [f"### {title}", "", "| label | what | code | test | command |", "|---|---|---|---|---|"]
        lines += [_row(label, named[SEE.get(label, label)], tests) for label in rows]
        lines.append("")
    lines += ["### Remarks without a label", "", "| at | remark | shown by, or left out because |", "|---|---|---|"]
    lines += [f"| `{one.at}` | {one.what} | {_code(one.shown) if one.shown else one.why} |" for one in REMARKS]
    return "\n".join([*lines, ""])


def before(text: str) -> str:
    """The page up to the section, which is its last."""
    return text.partition(HEAD.partition("\n")[0])[0]


def _row(label: str, files: list[str], tests: dict[str, list[str]]) -> str:
    code, shown = code_of(files), SEE.get(label, label)
    cells = (
        f"`{label}`",
        ROWS[label][0].replace("|", r"\|") + (f" (`{shown}`)" if shown != label else ""),
        "<br>".join(f"`{name}`" for name in code),
        _code(test_of(shown, code, tests)),
        _code(command_of(shown, files)),
    )
    return "| " + " | ".join(cells) + " |"


def _code(text: str) -> str:
    return f"`{text}`" if text else "–"


if __name__ == "__main__":
    PAGE.write_text(before(PAGE.read_text(encoding="utf-8")) + section(), encoding="utf-8")
