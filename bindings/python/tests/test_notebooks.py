"""Executes the notebooks in ``examples`` from the first cell to the last."""

import pathlib

import nbclient
import nbformat
import pytest

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    # Notebooks are committed without outputs, which would go stale.
    assert all(not cell.get("outputs") for cell in notebook.cells), "clear the outputs before a commit"
    nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [data for cell in notebook.cells for out in cell.get("outputs", []) for data in out.get("data", {})]
    assert "text/html" in shown


def test_there_is_a_notebook():
    assert list(EXAMPLES.glob("*.ipynb"))
