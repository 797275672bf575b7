"""The notebooks run from top to bottom, and what they claim holds."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SOLUTIONS = sorted((FOLDER / "solutions").glob("*.ipynb"))


def test_there_is_one_for_each_paper_and_its_exercises_are_solved() -> None:
    assert len(NOTEBOOKS) == 5
    assert [file.name for file in SOLUTIONS] == [file.name for file in NOTEBOOKS]
    for asked, solved in zip(NOTEBOOKS, SOLUTIONS, strict=True):
        exercises = nbformat.read(asked, as_version=4).cells[-1].source.splitlines()
        tasks = [line for line in exercises if line[:1].isdigit()]
        heading = nbformat.read(solved, as_version=4).cells[0].source
        assert tasks and all(task in heading for task in tasks), asked.name


@pytest.mark.parametrize(
    "file", NOTEBOOKS + SOLUTIONS, ids=lambda file: f"{file.parent.stem}-{file.stem}"
)
def test_it_runs(file: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code), "stored without outputs"
    assert "assert" in code[-1].source, "a notebook ends in what it claims"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": file.parent}}).execute()
    drawn = [out for cell in code for out in cell.outputs if "image/png" in out.get("data", {})]
    assert drawn or file in SOLUTIONS, "a notebook draws"
