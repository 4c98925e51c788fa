"""The example notebook runs from top to bottom and shows the price list as a table of numbers."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.filterwarnings("default")

NOTEBOOK = Path(__file__).parents[2] / "examples" / "price_list.ipynb"


def test_the_notebook_runs_and_shows_the_answer(tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    pages = [output.data["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert any(page.startswith("<p><b>") and "learning rate" in page for page in pages), "the price list"
    assert any("vegaEmbed" in page and "noise_scale" in page for page in pages), "the picture"
    assert any("noise_to_signal" in page for page in pages), "the data frame"
    printed = "".join(output.text for output in shown if output.output_type == "stream")
    assert [line.split(":")[0] for line in printed.splitlines()] == ["64", "128", "256", "512"]


def test_the_notebook_is_committed_without_outputs() -> None:
    import nbformat

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
