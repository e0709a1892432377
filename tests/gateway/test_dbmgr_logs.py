"""``imqdbmgr`` and the decision logs of bridges that are in the database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Thread

import pytest

from bridge.xa.decision_log import Change, Entry, Removed
from bridge.xa.errors import LogFailed
from bridge.xa.log.file import LogFile
from bridge.xa.log.opening import TransactionProperties, open_file
from gateway.broker.store.interface import StoreFailed
from gateway.instance.layout import Layout
from gateway.transaction_log import DatabaseStorage
from tests.crash.waiting import until
from tests.gateway.broker.store.harness import batch_of, row
from tests.gateway.decision_logs import entry, presumed, rows_of
from tests.gateway.test_dbmgr_tables import QUEUE, Tool

pytestmark = pytest.mark.process


class LogTool(Tool):
    """The command, and logs of bridges where it works."""

    def log(self, bridge: str, *changes: Change, place: str = "here") -> LogFile:
        """Open the log of a bridge, write to it, and close it.

        The gateway that does so ends in order.
        """
        store = self.store()
        rows = rows_of(store, bridge)
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
    assert "is damaged: 1 problem" in said
    code, said, error = tool("delete", "tbl")
    assert (code, said) == (1, "")
    assert "shop (damaged)" in error


# --- an owner that was cut off


def test_an_owner_that_was_cut_off_writes_to_no_log_that_was_kept(tool: LogTool) -> None:
    tool.fill()
    store = tool.store()
    rows = rows_of(store, "shop")
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


# --- copies


def file_of(path: Path) -> LogFile:
    """Open a log in a file, as its bridge does."""
    bridge = path.name.removeprefix("txlog.")
    return open_file(
        path.parent, bridge, f"one:{bridge}", TransactionProperties(100_000), os.urandom
    )


def test_logs_go_to_files_and_back(tool: LogTool, tmp_path: Path) -> None:
    tool.fill()
    run = tool.log("shop", entry(1), entry(2), presumed(3))
    tool.log("other.one")
    folder = tmp_path / "copy"
    code, said, error = tool("backup", "tbl", "-dir", str(folder))
    assert (code, error) == (0, "")
    assert said.splitlines()[1:] == [
        "Beside it are the transaction logs of the bridges: other.one, shop (2 unfinished)."
    ]
    assert {path.name for path in folder.iterdir()} == {
        "messages.db",
        "txlog.shop",
        "txlog.other.one",
    }
    assert (folder / "txlog.shop").stat().st_mode & 0o777 == 0o600
    # A database without any.
    assert tool("delete", "tbl", "-f")[0] == 0
    code, said, error = tool("restore", "tbl", "-dir", str(folder))
    assert (code, error) == (0, "")
    assert said.splitlines()[1:] == [
        "The transaction logs of these bridges go on there: other.one, shop (2 unfinished)."
    ]
    again = tool.log("shop", place="elsewhere")
    assert not again.moved
    assert (again.entries(), again.presumed()) == ((entry(1), entry(2)), (presumed(3),))
    assert [each.identity for each in again.header.earlier] == [run.header.identity]
    # And a bridge with its log in a file.
    in_file = file_of(folder / "txlog.shop")
    assert (in_file.moved, in_file.entries()) == (False, (entry(1), entry(2)))
    in_file.close()


def test_what_went_on_in_a_file_replaces_what_the_database_has_of_it(
    tool: LogTool, tmp_path: Path
) -> None:
    tool.fill()
    tool.log("shop", entry(1), entry(2))
    assert tool("backup", "tbl", "-dir", str(tmp_path))[0] == 0
    file = file_of(tmp_path / "txlog.shop")
    file.write([Removed(entry(1).gtrid), entry(3)], sync=True)
    file.close()
    code, said, error = tool("restore", "tbl", "-f", "-dir", str(tmp_path))
    assert (code, error) == (0, "")
    assert "go on there: shop (2 unfinished)." in said
    assert tool.known("shop")[0] == (entry(2), entry(3))


def test_a_copy_is_not_put_over_a_log_that_went_on(tool: LogTool, tmp_path: Path) -> None:
    tool.fill()
    tool.log("shop", entry(1))
    assert tool("backup", "tbl", "-dir", str(tmp_path))[0] == 0
    # Nothing has happened meanwhile.
    code, said, _ = tool("restore", "tbl", "-f", "-dir", str(tmp_path))
    assert code == 0
    assert "are as they were: shop (1 unfinished)." in said
    tool.log("shop", entry(2))
    for _ in range(2):
        code, said, error = tool("restore", "tbl", "-f", "-dir", str(tmp_path))
        assert (code, said) == (1, "")
        assert error.startswith(
            f"imqdbmgr: bridge shop has two transaction logs, and each may have decided what the other does not know: {tmp_path / 'txlog.shop'}, "
            f"and that in {tool.where}. "
        )
        # The file goes on, too.
        file_of(tmp_path / "txlog.shop").close()
    assert tool.known("shop")[0] == (entry(1), entry(2))
    (tmp_path / "txlog.shop").unlink()
    assert tool("restore", "tbl", "-f", "-dir", str(tmp_path))[0] == 0
    assert tool.known("shop")[0] == (entry(1), entry(2))


@pytest.mark.parametrize("opened", [False, True])
def test_a_copy_of_a_log_in_use_never_goes_on_as_the_same(
    tool: LogTool, tmp_path: Path, opened: bool
) -> None:
    """The owner decides more in the same run, of which the copy does not know."""
    tool.fill()
    store = tool.store()
    rows = rows_of(store, "shop")
    log = LogFile(DatabaseStorage(rows), "one:shop", 100_000, True, os.urandom, "here")
    log.write([entry(1)], sync=True)
    code, said, error = tool("backup", "tbl", "-dir", str(tmp_path))
    assert (code, error) == (0, "")
    assert "A process owned the broker meanwhile" in said
    log.write([entry(2)], sync=True)
    log.close()
    tool.reactor.close(store)
    if opened:
        file = file_of(tmp_path / "txlog.shop")
        assert file.moved
        assert file.header.earlier == ()
        assert file.header.former == (log.header.identity,)
        file.close()
        again = file_of(tmp_path / "txlog.shop")
        assert not again.moved
        again.close()
    code, _, error = tool("restore", "tbl", "-f", "-dir", str(tmp_path))
    assert code == 1
    assert "bridge shop has two transaction logs" in error
    assert tool("delete", "tbl", "-f")[0] == 0
    assert tool("restore", "tbl", "-dir", str(tmp_path))[0] == 0
    # Also where a database does not say which it is.
    assert tool.log("shop", place="").moved is not opened


def test_an_owner_that_lost_its_session_is_left_alone_by_a_backup(
    tool: LogTool, tmp_path: Path
) -> None:
    tool.fill()
    store = tool.store()
    rows = rows_of(store, "shop")
    rows.waits = True
    log = LogFile(DatabaseStorage(rows), "one:shop", 100_000, True, os.urandom, "here")
    with tool.database.connect("the test") as session:
        session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity, owner WHERE application_name = owner.session"
        )
        backing_up = Thread(target=tool.run, args=("backup", "tbl", "-dir", str(tmp_path)))
        backing_up.start()
        # The log is not the session that says that its owner lives.
        log.write([entry(1)], sync=True)
        until(lambda: (tmp_path / "txlog.shop").exists(), "no copy was made")
        # From here on it was ended, as it gave no sign of life for long.
        with pytest.raises(LogFailed, match="another process owns this broker"):
            log.write([entry(2)], sync=True)
        backing_up.join()
    log.close()
    file = file_of(tmp_path / "txlog.shop")
    assert (file.moved, file.entries()) == (False, (entry(1),))
    file.close()
    assert tool.reactor.commit(store, batch_of(1, row(1), destinations=[QUEUE])) is not None


def test_nothing_is_left_of_a_copy_that_fails(tool: LogTool, tmp_path: Path) -> None:
    tool.fill()
    tool.log("shop", entry(1))
    (tmp_path / "messages.db").touch()
    assert tool("backup", "tbl", "-dir", str(tmp_path))[0] == 1
    assert [path.name for path in tmp_path.glob("*txlog*")] == []
    (tmp_path / "messages.db").unlink()
    (tmp_path / "txlog.shop").write_bytes(b"of another")
    code, _, error = tool("backup", "tbl", "-dir", str(tmp_path))
    assert code == 1
    assert error == (
        f"imqdbmgr: {tmp_path / 'txlog.shop'} is there already: move it away, or give another folder\n"
    )
    assert (tmp_path / "txlog.shop").read_bytes() == b"of another"
    assert not (tmp_path / "messages.db").exists()
    assert [path.name for path in tmp_path.glob(".txlog*")] == []


def test_a_damaged_log_is_not_copied(tool: LogTool, tmp_path: Path) -> None:
    tool.fill()
    tool.log("shop", entry(1))
    copy, damaged = tmp_path / "copy", tmp_path / "damaged"
    assert tool("backup", "tbl", "-dir", str(copy))[0] == 0
    with tool.database.connect("the test") as session:
        session.execute("UPDATE decision_1_0 SET octets = 'else' WHERE at = 0")
    code, _, error = tool("backup", "tbl", "-dir", str(damaged))
    assert code == 1
    assert "the transaction log of shop in the database" in error
    assert list(damaged.iterdir()) == []
    assert tool("recreate", "-f")[0] == 0
    (copy / "txlog.shop").write_bytes(b"else")
    code, _, error = tool("restore", "tbl", "-f", "-dir", str(copy))
    assert code == 1
    assert f"the transaction log {copy / 'txlog.shop'} is damaged at octet 0" in error
    (copy / "txlog.shop").rename(copy / "txlog...")
    assert (
        "'..' cannot be the name of a bridge" in tool("restore", "tbl", "-f", "-dir", str(copy))[2]
    )
    assert tool.messages() == []


# --- remove jmsbridge


def in_file(tool: Tool) -> Path:
    """Give bridge shop a log in its file, with a decision."""
    path = tool.layout.transaction_log("shop")
    path.parent.mkdir(parents=True, exist_ok=True)
    file = file_of(path)
    file.write([entry(1)], sync=True)
    file.close()
    return path


def test_the_log_of_one_bridge_is_removed(tool: LogTool) -> None:
    tool.fill()
    tool.log("shop", entry(1), entry(2))
    tool.log("calm")
    code, said, error = tool("remove", "jmsbridge", "-n", "shop")
    assert (code, said) == (1, "")
    assert error.startswith(
        f"imqdbmgr: bridge shop has 2 unfinished transactions in {tool.where}: have it finish them. "
    )
    path = in_file(tool)
    code, said, error = tool("remove", "jmsbridge", "-n", "shop", "-f")
    assert (code, error) == (0, "")
    assert said.splitlines() == [
        f"The transaction log of bridge shop (2 unfinished) is removed from {tool.where}.",
        f"{path} is still there, and goes on when the bridge starts.",
    ]
    with tool.database.connect("the test") as session:
        left = session.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^decision_\\d+_\\d$' AND relkind = 'r'"
        ).fetchall()
    assert sorted(left) == [("decision_2_0",), ("decision_2_1",)]
    code, said, error = tool("remove", "jmsbridge", "-n", "shop", "-f")
    assert (code, said) == (1, "")
    assert error == f"imqdbmgr: {tool.where}, has no transaction log of bridge shop\n"
    assert tool.known("calm")[0] == ()
    assert tool.known("shop") == ((), [])
    assert tool.messages() == [*range(1, 11)]


def test_a_log_is_not_removed_while_a_process_owns_the_broker(tool: LogTool) -> None:
    tool.fill()
    tool.log("calm")
    store = tool.store()
    code, said, error = tool("remove", "jmsbridge", "-n", "calm", "-f")
    assert (code, said) == (1, "")
    assert "node 1 owns this broker since" in error
    tool.reactor.close(store)


@pytest.mark.parametrize("where", ["database", "file"])
def test_removing_a_log_asks(tool: LogTool, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    more: tuple[str, ...] = ()
    if where == "file":
        more = ("-Dimq.persist.store=sqlite",)
        path = tool.layout.transaction_log("calm")
        path.parent.mkdir(parents=True)
        file_of(path).close()
    else:
        tool.fill()
        tool.log("calm")
    asked: list[str] = []
    answers = iter(["n", "y"])

    def answer(prompt: str = "") -> str:
        asked.append(prompt)
        return next(answers)

    monkeypatch.setattr("click.termui.visible_prompt_func", answer)
    code, said, error = tool("remove", "jmsbridge", "-n", "calm", *more)
    assert (code, said) == (1, "")
    assert error.endswith("imqdbmgr: aborted; nothing was changed\n")
    assert asked[0].startswith("Remove the transaction log ")
    assert tool("remove", "jmsbridge", "-n", "calm", *more)[0] == 0
    assert len(asked) == 2
    assert tool("remove", "jmsbridge", "-n", "calm", "-f", *more)[0] == 1


def test_the_file_of_a_log_is_removed(tool: LogTool) -> None:
    path = in_file(tool)

    def remove(*more: str) -> tuple[int, str, str]:
        return tool("remove", "jmsbridge", "-n", "shop", "-Dimq.persist.store=sqlite", *more)

    code, said, error = remove()
    assert (code, said) == (1, "")
    assert error.startswith(
        f"imqdbmgr: bridge shop has 1 unfinished transactions in {path}: have it finish them. "
    )
    beside = tool.layout.store / path.name
    beside.write_bytes(b"damaged")
    with tool.layout.lock():
        code, said, error = remove("-f")
        assert (code, said) == (1, "")
        assert "the instance is in use" in error
    orders = tool.layout.bridge_orders("shop")
    orders.write_text("{}")
    code, said, error = remove("-f")
    assert (code, error) == (0, "")
    assert not orders.exists()
    assert said.splitlines() == [
        f"The transaction log {path} of bridge shop (1 unfinished) is removed.",
        f"The transaction log {beside} of bridge shop (damaged) is removed.",
    ]
    assert remove("-f")[2] == f"imqdbmgr: {path} does not exist\n"
    beside.write_bytes(b"damaged")
    code, said, error = remove()
    assert (code, said) == (1, "")
    assert f"the transaction log {beside} is damaged at octet 0" in error
    assert error.endswith(". With -f it is removed as it is\n")


@pytest.mark.parametrize(
    "words",
    [
        ("remove",),
        ("remove", "jmsbridge"),
        ("remove", "tbl", "-n", "shop"),
    ],
)
def test_a_wrong_command_line_removes_nothing(tool: LogTool, words: tuple[str, ...]) -> None:
    assert tool(*words)[0] == 2


def test_no_log_is_outside_its_folder(tool: LogTool) -> None:
    code, _, error = tool(
        "remove", "jmsbridge", "-n", "../shop", "-f", "-Dimq.persist.store=sqlite"
    )
    assert code == 1
    assert "cannot be the name of a bridge" in error
