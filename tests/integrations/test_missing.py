"""A package that is missing is named together with the extra that brings it; the package alone imports neither."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("adapter", "package"), [("lightning", "lightning"), ("huggingface", "transformers")])
def test_a_missing_package_is_named_with_its_extra(adapter: str, package: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import svag.integrations.{adapter}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"svag.integrations.{adapter} needs" in done.stderr.splitlines()[-1]
    assert f"pip install -c constraints.txt '.[{adapter}]'" in done.stderr.splitlines()[-1]


def test_the_folder_itself_imports_neither() -> None:
    code = "import sys, svag.integrations; assert not {'lightning', 'transformers', 'accelerate'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
