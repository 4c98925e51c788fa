"""Thousands of hostile specs: through the reader, through the plan of an experiment, and some through the command."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.campaigns.calls import LONGEST
from tests.lab.specs.fuzz import Hostile, answers_within, hostile_specs, refusal
from typer.testing import CliRunner

from svag.lab.execution.plan import plan_runs
from svag.lab.experiments.ladder import Ladder
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec
from svag.paper.cli.app import app

SEEDS, SPECS, COMMANDS = (18_101, 18_102), 2_700, 60


def end_of(hostile: Hostile, out: Path) -> str:
    """How a spec ended: "a plan", "a refusal", or what is wrong with it. What is accepted is also planned."""
    try:
        with answers_within(20):
            sentence = refusal(hostile)
            if sentence is None:
                spec = RunSpec.from_yaml(hostile) if isinstance(hostile, str) else RunSpec.from_dict(hostile)
                sizes = [spec.batch_size, 2 * spec.batch_size]
                plan_runs(Ladder.of(spec, sizes, 1).runs(), out)
                return "a plan"
    except SpecError as error:
        sentence = str(error)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"
    return "a refusal" if len(sentence) <= LONGEST and "\n" not in sentence else f"{len(sentence)} characters"


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_specs(seed: int, tmp_path: Path, say: Callable[[str], None], seeded: Callable[[int], int]) -> None:
    seed = seeded(seed)
    ends, wrong = Counter[str](), []
    for number, hostile in enumerate(hostile_specs(seed, SPECS)):
        end = end_of(hostile, tmp_path)
        if end in {"a plan", "a refusal"}:
            ends[end] += 1
        else:
            wrong.append(f"spec {number}: {end}: {str(hostile)[:300]}")
    say(f"{SPECS} hostile specs (seed {seed}): {dict(ends)}, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
    assert ends.total() == SPECS
    assert min(ends.values()) > SPECS // 50
    assert list(tmp_path.iterdir()) == []  # nothing is written to find out


@pytest.mark.slow
def test_hostile_specs_at_the_command(tmp_path: Path, say: Callable[[str], None], seeded: Callable[[int], int]) -> None:
    seed = seeded(18_103)
    ends, wrong = Counter[int](), []
    path = tmp_path / "spec.yaml"
    for number, hostile in enumerate(hostile_specs(seed, COMMANDS)):
        try:
            text = hostile if isinstance(hostile, str) else yaml.safe_dump(hostile, default_flow_style=None)
            path.write_text(text, encoding="utf-8", newline="")
        except (yaml.YAMLError, UnicodeEncodeError, RecursionError, ValueError):
            path.write_bytes(b"\xff\xfe\x00")  # what no file can hold as text
        arguments = [
            "ladder",
            str(path),
            "--batch-sizes",
            "8,16",
            "--seeds",
            "1",
            "--dry-run",
            "--out",
            str(tmp_path / "o"),
        ]
        with answers_within(60):
            result = CliRunner().invoke(app, arguments)
        ends[result.exit_code] += 1
        lines = result.stderr.strip().splitlines()
        if result.exit_code == 2 and not (len(lines) == 1 and len(lines[0]) < LONGEST + len(str(path))):
            wrong.append(f"spec {number}: {result.output[:400]}")
        elif result.exit_code not in {0, 2}:
            wrong.append(
                f"spec {number}: exit code {result.exit_code}: {result.exception!r:.300}: {str(hostile)[:300]}"
            )
    say(
        f"{COMMANDS} hostile specs as `svag ladder --dry-run` (seed {seed}): "
        f"exit codes {dict(ends)}, {len(wrong)} wrong"
    )
    assert not wrong, "\n".join(wrong)
    assert not (tmp_path / "o").exists()


def test_the_campaign_notices_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert end_of("lr: [", tmp_path) == "a refusal"
    monkeypatch.setattr("tests.campaigns.test_specs.refusal", lambda _: 1 / 0)
    assert end_of("lr: 1", tmp_path).startswith("ZeroDivisionError")
    monkeypatch.setattr("tests.campaigns.test_specs.refusal", lambda _: "x" * 401)
    assert end_of("lr: 1", tmp_path) == "401 characters"
