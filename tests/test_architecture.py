"""The rules of the house, enforced: layers, sizes, no torch where it is not needed, every name and label documented."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

import pytest
from tests.docs.tools import load

import svag

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "svag"

PAGE = (ROOT / "docs" / "architecture.md").read_text()

# What each folder may import: the table of layers on that page, so that there is one. A new folder needs a row.
MAY_IMPORT = {
    folder: set(below.replace("nothing", "").replace(",", " ").split())
    for folder, below in re.findall(r"^\| `(\w+)/` \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
}
WITH_TORCH = set(re.split(r", | and ", re.findall(r"Torch is imported in ([\w, ]+) only", PAGE)[0]))
CHART_LIBRARIES = {"altair", "vl_convert"}
EVERYWHERE = {"arrays", "printed"}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        folder = path.relative_to(SOURCE).parts[0]
        if folder not in {"__init__.py", "__main__.py", "arrays.py", "printed.py"}:
            yield folder, path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def forbidden(folder: str, names: Iterator[str]) -> set[str]:
    bad = set()
    for name in names:
        package, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if name == "svag" and folder != "cli":  # its lazy names reach every layer
            bad.add(name)
        if package == "svag" and target and target not in {folder, *EVERYWHERE} | MAY_IMPORT[folder]:
            bad.add(name)
        if package == "torch" and folder not in WITH_TORCH:
            bad.add(name)
        if package in CHART_LIBRARIES and folder != "report":
            bad.add(name)
    return bad


@pytest.mark.parametrize(
    ("folder", "path"), [pytest.param(*one, id=str(one[1].relative_to(SOURCE))) for one in modules()]
)
def test_imports_go_downward_only(folder: str, path: Path) -> None:
    assert folder in MAY_IMPORT, f"the folder {folder} has no place in the layers yet"
    assert not forbidden(folder, imports(path))


def test_the_layer_rule_catches_a_violation() -> None:
    assert forbidden("theory", iter(["svag.paper.exact.affine"])) == {"svag.paper.exact.affine"}
    assert forbidden("findings", iter(["torch.nn", "svag.noise.probe"])) == {"torch.nn", "svag.noise.probe"}
    assert forbidden("noise", iter(["torch", "altair"])) == {"altair"}
    assert forbidden("theory", iter(["svag"])) == {"svag"}


def test_the_layers_have_no_cycle() -> None:
    placed: set[str] = set()
    while len(placed) < len(MAY_IMPORT):
        free = {folder for folder, below in MAY_IMPORT.items() if below <= placed} - placed
        assert free, f"a cycle among {set(MAY_IMPORT) - placed}"
        placed |= free


def test_the_table_of_layers_was_read() -> None:
    assert set(MAY_IMPORT) == {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert MAY_IMPORT["theory"] == set()
    assert set(MAY_IMPORT) >= WITH_TORCH


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["verify", "--help"],
        ["--version"],
        ["data", "--help"],
        ["data", "list"],
        ["run", "--help"],
        ["predict", "--help"],
        ["list", "docs"],
        ["list", "figures"],
        ["compare", "--help"],
        ["reproduce", "--help"],
        ["report", "--help"],
    ],
)
def test_the_command_line_starts_without_torch(command: list[str]) -> None:
    code = (
        "import sys, svag.cli\n"
        "try:\n    svag.cli.main()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules and 'scipy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_report_is_made_without_torch(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "spec.json").write_text("{}")
    code = (
        "import sys, svag.cli\n"
        "try:\n    svag.cli.main()\n"
        "except SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "assert 'torch' not in sys.modules and 'altair' in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "report", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_importing_svag_imports_nothing_heavy() -> None:
    code = "import sys, svag\nassert not {'torch', 'numpy', 'scipy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", svag.__all__)
def test_every_public_name_is_documented_and_exported_once(name: str) -> None:
    thing = getattr(svag, name)
    assert thing.__module__ == svag._HOME[name], "the table names the module that defines it"
    assert thing.__doc__
    assert ">>>" in thing.__doc__, f"svag.{name} has no doctest"


def test_the_table_of_public_names_is_complete() -> None:
    """What types know of `svag`, the imports under TYPE_CHECKING, is what the table finds."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    typed = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
    assert all(isinstance(node, ast.ImportFrom) for node in typed)
    known = {alias.asname: node.module for node in typed if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert known == svag._HOME
    assert sorted(svag._HOME) == svag.__all__


def test_the_reference_shows_every_public_name_once() -> None:
    tool = load("public_names")
    assert (ROOT / "docs" / "reference.md").read_text().count(tool.MARKER) == 1
    shown = re.findall(r"^::: svag\.(\w+)$", tool.on_page_markdown(tool.MARKER), re.MULTILINE)
    assert sorted(shown) == sorted(svag.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = svag.nonsense


def test_every_module_says_what_it_is_for() -> None:
    for _, path in modules():
        assert ast.get_docstring(ast.parse(path.read_text())), path


def test_the_source_is_few_files_none_of_them_long() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert len(sizes) <= 180
    assert {str(path.relative_to(SOURCE)): size for path, size in sizes.items() if size > 400} == {}


TYPE_NAME = re.compile(r"[A-Z]\w*[a-z]\w*")


def types_in(source: str) -> Iterator[str]:
    """Names of the public top-level classes and aliases of types in a file; a type variable is nobody's name."""
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name=name) if not name.startswith("_"):
                yield name
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ) if TYPE_NAME.fullmatch(name) and not (isinstance(value, ast.Call) and "TypeVar" in ast.unparse(value)):
                yield name


