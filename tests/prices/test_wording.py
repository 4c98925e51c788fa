"""Every sentence renders, and the printed list keeps to 20 lines of 80 columns wherever it is printed."""

import math
import re
from dataclasses import replace

import pytest
from tests.prices.streams import make, settled

from svag import Estimate, Reading, price_list
from svag.prices import wording
from svag.prices.reasons import Code, Reason, Value

VALUES: dict[Code, dict[str, Value]] = {
    Code.PARTS_FAR: {"ratio": 4.0},
    Code.TOO_FEW_FROZEN: {"readings": 1, "needed": 100},
    Code.TOO_FEW_READINGS: {"readings": 30, "blocks": 2, "needed": 240},
    Code.SIGNAL_UNRESOLVED: {"low": 120.0, "high": None, "more": 900},
    Code.UNTESTED_OPTIMIZER: {"optimizer": "Lion"},
    Code.WINDOW: {"readings": 20, "choice": "late_phase", "tenths": 0, "start": 400, "stop": 591},
    Code.FEW_BLOCKS: {"blocks": 8},
    Code.PARTS_NEAR: {"ratio": 1.2},
    Code.STEPS_TOO_SHORT: {"expected": 0.5, "seen": 0.0},
    Code.MISSES_START: {"step": 100},
    Code.ONE_PHASE: {"readings": 12},
    Code.ONLY_SGD: {"optimizer": "AdamW"},
    Code.NOT_COVERED: {"optimizer": "SGD with dampening"},
    Code.SVAG_READINGS: {"ell": 4},
    Code.MIXED_SETTINGS: {"weight_decay": True, "lr": True},
    Code.ONLY_GROWS: {"share": -1.5},
    Code.NOT_BALANCED: {
        "balance": 7.05,
        "invariance_tested": False,
        "relaxation": 500.0,
        "passed": 1.5,
        "rate_varies": False,
    },
    Code.DRIFTS: {"what": "R", "change": 0.27, "relaxation": None, "passed": None, "rate_varies": True},
    Code.NOT_INVARIANT: {"share": 0.5},
    Code.PROVED: {"basis": "weight_norm", "invariance_tested": False},
    Code.SDE_RULED_OUT: {"signal": "G", "high": 0.51, "c2": 2.0},
    Code.PULL: {"share": 1.04},
    Code.NEARLY_INVARIANT: {"share": 0.04},
    Code.X_MEASURED: {"momentum": 0.9, "source": "velocity"},
    Code.X_ESTIMATED: {"momentum": 0.9},
    Code.SECOND_MOMENT_SETTLED: {"ratio": 1.01},
    Code.SECOND_MOMENT_OFF: {"ratio": 2.0, "coupled_decay": True},
    Code.RULE_ENDS: {"batch_size": 640.0, "beta": 0.9},
    Code.EPS_FELT: {"eps": 0.95, "batch_size": 256, "distortion": 1.27, "with_eps": 1.12},
}


@pytest.mark.parametrize("code", list(Code))
def test_every_code_has_a_sentence(code: Code) -> None:
    said = str(Reason(code, VALUES.get(code, {})))
    assert said.endswith(".")
    assert "None" not in said
    assert "refute" not in said.lower()
    for name, value in VALUES.get(code, {}).items():
        for_programs = code == Code.WINDOW or (code, name) == (Code.TOO_FEW_READINGS, "blocks")
        if isinstance(value, int) and not isinstance(value, bool) and value > 1 and not for_programs:
            assert str(value) in said, "every number is said"


def test_the_sentences_are_those_of_the_codes() -> None:
    assert set(wording.SENTENCES) == set(Code)
    assert str(Reason(Code.WINDOW, VALUES[Code.WINDOW])) == (
        "N/G was averaged over 20 readings from step 400 to 590 (the last third of the second-to-last phase of the "
        "schedule)."
    )
    assert str(Reason(Code.WINDOW, {"readings": 1, "choice": "all", "tenths": 0})) == (
        "N/G was averaged over one reading (all of them)."
    )


def unlucky(**changes: object) -> list[Reading]:
    """Readings about which as much as possible is to be said."""
    return [replace(r, param_sq=100.0, approximate=True) for r in settled(**changes)]


