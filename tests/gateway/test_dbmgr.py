"""``imqdbmgr`` as an operator types it, on stores whose logs were damaged."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway import dbmgr
from gateway.broker.store.integrity import opening, wal
from gateway.broker.store.interface import Batch, DestinationRow, StoreDamaged, SubscriptionRow
from gateway.broker.store.sqlite import SqliteStore
from gateway.instance.layout import Layout
from tests.gateway.broker.store.harness import (
    History,
    QueueReactor,
    batch_of,
    contents,
    insert,
    row,
)

FRAME = wal.FRAME_HEADER + opening.PAGE_SIZE
BATCHES = 12


class Tool:
    """The command on one instance."""

    def __init__(self, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
        self.layout = layout
        self.database = layout.messages
        self.log = layout.messages.with_name("messages.db-wal")
        self._capsys = capsys

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = dbmgr.run(
            [*arguments, "-varhome", str(self.layout.varhome), "-i", self.layout.instance]
        )
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in (self.database, self.log)}

    def flip(self, offset: int, path: Path | None = None) -> None:
        with (path or self.log).open("r+b") as file:
            file.seek(offset)
            octet = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([octet ^ 0x10]))

    def opened(self) -> dict[str, object]:
        """What the store holds when a gateway opens it."""
        reactor = QueueReactor()
        store = SqliteStore(str(self.database), reactor.reactor, reserve_octets=0, idle_seconds=600)
        found = contents(reactor, store, store.open())
        reactor.close(store)
        return found

    def ends(self) -> list[int]:
        """Behind the last frame of each commit, second writings left out."""
        log = self.log.read_bytes()
        marks = [
            n
            for n in range((len(log) - wal.HEADER) // FRAME)
            if log[at(n) + 4 : at(n) + 8] != bytes(4)
        ]
        return [
            n + 1
            for n in marks
            if n - 1 not in marks or log[at(n) : at(n) + 8] != log[at(n - 1) : at(n - 1) + 8]
        ]


def at(frame: int) -> int:
    return wal.HEADER + frame * FRAME


@pytest.fixture
def tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Tool:
    monkeypatch.delenv("IMQ_VARHOME", raising=False)
    layout = Layout(tmp_path / "var", "one")
    layout.create()
    return Tool(layout, capsys)


Killed = Callable[[list[Batch]], None]


@pytest.fixture
def killed(tool: Tool, tmp_path: Path) -> Killed:
    """Leaves the instance's store as a process does that was killed after these batches."""

    def leave(batches: list[Batch]) -> None:
        reactor = QueueReactor()
        path = tmp_path / "messages.db"
        store = SqliteStore(str(path), reactor.reactor, reserve_octets=0, idle_seconds=600)
        store.open()
        for batch in batches:
            assert reactor.commit(store, batch) is None
        shutil.copy(path, tool.database)
        shutil.copy(f"{path}-wal", tool.log)
        reactor.close(store)

    return leave


@pytest.fixture
def history(killed: Killed) -> History:
    made = History(7)
    killed([made.next() for _ in range(BATCHES)])
    return made


def test_a_log_in_order(tool: Tool, history: History) -> None:
    files = tool.files()
    assert tool("query") == (0, f"The log of {tool.database} is in order.\n", "")
    assert tool("recover") == (
        0,
        f"The log of {tool.database} is in order; nothing was done.\n",
        "",
    )
    assert tool.files() == files
    assert tool.opened() == history.after_restart(BATCHES)


def test_the_refusal_names_the_command(tool: Tool, history: History) -> None:
    tool.flip(at(tool.ends()[-1] - 1) + 100)
    with pytest.raises(StoreDamaged, match="'imqdbmgr recover' says what would be lost"):
        tool.opened()


def test_the_last_commit_is_given_up(tool: Tool, history: History) -> None:
    ends = tool.ends()
    tool.flip(at(ends[-1] - 1) + 100)
    files = tool.files()
    code, said, error = tool("query")
    assert (code, error) == (1, "")
    assert (
        f"{tool.log} is damaged, or its last commit was never finished, at offset {at(ends[-1] - 1)}"
        in said
    )
    octets = tool.log.stat().st_size - at(ends[-2] + 1)
    assert f"{octets} octets" in said
    assert "1 commits" in said
    assert tool.files() == files
    code, said, error = tool("recover", "-f")
    assert (code, error) == (0, "")
    assert f"{octets} octets" in said
    aside = Path(said.rstrip().rpartition(" ")[2])
    assert {
        tool.database.with_name(path.name): path.read_bytes() for path in aside.iterdir()
    } == files
    assert aside.stat().st_mode & 0o777 == 0o700
    assert tool.opened() == history.after_restart(BATCHES - 1)