def shared_types(sources: Iterable[str]) -> set[str]:
    """Names that are given to several classes or aliases of types."""
    names = Counter(name for source in sources for name in types_in(source))
    return {name for name, count in names.items() if count > 1}


def test_no_two_types_share_a_name() -> None:
    assert shared_types(path.read_text() for path in SOURCE.rglob("*.py")) == set()


def test_shared_names_of_types_are_seen() -> None:
    assert shared_types(["class A: ...", "class A: ...\nclass B: ..."]) == {"A"}
    assert shared_types(["class Ab: ...", "Ab = int | str", "Cd: TypeAlias = int", "Cd = float"]) == {"Ab", "Cd"}
    assert shared_types(["class _A: ...", "class _A: ...\nclass B:\n    class C: ...", "class C: ..."]) == set()
    assert shared_types(['T1a = TypeVar("T1a")', 'T1a = TypeVar("T1a")', "SEEDS = 1", "SEEDS = 2"]) == set()


WALK = re.findall(r"^\d+\. `([\w/]+\.py)`", PAGE, re.MULTILINE)


@pytest.mark.parametrize("module", WALK)
def test_the_modules_of_the_walk_exist(module: str) -> None:
    assert (SOURCE / module).is_file(), "docs/architecture.md walks through a module that is not there"


def test_the_walk_is_short_and_goes_from_the_command_to_the_page() -> None:
    assert 10 <= len(WALK) <= 15
    assert len(set(WALK)) == len(WALK)
    assert (WALK[0].split("/")[0], WALK[-1].split("/")[0]) == ("cli", "report")


LABEL = re.compile(r"(?<![\w:])((?:thm|lem|cor|eq|fig|sec|subsec|def|app|appsec):(?:lem:)?[A-Za-z0-9_]+(?:-[a-z]+)*)")


def test_every_label_in_code_and_docs_is_a_label_of_the_paper() -> None:
    paper = set((ROOT / "tests" / "paper" / "labels.txt").read_text().split())
    files = [*SOURCE.rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for path in files:
        unknown = set(LABEL.findall(path.read_text())) - paper
        assert not unknown, f"{path.relative_to(ROOT)}: {unknown}"


def labels_in(paths: list[Path]) -> set[str]:
    return {label for path in paths for label in LABEL.findall(path.read_text())}


def test_the_docs_and_the_software_name_the_same_labels() -> None:
    docs = labels_in([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"])
    software = labels_in(list(SOURCE.rglob("*.py")))
    assert docs == software, f"only in the docs: {docs - software}; only in the software: {software - docs}"


def test_a_label_is_found_wherever_it_stands() -> None:
    text = "see (app:lem:ito_taylor), `thm:sde_svag` and eq:RGN_sgd; not theorem:x or http://fig"
    assert LABEL.findall(text) == ["app:lem:ito_taylor", "thm:sde_svag", "eq:RGN_sgd"]


def test_the_page_of_theorems_and_the_checks_name_the_same_labels() -> None:
    labels = import_module("svag.paper.verify").LABELS
    page = (ROOT / "docs" / "theorems.md").read_text().partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(labels)
