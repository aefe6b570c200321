"""docs/notebook.ipynb in a real kernel: from a log to charts and advice."""

import shutil
from pathlib import Path

import darshan
import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parent.parent / "docs" / "notebook.ipynb"
DXT = Path(darshan.__file__).parent / "tests" / "input" / "sample-dxt-simple.darshan"


def shown(notebook, line):
    """What the code cell with this first line shows: text of its outputs by kind."""
    (cell,) = (cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.split("\n")[0] == line)
    kinds = {}
    for output in cell.outputs:
        assert output.output_type != "error", output
        for kind, text in output.get("data", {output.get("name"): output.get("text")}).items():
            kinds[kind] = kinds.get(kind, "") + str(text)
    return kinds


def test_a_notebook_reads_plans_explains_plots_and_advises(tmp_path):
    shutil.copy(DXT, tmp_path / "job.darshan")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert "<table" in shown(notebook, "import stripewise as sw")["text/html"]
    assert "job.darshan" in shown(notebook, "import stripewise as sw")["text/html"]
    assert "test.out: writes 4,000 B" in shown(notebook, "print(trace.signature().words())")["stdout"]
    assert "cluster 'orion'" in shown(notebook, "from pathlib import Path")["stdout"]
    assert "<table" in shown(notebook, "plan")["text/html"]
    for cell, word in (
        ("plan.plot()", "after"),
        ('simulation = sw.simulate(trace, cluster="orion.toml", layout=plan)', "layout"),
    ):
        (chart,) = (str(text) for kind, text in shown(notebook, cell).items() if kind != "text/plain")
        assert "vega-lite" in chart and word in chart and "hdd" in chart, chart[:2000]
    advice = shown(notebook, 'advice = sw.advise(trace, cluster="orion.toml")')
    assert "on 'orion'" in advice["stdout"] and "<table" in advice["text/html"]