@pytest.mark.parametrize("batch", [1, 5, 9])
def test_many_commits_are_given_up(tool: Tool, history: History, batch: int) -> None:
    place = at(tool.ends()[batch] - 1)
    tool.flip(place + 3000)
    code, said, _ = tool("recover", "-f")
    assert code == 0
    assert f"is damaged at offset {place}:" in said
    assert f"{BATCHES - batch} commits" in said
    assert tool.opened() == history.after_restart(batch)


def test_messages_are_counted(tool: Tool, killed: Killed) -> None:
    second = batch_of(2, *(row(seq) for seq in range(11, 18)), deletes=(1, 2, 3))
    killed([insert(Batch(1), *(row(seq) for seq in range(1, 11))), second])
    tool.flip(at(tool.ends()[-1] - 1) + 3)
    _, said, _ = tool("recover", "-f")
    assert "7 messages that were stored, and 3 that were acknowledged or deleted" in said
    assert "The store has 10 persistent messages." in said


def test_no_is_no(tool: Tool, history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: "n")
    tool.flip(at(3) + 100)
    files = tool.files()
    code, said, error = tool("recover")
    assert (code, error.splitlines()[-1]) == (1, "imqdbmgr: aborted; nothing was changed")
    assert "What would be given up" in said
    assert tool.files() == files


def test_a_log_without_its_header_is_given_up_as_a_whole(tool: Tool, history: History) -> None:
    tool.flip(5)
    code, said, _ = tool("recover", "-f")
    assert code == 0
    assert "Without its header" in said
    assert tool.opened() == history.after_restart(0)


def test_a_log_that_was_copied_back_is_dropped_without_loss(tool: Tool, tmp_path: Path) -> None:
    """The frames before the damage are older than what the database has by then."""
    reactor = QueueReactor()
    path = tmp_path / "messages.db"
    # Copied back after each eighth commit.
    store = SqliteStore(
        str(path), reactor.reactor, reserve_octets=0, checkpoint_octets=1, idle_seconds=600
    )
    store.open()
    history = History(9)
    for _ in range(8):
        assert reactor.commit(store, history.next()) is None
    # Behind the copying on the store's thread.
    reactor.fetch(store, [1])
    shutil.copy(path, tool.database)
    shutil.copy(f"{path}-wal", tool.log)
    reactor.close(store)
    tool.flip(at(tool.ends()[-1] - 1) + 100)
    code, said, _ = tool("recover", "-f")
    assert code == 0
    assert "The database has already been written with some of it" in said
    assert tool.opened() == history.after_restart(8)


def test_damage_in_the_database_is_not_repaired(tool: Tool, history: History) -> None:
    tool.flip(at(2) + 100)
    # Its table of tables, which the kept frames do not bring.
    with tool.database.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3000)
    files = tool.files()
    code, _, error = tool("recover", "-f")
    assert code == 1
    assert "the files are as they were" in error
    assert tool.files() == files


def test_it_waits_for_no_gateway(tool: Tool, history: History) -> None:
    with tool.layout.lock():
        code, _, error = tool("query")
    assert code == 1
    assert "in use" in error


def test_an_instance_without_a_store(tool: Tool) -> None:
    code, _, error = tool("query")
    assert (code, error) == (
        1,
        f"imqdbmgr: {tool.database} does not exist. Put it back, or restore a backup; {opening.EMPTY_STORE}\n",
    )


# The whole store.


def closed(tool: Tool) -> list[int]:
    """A store that was closed in order, with messages and a subscription.

    :returns: their seqs.
    """
    reactor = QueueReactor()
    store = SqliteStore(str(tool.database), reactor.reactor, reserve_octets=0, idle_seconds=600)
    store.open()
    batch = batch_of(
        1,
        *(row(seq, body=b"body of %d." % seq) for seq in range(1, 50)),
        destinations=[DestinationRow(1, 1, "t", "")],
        subscriptions=[SubscriptionRow(1, 1, "client", "name", "", 0)],
    )
    batch.owed = {(1, seq): None for seq in range(1, 50)}
    assert reactor.commit(store, batch) is None
    reactor.close(store)
    return list(batch.inserts)


