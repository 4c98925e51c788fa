"""Multiplies every formula of theory/ by 1.1, one at a time, and lists those that nobody notices.

    python tools/mutants.py [MODULE …]

A formula is what a function returns: a number, each number of a tuple or of a record, each side of a comparison. A
mutant is noticed when a test of tests/theory fails, those of its own module first, or when `svag verify` does. What was
found is kept beside the temporary files until the sources or the tests change, so that the program can be stopped.
"""

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "svag"
THEORY = SOURCE / "theory"
TESTS = ROOT / "tests" / "theory"
FACTOR = 1.1
MEMORY = Path(tempfile.gettempdir()) / "svag-mutants.json"


@dataclass(frozen=True)
class Mutant:
    """One expression of one module, to be multiplied."""

    module: str
    function: str
    line: int
    expression: str
    source: str

    def __str__(self) -> str:
        return f"{self.module}.{self.function}, line {self.line}: {FACTOR} × {self.expression}"


def mutants(path: Path) -> Iterator[Mutant]:
    """All mutants of a module."""
    text = path.read_text(encoding="utf-8")
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            for expression in formulas(function):
                yield Mutant(
                    path.stem,
                    function.name,
                    expression.lineno,
                    ast.unparse(expression),
                    multiplied(text, expression),
                )


def formulas(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The numbers that a function returns; not what it says, refuses or decides by other functions."""
    returned = ast.unparse(function.returns) if function.returns else ""
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None and _owner(function, node):
            yield from _numbers(node.value, returned)


def _owner(function: ast.FunctionDef, node: ast.Return) -> bool:
    """Whether a return belongs to this function and to none inside it."""
    inner = (one for one in ast.walk(function) if isinstance(one, ast.FunctionDef) and one is not function)
    return not any(node in ast.walk(one) for one in inner)


def _numbers(value: ast.expr, returned: str) -> Iterator[ast.expr]:
    if isinstance(value, ast.Tuple):
        for element in value.elts:
            yield from _numbers(element, returned)
    elif isinstance(value, ast.IfExp):
        yield from _numbers(value.body, returned)
        yield from _numbers(value.orelse, returned)
    elif isinstance(value, ast.Compare):
        yield value.comparators[-1]
    elif isinstance(value, ast.BoolOp):
        for operand in value.values:
            yield from _numbers(operand, returned)
    elif isinstance(value, ast.Call) and ast.unparse(value.func) == returned.strip("'\""):
        for argument in (*value.args, *(keyword.value for keyword in value.keywords)):
            yield from _numbers(argument, returned)
    elif returned in {"str", "bool", "None"} or _unchanged(value):
        return
    else:
        yield value


def _unchanged(value: ast.expr) -> bool:
    """Whether 1.1 times this is the same, or nothing: 0, infinity, a word."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, str) or not value.value
    return ast.unparse(value).startswith(("math.inf", "np.zeros("))


def multiplied(text: str, expression: ast.expr) -> str:
    """The module with this expression multiplied; positions are in bytes of UTF-8."""
    lines = text.encode().split(b"\n")
    assert expression.end_lineno is not None
    assert expression.end_col_offset is not None
    end = sum(len(line) + 1 for line in lines[: expression.end_lineno - 1]) + expression.end_col_offset
    start = sum(len(line) + 1 for line in lines[: expression.lineno - 1]) + expression.col_offset
    raw = text.encode()
    return (raw[:start] + b"(" + str(FACTOR).encode() + b" * (" + raw[start:end] + b"))" + raw[end:]).decode()


def overlay(folder: Path, mutant: Mutant) -> Path:
    """A copy of the package in which one module is the mutant and everything else is linked."""
    package = folder / "svag"
    package.mkdir()
    for path in SOURCE.iterdir():
        if path.name not in {"theory", "__pycache__"}:
            (package / path.name).symlink_to(path)
    (package / "theory").mkdir()
    for path in THEORY.glob("*.py"):
        text = mutant.source if path.stem == mutant.module else path.read_text(encoding="utf-8")
        (package / "theory" / path.name).write_text(text, encoding="utf-8")
    return folder


def noticed_by(mutant: Mutant) -> str | None:
    """What fails on the mutant, or None."""
    with tempfile.TemporaryDirectory() as name:
        folder = overlay(Path(name), mutant)
        tests = sorted(TESTS.glob("test_*.py"))
        own = [path for path in tests if f"svag.theory.{mutant.module} " in path.read_text(encoding="utf-8")]
        for some in (own, [path for path in tests if path not in own]):
            if some and not _passes(folder, ["pytest", "-x", "-q", "-p", "no:cacheprovider", *map(str, some)]):
                return "tests"
        return None if _passes(folder, ["svag", "verify", "--json"]) else "svag verify"


def _passes(folder: Path, module: list[str]) -> bool:
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-m", *module], cwd=ROOT, env=environment, capture_output=True, check=False)
    return done.returncode == 0


def state_of_the_checks() -> str:
    """A digest of everything that could notice a mutant, and of everything it could break."""
    files = [*TESTS.glob("*.py"), *(path for path in SOURCE.rglob("*.py") if path.parent.name in {"theory", "verify"})]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()


def main(modules: list[str]) -> int:
    """Try all mutants of the modules, or of all; the exit code is 1 when one survives."""
    state = state_of_the_checks()
    kept = json.loads(MEMORY.read_text()) if MEMORY.exists() else {}
    known: dict[str, str | None] = kept.get("found", {}) if kept.get("state") == state else {}
    paths = [path for path in sorted(THEORY.glob("*.py")) if path.stem in modules or not modules]
    chosen = [mutant for path in paths for mutant in mutants(path)]
    for number, mutant in enumerate(chosen, start=1):
        if str(mutant) not in known:
            known[str(mutant)] = noticed_by(mutant)
            MEMORY.write_text(json.dumps({"state": state, "found": known}))
        print(f"{number} of {len(chosen)}: {known[str(mutant)] or 'NOT NOTICED'}: {mutant}", flush=True)
    survivors = [mutant for mutant in chosen if known[str(mutant)] is None]
    print(f"{len(chosen)} mutants, {len(survivors)} survive." + "".join(f"\n  {mutant}" for mutant in survivors))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
