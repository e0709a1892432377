"""The notebook of the documentation runs, against a gateway and a journal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import nbformat
import pytest
from nbclient import NotebookClient

from tests.gateway_process import ROOT, GatewayProcess
from tests.pipeline.conftest import QUICK
from tests.pipeline.datasource.brokers import Broker
from tests.pipeline.generated import write_journal

pytestmark = pytest.mark.process

NOTEBOOK: Final = ROOT / "docs" / "messages.ipynb"


def test_the_notebook_says_what_is_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = write_journal(tmp_path / "journal", 500, queues=2)
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    assert [cell for cell in notebook.cells if cell.get("outputs")] == [], "it is kept unrun"
    monkeypatch.setenv("JOURNAL", str(tmp_path / "journal"))
    monkeypatch.setenv("TABLES", str(tmp_path / "tables"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    with GatewayProcess(tmp_path / "var") as gateway:
        Broker(gateway.port, {}, "orders").fill(["one", "two"])
        monkeypatch.setenv("STOMP_PORT", str(gateway.port))
        resources = {"metadata": {"path": str(tmp_path)}}
        NotebookClient(notebook, timeout=300, resources=resources).execute()
    said = [
        "".join(_text(output) for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    assert f"events              {truth.events:,}" in said[2]
    counted = dict(re.findall(r"│ ([a-z][a-z ]*?) +│ +(\d+) │", said[3]))
    assert counted == {outcome: str(count) for outcome, count in truth.outcomes.items()}
    assert re.search(r"│ queue:orders.0 +│", said[4])
    assert re.findall(r"\|(one|two)\s*\|4 ", said[5]) == ["one", "two"]


def _text(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return str(output.text)
    return str(output.get("data", {}).get("text/plain", ""))
