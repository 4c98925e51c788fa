"""Thousands of hostile calls of every public name: each ends in a result or in one short sentence, and each ends."""

import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.campaigns.calls import NAMES, Call, anything, hostile_calls, trouble
from tests.lab.specs.fuzz import answers_within

SEEDS, CALLS = (18_001, 18_002), 2_600


def end_of(call: Call) -> str:
    """How a call ended: "a result", "a refusal", or what is wrong with it."""
    try:
        with answers_within(20), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a diverging number may warn; what counts is the answer
            call()
    except Exception as error:
        wrong = trouble(call, error)
        return f"{call}: {type(error).__name__}: {str(error)[:200]} ({wrong})" if wrong else "a refusal"
    return "a result"


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_calls(
    seed: int,
    npz: Path,
    tmp_path: Path,
    say: Callable[[str], None],
    seeded: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seed = seeded(seed)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("svag.noise.throughput._ROUNDS", (3, 3))  # a good call shall not take half a second
    names, ends, wrong = Counter[str](), Counter[str](), []
    for call in hostile_calls(seed, tmp_path / "out", npz, CALLS):
        end = end_of(call)
        names[call.name] += 1
        if end in {"a result", "a refusal"}:
            ends[end] += 1
        else:
            wrong.append(end)
    say(f"{names.total()} hostile calls of {len(names)} public names (seed {seed}): {dict(ends)}, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
    assert (set(names), ends.total()) == (set(NAMES), CALLS)
    assert min(ends["a result"], ends["a refusal"]) > CALLS // 10  # neither all valid nor all refused


def test_the_campaign_notices_what_is_wrong() -> None:
    def ended(arguments: dict[str, object]) -> str:
        return end_of(Call("svag_weights", arguments, tuple(arguments)))

    assert ended({"ell": 4}) == "a result"
    assert ended({"ell": -1}) == "a refusal"
    assert ended({"nonsense": 1}).endswith("tests/campaigns/calls.py, line 46)") or "raised in" in ended(
        {"nonsense": 1}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("svag.theory.weights._weights", lambda *_: 1 / 0)
        assert "raised in" in ended({"ell": 4})
        patch.setattr("svag.theory.weights._weights", lambda *_: (_ for _ in ()).throw(ValueError("two\nlines")))
        assert ended({"ell": 4}).endswith("(not one line)")
        patch.setattr("svag.theory.weights._weights", lambda *_: (_ for _ in ()).throw(ValueError("x" * 401)))
        assert ended({"ell": 4}).endswith("(401 characters)")


def test_the_values_come_again_with_the_seed() -> None:
    import random

    one, other = ([type(anything(random.Random(seed))).__name__ for seed in range(50)] for _ in range(2))
    assert one == other
    assert len(set(one)) > 5
