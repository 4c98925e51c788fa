"""The map from labels to code, tests and commands says what is so."""

import re
from pathlib import Path

import pytest
from tests.docs.tools import ROOT, load

from svag.paper.figures import LABELS as FIGURES
from svag.paper.verify import LABELS

TESTS = ROOT / "tests"
REWRITE = "run `python tools/make_map.py`"


tool = load("make_map")
NAMED: dict[str, list[str]] = tool.naming(tool.SOURCE)
PAGE = tool.PAGE.read_text(encoding="utf-8")
MAP = PAGE.removeprefix(tool.before(PAGE))
ROWS = [
    re.split(r"(?<!\\)\|", line)[1:-1]
    for line in MAP.partition("### Remarks")[0].splitlines()
    if line.startswith("| `")
]


def files(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


PAPER = (TESTS / "paper" / "labels.txt").read_text().split()
OURS = {label for label in LABELS if label.startswith("ours:")}


def homeless(named: set[str], see: dict[str, str]) -> set[str]:
    """The labels of the paper that nothing implements, checks or draws, themselves or by another label."""
    return {label for label in PAPER if see.get(label, label) not in named}


def test_every_label_of_the_paper_and_ours_has_one_row() -> None:
    assert len(PAPER) == len(set(PAPER)) == 95
    assert sorted(files(row[0])[0] for row in ROWS) == sorted({*PAPER, *OURS}), REWRITE
    assert set(tool.ROWS) == {*PAPER, *OURS}
    assert all(tool.LABEL.fullmatch(label) for label in tool.ROWS), "a label that would not be found in the sources"
    assert set(NAMED) <= set(tool.ROWS), "the software names a label that the paper has not"
    assert sum(len(group) for group in tool.GROUPS.values()) == len(tool.ROWS), "a label is in two groups"


def test_every_label_has_a_place() -> None:
    assert homeless(set(NAMED), tool.SEE) == set()
    assert not set(tool.SEE) & set(NAMED), "named by now: it needs no other label"
    assert set(tool.SEE.values()) <= set(PAPER)


def test_a_label_without_a_place_is_seen() -> None:
    """Negative controls: a section that nothing stands for, and a lemma that the sources forget."""
    assert homeless(set(NAMED), {one: tool.SEE[one] for one in tool.SEE if one != "appsec:sc"}) == {"appsec:sc"}
    assert homeless(set(NAMED) - {"lem:sc"}, tool.SEE) == {"lem:sc", "appsec:sc"}


def test_remarks_are_shown_or_left_out_for_a_reason() -> None:
    shown = [one for one in tool.REMARKS if one.shown]
    assert all(bool(one.shown) != bool(one.why) for one in tool.REMARKS)
    assert {one.at for one in tool.REMARKS} <= set(PAPER)
    assert {one.at for one in tool.REMARKS if one.why} >= {
        "eq:divisible_noise",  # ghost BatchNorm
        "subsec:app_sde_schemes",  # Milstein, Runge–Kutta
        "thm:app_1st_2nd_sde",  # the second-order SDE on networks
    }
    for one in shown:
        command, label = one.shown.rsplit(" ", 1)
        assert label in {"svag verify": set(LABELS), "svag reproduce": set(FIGURES)}[command]
    assert MAP.partition("### Remarks")[2].count("\n| `") == len(tool.REMARKS), REWRITE


def related(label: str, code: list[str], test: str) -> bool:
    """Whether the test has to do with the label: it names it, imports its code, lies beside it, or checks it."""
    if label == "def:glsr":
        return "glsr" in (TESTS / test).read_text(encoding="utf-8")  # the kind of process, by its name in a spec
    if test == tool.VERIFIED:
        return label in LABELS or any(name.startswith("paper/verify/") for name in code)
    beside = {str(Path(name).parent) for name in code}
    return label in tool.labels_in(TESTS / test) or test in tool.importing(code) or str(Path(test).parent) in beside


@pytest.mark.parametrize("row", [pytest.param(row, id=files(row[0])[0]) for row in ROWS])
def test_a_row_says_what_is_so(row: list[str]) -> None:
    [label], code, test, command = files(row[0]), files(row[2]), files(row[3]), files(row[4])
    assert files(row[1])[-1:] == ([tool.SEE[label]] if label in tool.SEE else []), REWRITE
    label = tool.SEE.get(label, label)
    assert code, REWRITE
    assert set(code) <= set(NAMED.get(label, [])), f"{REWRITE}: a file that does not name {label}"
    assert all((TESTS / name).is_file() for name in test)
    chosen = tool.ROWS[label][1]
    assert chosen is None or test == [chosen], REWRITE
    assert all(related(label, code, name) for name in test), f"{test} has nothing to do with {label}"
    expected = tool.command_of(label, NAMED[label])
    assert command == ([expected] if expected else []), REWRITE


def test_a_test_that_has_nothing_to_do_with_a_label_is_seen() -> None:
    assert not related("thm:test", ["theory/tail_index.py"], "lab/cli/test_data.py")
    assert not related("def:lsr", ["theory/optimizers.py"], tool.VERIFIED)


def test_labels_become_commands() -> None:
    assert tool.command_of("lem:D", ["theory/weights.py"]) == "svag verify"
    assert tool.command_of("fig:svag_accs", ["paper/figures/compare.py"]) == "svag reproduce"
    assert tool.command_of("fig:svag_accs", ["lab/models/networks.py"]) == ""
    assert tool.command_of("def:lsr", ["experiments/ladder.py"]) == ""


def test_files_that_only_gather_are_left_out() -> None:
    assert tool.code_of(["cli/verify.py", "noise/__init__.py", "noise/probe.py"]) == ["noise/probe.py"]
    assert tool.code_of(["noise/__init__.py"]) == ["noise/__init__.py"]
