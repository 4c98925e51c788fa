"""`svag verify` as a user runs it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from svag.paper.cli.app import app
from svag.paper.cli.verify import _print
from svag.paper.exact.processes import Ito, SmallerBatches
from svag.paper.verify import svag_limit, thresholds
from svag.paper.verify.beds import SKEWED
from svag.paper.verify.check import Check

run = CliRunner().invoke


def test_one_label_prints_a_table_and_succeeds() -> None:
    result = run(app, ["verify", "lem:Dtil"], env={"COLUMNS": "140"})
    assert result.exit_code == 0, result.output
    assert "lem:Dtil" in result.stdout
    assert "9 of 9 checks pass for 1 label; 2 of them are negative controls." in result.stdout


def test_without_details_the_answer_takes_twelve_lines_and_every_failure_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    good = [Check(f"lem:{label}", f"claim {n} " * 9, 1.0, 0.0, 2.0) for label in "abc" for n in range(9)]
    bad = [Check("lem:c", f"broken {n}", 5.0, 0.0, 2.0) for n in range(14)]
    for checks, lines, failing in ((good, 12, 0), (good + bad, 18, 14)):
        _print(checks, details=False)
        out = capsys.readouterr().out.splitlines()
        assert len(out) <= lines
        assert max(map(len, out)) <= 80
        assert sum(line.startswith("FAIL") for line in out) == failing
        _print(checks, details=True)
        out = capsys.readouterr().out.splitlines()
        assert sum(line.startswith(("pass", "FAIL")) for line in out) == len(checks)
    _print(good, details=False)
    brief = capsys.readouterr().out
    assert all(f"lem:{label}" in brief for label in "abc")


@pytest.mark.parametrize("columns", ["40", "60"])
def test_a_narrow_terminal_still_shows_the_result_and_the_claim(columns: str) -> None:
    result = run(app, ["verify", "app:lem:ito_taylor", "--details"], env={"COLUMNS": columns})
    assert result.stdout.count("pass ") >= 2
    assert "without" in result.stdout


def test_output_that_cannot_show_greek_is_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "svag", "verify", "lem:Dtil"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
    )
    assert done.returncode == 0, done.stderr


def test_scale_invariance_is_also_checked_on_a_network() -> None:
    result = run(app, ["verify", "cor:sc", "lem:2nd_sde_hessian", "--json"])
    checks = json.loads(result.stdout)
    on_network = [check for check in checks if "network" in check["claim"]]
    assert {(check["label"], check["control"]) for check in on_network} == {
        (label, control) for label in ("cor:sc", "lem:2nd_sde_hessian") for control in (False, True)
    }
    assert all(check["passed"] for check in checks)


def test_the_shipped_optimizers_are_stepped() -> None:
    """svag.SVAG under lem:D, with the same batch twice as its negative control, and svag.NoisyGD under eq:noisy_gd."""
    result = run(app, ["verify", "lem:D", "eq:noisy_gd", "--json"])
    checks = json.loads(result.stdout)
    claims = [check["claim"] for check in checks]
    assert sum("svag.SVAG" in claim for claim in claims) == 5
    assert sum("svag.NoisyGD" in claim for claim in claims) == 1
    assert sum("same batch twice" in claim for claim in claims) == 2
    assert all(check["passed"] for check in checks)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("max_kappa", "thm:lsr_kappa_bound"),
        ("distortion", "thm:lsr_kappa_bound"),
        ("large_run_threshold", "thm:lsr_condition"),
        ("sde_threshold", "thm:eq_sde_sgd"),
        ("max_lr_of_sde", "thm:eq_sde_sgd"),
        ("momentum_excess", "thm:eq_sde_sgd"),
        ("max_lr_of_second_order_sde", "thm:app_1st_2nd_sde"),
    ],
)
@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_threshold_off_by_one_percent_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, label: str, factor: float
) -> None:
    right = getattr(thresholds, name)
    monkeypatch.setattr(thresholds, name, lambda *values, **named: factor * right(*values, **named))
    checks = [check for check in thresholds.both_sides(np.random.default_rng(0)) if check.label == label]
    assert any(not check.passed for check in checks if not check.control)


def test_json_holds_every_check() -> None:
    result = run(app, ["verify", "app:lem:ito_taylor", "--json"])
    checks = json.loads(result.stdout)
    assert [check["control"] for check in checks] == [False, False, True, False, True, False]
    assert set(checks[0]) == {"label", "claim", "measured", "low", "high", "control", "passed"}


def test_an_unknown_label_is_one_sentence_with_the_remedy() -> None:
    result = run(app, ["verify", "thm:sde_svg"])
    assert result.exit_code == 2
    assert "did you mean" in result.stderr
    assert "thm:sde_svag" in result.stderr
    assert "Traceback" not in result.output


def test_a_failing_check_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Certify the ladder as if it were SVAG: the command must notice."""
    broken = svag_limit.affine_order(SKEWED, SmallerBatches, Ito())
    monkeypatch.setattr(svag_limit, "affine_order", lambda *_: broken)
    result = run(app, ["verify", "thm:sde_svag"])
    assert result.exit_code == 1
    assert "FAIL" in result.stdout


def test_the_version() -> None:
    result = run(app, ["--version"])
    assert result.stdout.startswith("svag ")
