"""Valid random specs run: thirty of them, a few steps each, and none ends in anything but an outcome or a sentence."""

import random
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from tests.lab.specs.specs import any_spec
from tests.lab.training.small import write_npz

from svag.lab.records.record import RunFailed
from svag.lab.specs.documents import edited
from svag.lab.specs.fields import SpecError
from svag.lab.specs.spec import RunSpec
from svag.lab.training.run import run

WANTED = 30


def test_thirty_random_valid_specs_run(tmp_path: Path) -> None:
    npz = write_npz(tmp_path / "data.npz", pixels=14)
    valid: dict[str, RunSpec] = {}

    short = {
        "data.name": "npz",
        "data.path": str(npz),
        "data.subset": 40,
        "budget": 4,
        "schedule": {"kind": "constant"},
    }

    @settings(max_examples=1000, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(any_spec(junk=False))
    def draw(fields: Any) -> None:
        pool = {} if 14 % fields["data"].get("pool", 1) == 0 else {"data.pool": 2}  # what 14 pixels allow
        window = {"probe.window": [0, 4]} if fields.get("probe", {"kind": "none"})["kind"] != "none" else {}
        try:
            spec = RunSpec.from_dict(edited(fields, {**short, **pool, **window}))
        except SpecError:
            return
        valid.setdefault(spec.to_yaml(), spec)

    draw()
    by_kind: dict[str, list[RunSpec]] = {}
    for spec in valid.values():
        by_kind.setdefault(spec.process.kind, []).append(spec)
    assert len(by_kind) == 6
    chosen = [spec for specs in by_kind.values() for spec in specs[:2]]
    rest = [spec for spec in valid.values() if spec not in chosen]
    chosen += random.Random(0).sample(rest, WANTED - len(chosen))
    states = [outcome(spec, tmp_path / str(i)) for i, spec in enumerate(chosen)]
    assert states.count("finished") >= WANTED * 0.8, states
    assert set(states) <= {"finished", "diverged", "refused"}


def outcome(spec: RunSpec, folder: Path) -> str:
    """How a run ended; a refusal must be one sentence, and a failure is never right."""
    try:
        return run(spec, folder, device="cpu", progress=False).state
    except RunFailed:
        return "failed"
    except (SpecError, ValueError) as refused:
        return "refused" if "\n" not in str(refused) else str(refused)
