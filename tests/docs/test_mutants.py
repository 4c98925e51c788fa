"""The tool that multiplies formulas multiplies each of them, once, and nothing else."""

from pathlib import Path

import pytest
from tests.docs.tools import load

tool = load("mutants")

MODULE = '''"""Énergie."""

def half(x: float) -> float:
    """½x."""
    if x < 0:
        return 0.0
    return x / 2 if x < 9 else x

def both(x: float) -> tuple[float, float]:
    return x, half(x)

def small(x: float) -> bool:
    return x < half(x)

def pair(x: float) -> Pair:
    return Pair(x, name="é", size=x + 1)

def says(x: float) -> str:
    return f"{x}"
'''


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "made.py"
    path.write_text(MODULE, encoding="utf-8")
    return path


def test_every_number_that_is_returned_is_a_formula(module: Path) -> None:
    found = [(mutant.function, mutant.expression) for mutant in tool.mutants(module)]
    assert found == [
        ("half", "x / 2"),
        ("half", "x"),
        ("both", "x"),
        ("both", "half(x)"),
        ("small", "half(x)"),
        ("pair", "x"),
        ("pair", "x + 1"),
    ]


def test_a_mutant_differs_in_one_factor(module: Path) -> None:
    for mutant in tool.mutants(module):
        old, new = MODULE.split("\n"), mutant.source.split("\n")
        changed = [(one, two) for one, two in zip(old, new, strict=True) if one != two]
        assert len(changed) == 1
        one, two = changed[0]
        assert two.replace(f"(1.1 * ({mutant.expression}))", mutant.expression) == one


def test_every_module_of_the_theory_has_mutants_that_can_be_read() -> None:
    names = {path.stem for path in tool.THEORY.glob("*.py")} - {"__init__"}
    made = {mutant.module for path in tool.THEORY.glob("*.py") for mutant in tool.mutants(path)}
    assert made == names
    for path in tool.THEORY.glob("*.py"):
        for mutant in tool.mutants(path):
            compile(mutant.source, str(path), "exec")
