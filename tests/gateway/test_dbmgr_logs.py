"""``imqdbmgr`` and the decision logs of bridges that are in the database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bridge.xa.decision_log import Change, Entry
from bridge.xa.log.file import LogFile
from gateway.broker.store.interface import StoreFailed
from gateway.instance.layout import Layout
from gateway.transaction_log import DatabaseStorage
from tests.gateway.broker.store.harness import batch_of, row
from tests.gateway.decision_logs import entry
from tests.gateway.test_dbmgr_tables import QUEUE, Tool

pytestmark = pytest.mark.process


class LogTool(Tool):
    """The command, and logs of bridges where it works."""

    def log(self, bridge: str, *changes: Change, place: str = "here") -> LogFile:
        """Open the log of a bridge, write to it, and close it.

        The gateway that does so ends in order.
        """
        store = self.store()
        rows = store.decisions(bridge)
        file = LogFile(DatabaseStorage(rows), f"one:{bridge}", 100_000, True, os.urandom, place)
        if changes:
            file.write(changes, sync=True)
        file.close()
        self.reactor.close(store)
        return file

    def known(self, bridge: str) -> tuple[Sequence[Entry], list[bytes]]:
        """The transactions of a log, and the identities of earlier runs."""
        file = self.log(bridge)
        return file.entries(), [run.identity for run in file.header.earlier]


@pytest.fixture
def tool(
    postgresql_database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[LogTool]:
    monkeypatch.delenv("IMQ_VARHOME", raising=False)
    tool = LogTool(Layout(tmp_path / "var", "one"), postgresql_database, capsys)
    yield tool
    tool.reactor.close_all()


# --- logs stay


def test_logs_outlive_new_tables(tool: LogTool) -> None:
    tool.fill()
    first = tool.log("shop", entry(1), entry(2))
    tool.log("other.one")
    code, said, error = tool("recreate", "tbl", "-f")
    assert (code, error) == (0, "")
    assert said.splitlines()[1:] == [
        "The transaction logs of the bridges are as they were: other.one, shop (2 unfinished)."
    ]
    assert tool.messages() == []
    entries, earlier = tool.known("shop")
    assert entries == (entry(1), entry(2))
    assert earlier == [first.header.identity]
    assert tool.known("other.one")[0] == ()


def test_logs_outlive_a_restore_of_a_copy_without_any(tool: LogTool, tmp_path: Path) -> None:
    tool.fill()
    assert tool("backup", "tbl", "-dir", str(tmp_path))[0] == 0
    tool.log("shop", entry(1))
    code, said, error = tool("restore", "tbl", "-f", "-dir", str(tmp_path))
    assert (code, error) == (0, "")
    assert "The transaction logs of the bridges are as they were: shop (1 unfinished)." in said
    assert tool.known("shop")[0] == (entry(1),)
    assert tool.messages() == [*range(1, 11)]


def test_a_damaged_log_outlives_new_tables_as_it_is(tool: LogTool) -> None:
    tool.fill()
    tool.log("shop", *map(entry, range(3)))
    with tool.database.connect("the test") as session:
        session.execute("DELETE FROM decision_1_0 WHERE at = (SELECT max(at) FROM decision_1_0)")
        session.execute("UPDATE decision_1_0 SET at = at + 1 WHERE at > 0")
        session.execute("INSERT INTO decision_1_0 VALUES (0, 5000, 'more')")
        before = session.execute("SELECT at, octets FROM decision_1_0 ORDER BY at").fetchall()
    code, said, error = tool("recreate", "-f")
    assert (code, error) == (0, "")
    assert "shop (damaged)" in said
    with tool.database.connect("the test") as session:
        assert (
            session.execute("SELECT at, octets FROM decision_1_0 ORDER BY at").fetchall() == before
        )


def test_tables_with_unfinished_transactions_are_not_removed_unasked(
    tool: LogTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool.fill()
    tool.log("calm")
    tool.log("shop", entry(1), entry(2))
    code, said, error = tool("delete", "tbl")
    assert (code, said) == (1, "")
    assert error.startswith(
        f"imqdbmgr: {tool.where}, has transaction logs with unfinished transactions: shop (2 unfinished). "
    )
    assert "-f" in error
    assert tool.known("shop")[0] == (entry(1), entry(2))
    code, said, error = tool("delete", "tbl", "-f")
    assert (code, error) == (0, "")
    assert said.splitlines()[1:] == [
        "With it went the transaction logs of the bridges: calm, shop (2 unfinished)."
    ]
    tool.fill()
    tool.log("calm")
    asked: list[str] = []

    def no(prompt: str = "") -> str:
        asked.append(prompt)
        return "n"

    monkeypatch.setattr("click.termui.visible_prompt_func", no)
    assert tool("delete", "tbl")[0] == 1
    assert "the transaction logs of the bridges calm?" in asked[0]


def test_logs_are_described_and_checked(tool: LogTool) -> None:
    tool.fill()
    tool.log("shop", entry(1), entry(2))
    code, said, _ = tool("query", "tbl")
    assert code == 0
    assert "\nTransaction log           Unfinished             Bytes\n" in said
    assert said.splitlines()[-1].split()[:2] == ["shop", "2"]
    assert "decision" not in said
    assert tool("check")[0] == 0
    with tool.database.connect("the test") as session:
        session.execute(
            "UPDATE decision_1_0 SET octets = set_byte(octets, 60, get_byte(octets, 60) # 4) WHERE at = 0"
        )
    code, said, _ = tool("check")
    assert code == 1
    assert "the transaction log of shop in the database" in said
    assert "is damaged: 1 problems" in said
    code, said, error = tool("delete", "tbl")
    assert (code, said) == (1, "")
    assert "shop (damaged)" in error


# --- an owner that was cut off


def test_an_owner_that_was_cut_off_writes_to_no_log_that_was_kept(tool: LogTool) -> None:
    tool.fill()
    store = tool.store()
    rows = store.decisions("shop")
    rows.replace(b"of the former owner")
    rows.waits = True
    with tool.database.connect("the test") as session:
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity, owner WHERE application_name = owner.session"
        )
    assert tool("recreate", "-f")[0] == 0
    with pytest.raises(StoreFailed, match="another process owns this broker"):
        rows.append(b"more")
    rows.close()
    assert tool.reactor.commit(store, batch_of(1, row(1), destinations=[QUEUE])) is not None
