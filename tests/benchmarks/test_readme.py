"""The figures of a run as the tables of ``README.rst``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import readme, results
from benchmarks.cell import Row
from benchmarks.cells import quick
from benchmarks.cells import readme as cells
from benchmarks.goals import NearTheLimit
from benchmarks.measurement import Measurement
from benchmarks.peers import ROOT
from benchmarks.results import RowResult

SERVERS = ("gateway", "ActiveMQ", "RabbitMQ")


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    rate = RowResult("rate", Row("queue, 100 B", "msg/s", True), SERVERS)
    time = RowResult("time", Row("round trip p99", "ms", False), SERVERS)
    for server, value in (("gateway", 250_000.0), ("ActiveMQ", 25_000.0)):
        rate.add(server, Measurement(value, server_cpu=0.35))
        time.add(server, Measurement(value / 1e5))
    once = RowResult(
        "once", Row("by XA", "msg/s", True, (NearTheLimit(0.8, "a bare XA loop"),)), SERVERS
    )
    once.add("gateway", Measurement(900.0, ceiling=1000.0))
    path = tmp_path / "figures.json"
    servers = {"gateway": "stomp-gateway/1 (compiled)", "ActiveMQ": "ActiveMQ/5.17.2"}
    results.write(path, [rate, time, once], {"servers": servers})
    return path


def test_the_figures_of_a_run_replace_those_before(figures: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.rst"
    page.write_text(f"Measured\n\n{readme.BEGIN}\n\nold\n\n{readme.END}\n\nAfter\n")
    assert readme.main([str(figures), "--page", str(page)]) == 0
    before, lines, after = page.read_text().split("..")
    assert (before, after) == ("Measured\n\n", " figures end\n\nAfter\n")
    rows = [line.split("  ") for line in lines.splitlines() if line and not line.startswith("=")]
    found = [[entry.strip() for entry in row if entry.strip()] for row in rows]
    assert found[1][0].startswith("Measured on ")
    told = " ".join(lines.split())
    assert "stomp-gateway/1 (compiled), ActiveMQ 5.17.2. No message was lost" in told
    assert found[found.index(["\\", *SERVERS, "to ActiveMQ", "to RabbitMQ", "µs a message"]) :] == [
        ["\\", "gateway", "ActiveMQ", "RabbitMQ", "to ActiveMQ", "to RabbitMQ", "µs a message"],
        ["queue, 100 B", "250,000", "25,000", "10", "3.5"],
        ["round trip p99, ms", "2.5", "0.25", "**0.1**"],
        ["\\", "gateway", "a bare XA loop", "share"],
        ["by XA", "900", "1,000", "90 %"],
    ]
    readme.main([str(figures), "--page", str(page)])
    assert page.read_text().count("250,000") == 1


def test_what_was_lost_is_told(figures: Path) -> None:
    run = json.loads(figures.read_text())
    run["rows"][0]["runs"]["ActiveMQ"][0]["outcome"] |= {"lost": 2, "duplicated": 3}
    assert "twice: ActiveMQ 5 in rate." in " ".join(readme.tables(run).split())


def test_figures_of_a_busy_machine_are_only_printed(
    figures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = json.loads(figures.read_text())
    run["rows"][0]["runs"]["gateway"][0]["others"] = 1.5
    figures.write_text(json.dumps(run))
    page = tmp_path / "page.rst"
    page.write_text(before := f"{readme.BEGIN}\n{readme.END}\n")
    assert readme.main([str(figures), "--page", str(page)]) == 1
    assert "others kept 150 % of a core busy" in capsys.readouterr().err
    assert page.read_text() == before
    assert readme.main([str(figures), "--print"]) == 0
    assert "250,000" in capsys.readouterr().out


def test_a_page_without_a_place_for_them_is_refused(figures: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no lines"):
        readme.put("Measured\n", readme.tables(json.loads(figures.read_text())))


def test_the_readme_has_a_place_for_them() -> None:
    page = (ROOT / "README.rst").read_text()
    assert readme.put(page, "figures") != page


def test_what_the_readme_shows_is_measured_first() -> None:
    names = [cell.name for cell in cells()]
    assert [cell.name for cell in quick()][: len(names)] == names