LISTS = {
    "sgd": settled(),
    "momentum": settled(momentum=0.9),
    "adamw": settled(optimizer="AdamW", lr=1.234e-5, eps=1e-8, betas=(0.9, 0.999)),
    "small rates": settled(lr=1.234e-5, batch_size=65536, weight_decay=0.0),
    "unknown": unlucky(optimizer="SomeVeryLongOptimizerNameOfSomebodyElse"),
    "sgd, everything": unlucky(),
    "momentum, everything": unlucky(momentum=0.9),
    "adamw, everything": unlucky(optimizer="AdamW", lr=None),
    "short": settled(30),
    "nothing": settled(3),
    "two rows": settled(population=300),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("fast", [False, True])
def test_the_list_has_at_most_20_lines_of_80_columns(name: str, fast: bool) -> None:
    found = price_list(LISTS[name])
    base = found.batch_size
    speeds = {base * 2**k: Estimate(100.0 * (k + 1), 50.0, 100.0 * (k + 1)) for k in range(7)} if fast else None
    lines = wording.answer(found, speeds).split("\n")
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 80
    assert max(map(len, found.details().split("\n"))) <= 80
    text = "\n".join(lines).lower()
    assert "refute" not in text
    assert "distortion" not in text, "one word for SGD, momentum and Adam: examples"


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("fast", [False, True])
def test_the_short_list_has_every_row_and_the_first_doubt_in_11_lines(name: str, fast: bool) -> None:
    found = price_list(LISTS[name])
    base = found.batch_size
    speeds = {base * 2**k: Estimate(100.0 * (k + 1), 50.0, 100.0 * (k + 1)) for k in range(7)} if fast else None
    lines = wording.brief(found, 11, speeds).split("\n")
    assert len(lines) <= 11
    assert max(map(len, lines)) <= 80
    if found.usable:
        rows = wording.table(found, found.prices(throughput=speeds))
        assert set(rows) <= set(lines)
        bullets = [line for line in lines if line.startswith("- ")]
        assert bool(bullets) == any(line.startswith("- ") for line in wording.answer(found, speeds).split("\n"))


def test_a_note_comes_before_what_the_columns_mean() -> None:
    found = price_list(settled())
    plain, noted = wording.brief(found, 11), wording.brief(found, 11, notes=["Of an old version.", "x" * 200])
    assert "Of an old version." in noted
    assert noted.split("\n")[: len(found.prices()) + 2] == plain.split("\n")[: len(found.prices()) + 2]
    assert len(noted.split("\n")) <= 11


def test_every_row_is_printed_with_its_numbers() -> None:
    found = price_list(settled())
    lines = str(found).split("\n")
    for price in found.prices():
        [row] = [line for line in lines if re.match(rf" *{price.batch_size}  ", line)]
        for cell in (price.settings, f"{price.examples.value:.2f}×", f"÷{1 / price.steps:.2g}", str(price.linear)):
            assert cell in row
    assert str(found).count("ruled out") == sum(price.linear.ruled_out for price in found.prices()) > 0


def test_the_first_line_is_the_largest_row_within_c2_or_the_recommendation() -> None:
    found = price_list([make(1.0, 8.0, batch_size=32, step=k, lr=0.1, optimizer="SGD") for k in range(400)])
    # D = 1.11, 1.33, 1.78, 2.67 at 64, 128, 256, 512
    first = str(found).split("\n")[0]
    assert first == "Batch 256: 1.8× the examples, 4.5 times fewer steps (lr 0.45 instead of 0.1)."
    first = wording.answer(found, {32: 1.0, 64: 1.9, 128: 3.0}).split("\n")[0]
    assert first == "Batch 128 is the fastest here: 1.3× the examples in 0.44× the time (lr 0.3"
    assert wording.answer(found, {32: 1.0, 64: 1.0}).startswith("Stay at batch 32")
    steep = price_list([make(1.0, 0.1, batch_size=32, step=k, lr=0.1, optimizer="SGD") for k in range(400)], c2=1.5)
    assert str(steep).startswith("None of these batches costs at most 1.5× the examples")


def test_an_unsteady_speed_is_said() -> None:
    found = price_list(settled())
    steady = {64: Estimate(100.0, 95.0, 100.0), 128: Estimate(190.0, 180.0, 190.0)}
    assert "varied" not in wording.answer(found, steady)
    assert "varied by up to 100% (batch 128)" in wording.answer(found, steady | {128: Estimate(190.0, 95.0, 190.0)})


def test_checks_are_mentioned_only_for_what_was_checked() -> None:
    assert "80% range" in str(price_list(settled()))
    assert "80% range" in str(price_list(settled(momentum=0.9)))  # four of them
    for optimizer in ("Lion", "RMSprop", "NAdam"):
        assert "80% range" not in str(price_list(settled(optimizer=optimizer)))


def test_repr_is_one_line_and_a_notebook_shows_the_list() -> None:
    found = price_list(settled())
    assert "\n" not in repr(found)
    assert len(repr(found)) < 120
    assert found._repr_html_().startswith("<p><b>Batch ")


def test_an_estimate_prints_and_is_a_number() -> None:
    assert str(Estimate(229.4, 212.1, 248.7)) == "229 [212, 249]"
    assert float(Estimate(1.5, 1.0, 2.0)) == 1.5
    assert str(Estimate(1.5, 0.0, math.inf)) == "1.5 [0, ∞]"


def test_details_say_every_reason_once() -> None:
    for readings in LISTS.values():
        found = price_list(readings)
        text = " ".join(found.details().replace("\n- ", "\n").split())
        for reason in {str(one): one for one in (*found.reasons, *found.linear.reasons)}:
            assert text.count(" ".join(reason.split())) == 1, reason
