"""``imqdbmgr`` as an operator types it, on tables in a database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from gateway import dbmgr
from gateway.broker.properties.jdbc import PASSWORD
from gateway.broker.store.interface import DestinationRow, StoreError
from gateway.broker.store.postgresql.connecting import Database
from gateway.broker.store.postgresql.store import PostgresqlStore
from gateway.instance import passfile, properties
from gateway.instance.layout import Layout
from tests.gateway.broker.store.harness import QueueReactor, batch_of, row

pytestmark = pytest.mark.process

QUEUE = DestinationRow(1, 0, "q", "", 0)


class Tool:
    """The command on one instance, whose messages are in a database."""

    def __init__(self, layout: Layout, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.layout = layout
        self._capsys = capsys
        self._url = urlsplit(url)
        place = f"{self._url.hostname}:{self._url.port}{self._url.path}"
        self.where = f"the database {place}, schema mq_one"
        self.reactor = QueueReactor()
        password = unquote(self._url.password or "")
        layout.create(
            [
                ("imq.persist.store", "jdbc"),
                ("imq.persist.jdbc.postgresql.opendburl", f"postgresql://{place}"),
                ("imq.persist.jdbc.postgresql.user", self._url.username or ""),
                ("imq.passfile.enabled", "true"),
            ]
        )
        passfile.update(layout.passfile, {PASSWORD.name: password})
        self.database = Database(
            {
                "host": self._url.hostname or "",
                "port": str(self._url.port),
                "dbname": self._url.path[1:],
                "user": self._url.username or "",
                "password": password,
            },
            place,
            "mq_one",
        )

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = self.run(*arguments)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def run(self, *arguments: str) -> int:
        """The exit code."""
        place = ("-varhome", str(self.layout.varhome), "-i", self.layout.instance)
        return dbmgr.run([*arguments, *place])

    def store(self) -> PostgresqlStore:
        """The store of a process that owns the broker."""
        store = PostgresqlStore(self.database, "node 1", self.reactor.reactor, taking_seconds=0.0)
        store.open()
        self.reactor.close_later(store)
        return store

    def fill(self) -> None:
        """Have messages in the database."""
        assert self("create", "tbl")[0] == 0
        store = self.store()
        rows = [row(seq) for seq in range(1, 11)]
        assert (
            self.reactor.commit(store, batch_of(1, *rows, destinations=[QUEUE], reserved=11))
            is None
        )
        self.reactor.close(store)

    def messages(self) -> list[int]:
        """What a gateway finds."""
        store = self.store()
        found = [each.seq for block in store.scan() for each in block]
        self.reactor.close(store)
        return found


@pytest.fixture
def tool(
    postgresql_database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Tool]:
    monkeypatch.delenv("IMQ_VARHOME", raising=False)
    tool = Tool(Layout(tmp_path / "var", "one"), postgresql_database, capsys)
    yield tool
    tool.reactor.close_all()


def test_tables_are_made_and_described(tool: Tool) -> None:
    code, said, error = tool("query", "tbl")
    assert (code, said) == (1, "")
    assert error == (
        f"imqdbmgr: {tool.where}, has no tables of this broker: 'imqdbmgr create tbl' makes them\n"
    )
    with pytest.raises(StoreError, match="'imqdbmgr create tbl' makes them"):
        tool.store()
    assert tool("create", "tbl") == (0, f"T{tool.where[1:]}, is an empty store.\n", "")
    code, _, error = tool("create", "tbl")
    assert code == 1
    assert "'imqdbmgr recreate tbl' makes it anew" in error
    assert "none yet" in tool("query")[1]
    store = tool.store()
    rows = [row(seq) for seq in range(1, 11)]
    assert tool.reactor.commit(store, batch_of(1, *rows, destinations=[QUEUE], reserved=11)) is None
    code, said, error = tool("query", "tbl")
    assert (code, error) == (0, "")
    assert re.search(r"^Owner +node 1, since .*; \d+\.\d seconds since", said, re.M)
    assert re.search(r"^Closed +no$", said, re.M)
    assert re.search(r"^message +10 +\d+ +2$", said, re.M)
    assert re.search(r"^destination +1 +\d+ +1$", said, re.M)
    tool.reactor.close(store)
    _, said, _ = tool("query")
    assert re.search(r"^Owner +none; node 1 has given it up$", said, re.M)
    assert re.search(r"^Closed +in order$", said, re.M)


def test_there_is_nothing_to_upgrade_yet(tool: Tool) -> None:
    tool.fill()
    code, said, _ = tool("upgrade", "tbl")
    assert code == 0
    assert "has the tables of this version; nothing was done" in said
    with tool.database.connect("the test") as session:
        session.execute("UPDATE meta SET value = '2' WHERE key = 'version'")
    for words in (("upgrade", "tbl"), ("query",), ("check",), ("backup", "tbl", "-dir", "x")):
        code, said, error = tool(*words)
        assert (code, said) == (1, "")
        assert error.endswith("has schema version 2; this program reads versions up to 1\n")


@pytest.mark.parametrize(
    "words", [("delete", "tbl"), ("recreate", "tbl"), ("recreate",), ("restore", "tbl")]
)
def test_refused_while_a_process_owns_the_broker(
    tool: Tool, tmp_path: Path, words: tuple[str, ...]
) -> None:
    tool.fill()
    assert tool("backup", "tbl", "-dir", str(tmp_path))[0] == 0
    store = tool.store()
    more = ("-dir", str(tmp_path)) if "restore" in words else ()
    code, said, error = tool(*words, *more, "-f")
    assert (code, said) == (1, "")
    assert error.startswith(f"imqdbmgr: {tool.where}: node 1 owns this broker since ")
    tool.reactor.close(store)
    assert tool.messages() == [*range(1, 11)]


@pytest.mark.parametrize("command", ["delete", "recreate", "restore"])
def test_what_loses_messages_asks(
    tool: Tool, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool.fill()
    more: tuple[str, ...] = ()
    if command == "restore":
        assert tool("backup", "tbl", "-dir", str(tmp_path / "copy"))[0] == 0
        more = ("-dir", str(tmp_path / "copy"))
    asked: list[str] = []

    def no(prompt: str = "") -> str:
        asked.append(prompt)
        return "n"

    monkeypatch.setattr("click.termui.visible_prompt_func", no)
    code, said, error = tool(command, "tbl", *more)
    assert (code, said) == (1, "")
    assert error.endswith("imqdbmgr: aborted; nothing was changed\n")
    assert len(asked) == 1
    assert tool.messages() == [*range(1, 11)]
    assert tool(command, "tbl", "-f", *more)[0] == 0
    assert len(asked) == 1
    if command == "delete":
        assert "has no tables" in tool("query")[2]
        assert tool("delete", "tbl", "-f")[0] == 1
    else:
        assert tool.messages() == ([*range(1, 11)] if command == "restore" else [])


def test_a_damaged_row_is_listed(tool: Tool) -> None:
    tool.fill()
    assert tool("check") == (0, f"T{tool.where[1:]}, is whole: 10 messages.\n", "")
    with tool.database.connect("the test") as session:
        session.execute("UPDATE message_0 SET body = 'other' WHERE seq = 4")
    assert tool("check", "tbl") == (
        1,
        f"{tool.where} is damaged at message 4: its checksum is wrong\n"
        f"T{tool.where[1:]}, is damaged: 1 problem. Of its messages 10 were looked at.\n",
        "",
    )


def test_a_backup_is_made_while_the_owner_runs_and_restored(tool: Tool, tmp_path: Path) -> None:
    tool.fill()
    store = tool.store()
    folder = tmp_path / "new" / "copy"
    code, said, error = tool("backup", "tbl", "-dir", str(folder))
    assert (code, error) == (0, "")
    assert said == f"{folder / 'messages.db'} has all that {tool.where}, had: 10 messages.\n"
    code, said, error = tool("backup", "tbl", "-dir", str(folder))
    assert (code, said) == (1, "")
    assert "is there already" in error
    assert tool.reactor.commit(store, batch_of(1, row(11), deletes=[1])) is None
    tool.reactor.close(store)
    assert tool.messages() == [*range(2, 12)]
    code, said, error = tool("restore", "tbl", "-f", "-dir", str(folder))
    assert (code, error) == (0, "")
    assert said.startswith(f"T{tool.where[1:]}, has all that {folder / 'messages.db'} has: 10")
    assert tool.messages() == [*range(1, 11)]
    assert tool("restore", "tbl", "-f", "-dir", str(tmp_path))[2] == (
        f"imqdbmgr: {tmp_path / 'messages.db'} does not exist\n"
    )


def test_nothing_is_left_out_of_a_backup_in_silence(tool: Tool, tmp_path: Path) -> None:
    tool.fill()
    with tool.database.connect("the test") as session:
        session.execute("CREATE TABLE later (id bigint)")
        assert tool("backup", "tbl", "-dir", str(tmp_path / "empty"))[0] == 0
        session.execute("INSERT INTO later VALUES (1)")
    code, said, error = tool("backup", "tbl", "-dir", str(tmp_path / "copy"))
    assert (code, said) == (1, "")
    assert error == f"imqdbmgr: {tool.where}: table later has rows, which a file has no place for\n"
    assert not (tmp_path / "copy" / "messages.db").exists()
    assert re.search(r"^later +1 +\d+ +1$", tool("query")[1], re.M)


def test_the_settings_are_those_of_the_instance(tool: Tool, tmp_path: Path) -> None:
    tool.fill()
    # Another broker of the same database.
    assert tool("create", "tbl", "-Dimq.brokerid=two")[1].endswith(
        "schema mq_two, is an empty store.\n"
    )
    assert "message                    0" in tool("query", "-Dimq.brokerid=two")[1]
    other = tmp_path / "passfile"
    passfile.update(other, {PASSWORD.name: "wrong"})
    code, said, error = tool("query", "-passfile", str(other))
    assert (code, said) == (1, "")
    assert "password authentication failed" in error
    assert "wrong" not in error
    tool.layout.settings.write_text(properties.line("imq.persist.store", "jdbc") + "\n")
    code, said, error = tool("query")
    assert (code, said) == (1, "")
    assert "imq.persist.jdbc.postgresql.opendburl" in error


@pytest.mark.parametrize("words", [("create",), ("delete",), ("query", "tabl"), ("backup", "tbl")])
def test_a_wrong_command_line(tool: Tool, words: tuple[str, ...]) -> None:
    assert tool(*words)[0] == 2


def test_a_log_is_a_file_s(tool: Tool) -> None:
    tool.fill()
    code, said, error = tool("recover", "-f")
    assert (code, said) == (1, "")
    assert "has no log of its own" in error


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("create", "tbl"), "the first start makes it"),
        (("delete", "tbl"), "'imqdbmgr recreate' begins an empty one"),
        (("upgrade", "tbl"), "the start of the gateway upgrades it"),
    ],
)
def test_what_is_for_a_database_names_what_is_for_a_file(
    tool: Tool, words: tuple[str, ...], instead: str
) -> None:
    code, said, error = tool(*words, "-Dimq.persist.store=file")
    assert (code, said) == (1, "")
    assert error.startswith(f"imqdbmgr: {tool.layout.directory} has its messages in a file")
    assert instead in error