def test_check_of_a_whole_store(tool: Tool) -> None:
    closed(tool)
    before = tool.database.read_bytes()
    assert tool("check") == (
        0,
        f"{tool.database} is whole: 49 messages. It was closed in order.\n",
        "",
    )
    assert (tool.database.read_bytes(), tool.log.exists()) == (before, False)


@pytest.mark.process
def test_check_of_a_store_that_was_killed_changes_nothing(tool: Tool, killed: Killed) -> None:
    batch = batch_of(
        1, *(row(seq) for seq in range(1, 50)), destinations=[DestinationRow(1, 0, "q", "")]
    )
    killed([batch])
    files = tool.files()
    code, said, error = tool("check")
    assert (code, error) == (0, "")
    assert "is whole: 49 messages. It was not closed in order" in said
    assert tool.files() == files


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("DELETE FROM destination", "message 1: its destination, row 1, is missing"),
        ("DELETE FROM subscription", "owed row of message 1: its subscription, row 1, is missing"),
        (
            "UPDATE subscription SET destination = 5",
            "subscription 1: its destination, row 5, is missing",
        ),
        ("UPDATE subscription SET selector = 'a = 1'", "subscription 1: its checksum is wrong"),
        ("UPDATE destination SET kind = 0", "destination 1: its checksum is wrong"),
        ("UPDATE destination SET crc = crc + 1", "destination 1: its checksum is wrong"),
        ("DELETE FROM subscription", "table subscription: "),
        ("DELETE FROM message WHERE seq = 7", "owed row of message 7: the message is missing"),
        ("DELETE FROM message WHERE seq = 7", "content 7: the message it belongs to is missing"),
        ("DELETE FROM content WHERE seq = 7", "message 7: its content is missing"),
        ("UPDATE content SET body = x'00' WHERE seq = 7", "message 7: its checksum is wrong"),
        ("UPDATE message SET priority = 12 WHERE seq = 7", "message 7: a column of table message"),
        ("UPDATE meta SET value = 5 WHERE key = 'clean'", "table meta: it has no 'clean'"),
    ],
)
@pytest.mark.parametrize("sealed", [True, False])
def test_check_names_what_is_damaged(tool: Tool, statement: str, place: str, sealed: bool) -> None:
    closed(tool)
    other = sqlite3.connect(tool.database)
    if not sealed:
        other.execute("UPDATE meta SET value = 1 WHERE key = 'clean'")
    other.execute(statement)
    other.commit()
    other.close()
    code, said, error = tool("check")
    assert (code, error) == (1, "")
    assert f"{tool.database} is damaged at {place}" in said


def test_check_of_damaged_pages(tool: Tool) -> None:
    closed(tool)
    tool.flip(opening.PAGE_SIZE * 5, tool.database)
    code, said, _ = tool("check")
    assert code == 1
    assert "is damaged at pages: " in said or "is damaged at an unknown page" in said


def test_a_destination_changed_in_the_database_is_not_repaired(tool: Tool) -> None:
    closed(tool)
    other = sqlite3.connect(tool.database)
    other.execute("UPDATE meta SET value = 0 WHERE key = 'clean'")
    other.execute("UPDATE destination SET name = 'u'")
    other.commit()
    other.close()
    before = tool.database.read_bytes()
    code, _, error = tool("recover", "-f")
    assert code == 1
    assert f"{tool.database} is damaged at destination 1: its checksum is wrong" in error
    assert "the files are as they were" in error
    assert (tool.database.read_bytes(), tool.log.exists()) == (before, False)


def test_a_missing_log_is_given_up_when_asked(tool: Tool, killed: Killed, tmp_path: Path) -> None:
    batch = batch_of(
        1, *(row(seq) for seq in range(1, 109)), destinations=[DestinationRow(1, 0, "q", "")]
    )
    killed([batch])
    tool.log.unlink()
    code, said, _ = tool("check")
    assert code == 1
    assert f"{tool.log} is damaged at the whole file: it is missing" in said
    code, said, _ = tool("query")
    assert code == 1
    assert "is missing, and the store was not closed in order" in said
    assert not tool.log.exists()
    code, said, _ = tool("recover", "-f")
    assert code == 0
    assert "The store has 0 persistent messages" in said
    assert tool.opened()["index"] == []


def test_former_stores_of_one_second_are_all_kept(tool: Tool, history: History) -> None:
    assert [tool("recreate", "-f")[0] for _ in range(3)] == [0, 0, 0]
    assert len([*tool.layout.directory.glob("store.*Z*")]) == 3
