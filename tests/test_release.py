"""What is released: one version, pinned tools, and a wheel that works without the checkout it was built from."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import svag
import svag.lab

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_there_is_one_version_and_the_changelog_and_the_citation_agree_with_it() -> None:
    assert "version" in PROJECT["dynamic"], "the metadata take it from src/svag/__init__.py"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == svag.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.findall(r"^## \[(\d[^\]]*)\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)[0]
    assert newest == (svag.__version__, str(citation["date-released"]))


def test_everything_that_is_installed_is_pinned() -> None:
    """An extra that is not pinned could bring another torch."""

    def name(requirement: str) -> str:
        return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")

    pinned = {name(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    extras = PROJECT["optional-dependencies"].values()
    asked = {name(one) for one in [*PROJECT["dependencies"], *(one for extra in extras for one in extra)]}
    assert asked - pinned == set()


def test_the_hosted_checks_run_the_gate_on_every_python_that_the_metadata_name() -> None:
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]["test"]
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", one)]
    assert job["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert job["steps"][-1] == {"run": "bash .ci/run"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the source distribution."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.mark.slow
def test_the_source_distribution_holds_the_source_and_not_the_records(built: Path) -> None:
    top = f"svag-{svag.__version__}"
    with tarfile.open(built / f"{top}.tar.gz") as archive:
        names = set(archive.getnames())
    assert {f"{top}/src/svag/__init__.py", f"{top}/CHANGELOG.md", f"{top}/tests/test_release.py"} <= names
    assert not [name for name in names if name.startswith(f"{top}/results/")]


def test_the_library_needs_three_packages() -> None:
    assert [re.split(r"[^\w.-]", one)[0] for one in PROJECT["dependencies"]] == ["torch", "numpy", "scipy"]


@pytest.mark.slow
def test_the_library_works_with_torch_numpy_and_scipy_alone(built: Path) -> None:
    """A fresh environment with the wheel and what it asks for; the loops of the front page run there, and SVAG."""
    wheel = built / f"svag-{svag.__version__}-py3-none-any.whl"
    command = [sys.executable, str(ROOT / "tools" / "try_wheel.py"), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_works_in_an_environment_of_its_own(built: Path, tmp_path: Path) -> None:
    wheel = built / f"svag-{svag.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"svag-{svag.__version__}.dist-info/METADATA").decode()
    assert "Requires-Dist: torch>=2.6" in metadata
    assert "Author: The svag contributors" in metadata

    place = tmp_path / "env"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*command: str | Path) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # torch and the others come from here; of the files in this folder, those that add the checkout are not read
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")

    found = Path(run(python, "-c", "import svag.lab.report.render as one; print(one.__file__)").strip())
    assert found.is_relative_to(packages)
    assert run(place / "bin" / "svag", "--version").strip() == f"svag {svag.__version__}"
    answer = run(place / "bin" / "svag", "verify", "thm:sde_svag")
    assert "FAIL" not in answer
    assert "pass" in answer.lower()
    assert (found.parent / "templates" / "page.html").is_file()
    assert "fashion-small" in run(place / "bin" / "svag", "data", "list")
