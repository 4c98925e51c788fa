"""The rules of the house, enforced: layers, a library of three packages, every public name and label documented."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.docs.tools import load

import svag
import svag.lab
import svag.theory

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "svag"

PAGE = (ROOT / "docs" / "architecture.md").read_text()

# What each folder may import: the table of layers on that page, so that there is one. A new folder needs a row.
MAY_IMPORT = {
    folder: set(below.replace("nothing", "").replace(",", " ").split())
    for folder, below in re.findall(r"^\| `([\w/]+)` \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
}
WITH_TORCH = set(re.split(r",\s+|\s+and\s+", re.findall(r"Torch is imported in ([\w/,\s]+?) only", PAGE)[0]))
WITH_CHARTS = set(re.split(r",\s+|\s+and\s+", re.findall(r"Charts are drawn in ([\w/,\s]+?) only", PAGE)[0]))
CHART_LIBRARIES = {"altair", "vl_convert"}
LIBRARY = {"theory", "stats", "verdicts", "prices", "noise", "dynamics", "integrations"}
# What a library file may import from outside; integrations also import what they integrate.
PACKAGES = {"torch", "numpy", "scipy"}
FRAMEWORKS = {"lightning", "pytorch_lightning", "torchmetrics", "transformers", "accelerate"}
EVERYWHERE = {"arrays", "printed", "as_json", "noise/reading"}
TORCH_FREE = {"noise/reading.py"}


def unit(parts: Sequence[str]) -> str:
    """The row of the table that a file or a module belongs to: a folder, in lab and paper a folder of theirs."""
    return "/".join(parts[:2]) if parts[0] in {"lab", "paper"} else parts[0]


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if len(parts) > 1 and parts not in {("lab", "__init__"), ("paper", "__init__")}:
            yield unit(parts), path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def forbidden(folder: str, names: Iterable[str], *, torch_free: bool = False, module: str = "") -> set[str]:
    """What a file of this folder must not import; `module` is its path, for what single modules may do."""
    bad = set()
    for name in names:
        package, *rest = name.split(".")
        if package == "svag":
            target = "noise/reading" if rest[:2] == ["noise", "reading"] else unit(rest) if rest else ""
            of_the_package = rest == ["__version__"] and folder == "lab/cli"
            if target not in {folder, *EVERYWHERE} | MAY_IMPORT[folder] and not of_the_package:
                bad.add(name)  # of `svag` itself too: its lazy names reach every layer
            continue
        outside = {
            "torch": folder in WITH_TORCH and not torch_free,
            **dict.fromkeys(CHART_LIBRARIES, bool({folder, module} & WITH_CHARTS)),
            **dict.fromkeys(FRAMEWORKS, folder == "integrations" or folder not in LIBRARY),
        }
        if not outside.get(package, folder not in LIBRARY or package in PACKAGES | sys.stdlib_module_names):
            bad.add(name)
    return bad


@pytest.mark.parametrize(
    ("folder", "path"), [pytest.param(*one, id=str(one[1].relative_to(SOURCE))) for one in modules()]
)
def test_imports_go_downward_only(folder: str, path: Path) -> None:
    assert folder in MAY_IMPORT, f"the folder {folder} has no place in the layers yet"
    relative = path.relative_to(SOURCE)
    module = relative.with_suffix("").as_posix()
    assert not forbidden(folder, imports(path), torch_free=relative.as_posix() in TORCH_FREE, module=module)


def test_the_layer_rule_catches_a_violation() -> None:
    assert forbidden("theory", ["svag.paper.exact.affine"]) == {"svag.paper.exact.affine"}
    assert forbidden("prices", ["torch.nn", "svag.noise.probe", "svag.noise.reading.Reading"]) == {
        "torch.nn",
        "svag.noise.probe",
    }
    assert forbidden("noise", ["torch", "altair"]) == {"altair"}
    assert forbidden("prices", ["altair"], module="prices/price_list") == {"altair"}
    assert forbidden("prices", ["altair"], module="prices/plot") == set()
    assert forbidden("noise", ["torch"], torch_free=True) == {"torch"}
    assert forbidden("theory", ["svag"]) == {"svag"}
    assert forbidden("noise", ["pydantic.Field", "json", "scipy.stats"]) == {"pydantic.Field"}
    assert forbidden("lab/specs", ["pydantic.Field", "svag.lab.training.run"]) == {"svag.lab.training.run"}
    assert forbidden("lab/report", ["svag.paper.figures"]) == {"svag.paper.figures"}


def test_the_layers_have_no_cycle() -> None:
    placed: set[str] = set()
    while len(placed) < len(MAY_IMPORT):
        free = {folder for folder, below in MAY_IMPORT.items() if below <= placed} - placed
        assert free, f"a cycle among {set(MAY_IMPORT) - placed}"
        placed |= free


def test_the_table_of_layers_was_read() -> None:
    assert set(MAY_IMPORT) == {folder for folder, _ in modules()}
    assert MAY_IMPORT["theory"] == set()
    assert set(MAY_IMPORT) >= WITH_TORCH | WITH_CHARTS - {"prices/plot"} | LIBRARY
    assert not any(below.startswith(("lab", "paper")) for folder in LIBRARY for below in MAY_IMPORT[folder])


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


PUBLIC = [("svag", name) for name in svag.__all__] + [("svag.lab", name) for name in svag.lab.__all__]
PUBLIC += [("svag.theory", name) for name in svag.theory.__all__]


@pytest.mark.parametrize(("package", "name"), PUBLIC, ids=[".".join(one) for one in PUBLIC])
def test_every_public_name_is_documented_and_exported_once(package: str, name: str) -> None:
    thing = getattr(import_module(package), name)
    assert callable(thing)
    if package != "svag.theory":  # whose names are imported at once
        assert thing.__module__ == import_module(package)._HOME[name], "the table names the module that defines it"
    assert thing.__doc__
    assert ">>>" in thing.__doc__, f"{package}.{name} has no doctest"


def test_public_names_are_functions_and_classes_whatever_was_imported_before() -> None:
    """A submodule of the same name would take the place of a function as soon as somebody imports it."""
    names = [".".join(path.relative_to(SOURCE.parent).with_suffix("").parts) for _, path in modules()]
    heavy = ("svag.integrations.", "svag.lab.execution.on_ray.")  # they need packages that may not be there
    wanted = [name.removesuffix(".__init__") for name in names if not name.startswith(heavy)]
    code = (
        "import sys, importlib\n"
        "for name in sys.argv[1].split(): importlib.import_module(name)\n"
        "for name in sys.argv[2].split():\n"
        "    package, _, own = name.rpartition('.')\n"
        "    assert callable(getattr(importlib.import_module(package), own)), name\n"
    )
    public = " ".join(f"{package}.{name}" for package, name in PUBLIC)
    done = subprocess.run([sys.executable, "-c", code, " ".join(wanted), public], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("package", "file"), [(svag, "__init__.py"), (svag.lab, "lab/__init__.py")])
def test_the_tables_of_public_names_are_complete(package: Any, file: str) -> None:
    """What types know of a package, the imports under TYPE_CHECKING, is what its table finds."""
    tree = ast.parse((SOURCE / file).read_text())
    typed = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
    assert all(isinstance(node, ast.ImportFrom) for node in typed)
    known = {alias.asname: node.module for node in typed if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert {name: module for name, module in known.items() if module != "svag"} == package._HOME
    assert sorted(package._HOME) == package.__all__


def test_the_reference_shows_every_public_name_once() -> None:
    tool = load("public_names")
    assert (ROOT / "docs" / "reference.md").read_text().count(tool.MARKER) == 1
    shown = re.findall(r"^::: (\S+)$", tool.on_page_markdown(tool.MARKER), re.MULTILINE)
    assert sorted(shown) == sorted(f"{package}.{name}" for package, name in PUBLIC)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = svag.nonsense


def test_every_module_says_what_it_is_for() -> None:
    for _, path in modules():
        assert ast.get_docstring(ast.parse(path.read_text())), path


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


LABEL = re.compile(
    r"(?<![\w:])((?:thm|lem|cor|eq|fig|sec|subsec|def|app|appsec|app_sec):(?:lem:)?[A-Za-z0-9_]+(?:-[a-z]+)*)"
)


def paper_labels() -> set[str]:
    return set((ROOT / "tests" / "paper" / "labels.txt").read_text().split())


def test_every_label_in_code_and_docs_is_a_label_of_the_paper() -> None:
    paper = paper_labels()
    files = [*SOURCE.rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for path in files:
        unknown = set(LABEL.findall(path.read_text())) - paper
        assert not unknown, f"{path.relative_to(ROOT)}: {unknown}"


def labels_in(paths: list[Path]) -> set[str]:
    return {label for path in paths for label in LABEL.findall(path.read_text())}


def test_the_docs_name_every_label_of_the_paper() -> None:
    """tests/docs/test_map.py says which of them the software names, and where the others are."""
    assert labels_in([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]) == paper_labels()


def test_a_label_is_found_wherever_it_stands() -> None:
    text = "see (app:lem:ito_taylor), `thm:sde_svag` and eq:RGN_sgd; not theorem:x or http://fig"
    assert LABEL.findall(text) == ["app:lem:ito_taylor", "thm:sde_svag", "eq:RGN_sgd"]


def test_the_page_of_theorems_and_the_checks_name_the_same_labels() -> None:
    labels = import_module("svag.paper.verify").LABELS
    page = (ROOT / "docs" / "theorems.md").read_text().partition("\n## ")[0]
    rows = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(labels)
