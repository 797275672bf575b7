"""The notebooks run from top to bottom, and what they claim holds."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))


def test_there_is_one_for_each_paper() -> None:
    assert len(NOTEBOOKS) == 5


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_runs(file: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code), "stored without outputs"
    assert "assert" in code[-1].source, "a notebook ends in what it claims"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": file.parent}}).execute()
    drawn = [out for cell in code for out in cell.outputs if "image/png" in out.get("data", {})]
    assert drawn, "a notebook draws"
