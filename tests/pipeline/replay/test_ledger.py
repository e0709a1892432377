"""A ledger keeps its records after any crash, and has one writer at a time."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from pipeline.errors import PipelineError
from pipeline.replay.ledger import FILE, OLD_FILE, State, exists, opened, recorded, upgraded


def messages(*keys: str) -> list[dict[str, object]]:
    return [
        {
            "key": key,
            "twin": key,
            "message_id": f"ID:{key}",
            "target": "queue:a",
            "digest": "not kept",
        }
        for key in keys
    ]


def rows(folder: Path) -> list[tuple[object, ...]]:
    found = recorded(folder / FILE, *State).to_pylist()
    return [tuple(one.values()) for one in found]


def test_records_are_appended_and_its_id_stays(tmp_path: Path) -> None:
    assert not exists(tmp_path / "l")
    with opened(tmp_path / "l", "first") as ledger:
        ledger.append(State.INTENDED, 1, "plan", messages("a", "b"))
    with opened(tmp_path / "l", "second") as ledger:
        ledger.append(State.SENT, 2, "plan", messages("a"))
        assert ledger.id == "first"
        # Who looks while it is written sees what is there.
        assert len(rows(tmp_path / "l")) == 3
    assert exists(tmp_path / "l")
    assert rows(tmp_path / "l") == [
        ("intended", 1, "a", "a", "ID:a", "queue:a", "plan"),
        ("intended", 1, "b", "b", "ID:b", "queue:a", "plan"),
        ("sent", 2, "a", "a", "ID:a", "queue:a", "plan"),
    ]
    found = recorded(tmp_path / "l" / FILE, State.SENT)
    assert found.column("key").to_pylist() == ["a"]


KILLED = """
import os, signal, sys, threading
from pathlib import Path
from pipeline.replay.ledger import State, opened
row = {"key": "k" * 100, "twin": "t", "message_id": "ID:1", "target": "queue:a"}
with opened(Path(sys.argv[1]), "x") as ledger:
    for number in range(1_000_000):
        ledger.append(State.INTENDED, number, "plan", [row] * 50)
        print(number, flush=True)
"""


@pytest.mark.process
def test_what_was_said_to_be_there_is_after_a_kill_and_no_half_of_a_record(tmp_path: Path) -> None:
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        for _ in range(5):
            said = int(child.stdout.readline())
        before = len(rows(tmp_path))
        child.kill()
        rest = child.stdout.read().split()
        child.wait()
        last = int(rest[-1]) if rest else said
        with opened(tmp_path, "y") as ledger:
            assert ledger.id == "x"
        found = rows(tmp_path)
        assert len(found) % 50 == 0
        assert len(found) >= before
        assert max(int(str(one[1])) for one in found[-50:]) in (last, last + 1)


def test_one_at_a_time(tmp_path: Path) -> None:
    with (
        opened(tmp_path, "x"),
        pytest.raises(PipelineError, match="another replay uses it"),
        opened(tmp_path, "y"),
    ):
        pass


@pytest.mark.parametrize("place", [0, 30, 5_000])
def test_damage_is_refused(place: int, tmp_path: Path) -> None:
    with opened(tmp_path, "x") as ledger:
        ledger.append(State.INTENDED, 1, "plan", messages(*map(str, range(500))))
    octets = bytearray((tmp_path / FILE).read_bytes())
    octets[place : place + 5_000] = b"\xff" * 5_000
    (tmp_path / FILE).write_bytes(octets)
    said = r"the ledger .* (is damaged \(.*nothing is replayed by it|cannot be read: .*)$"
    with pytest.raises(PipelineError, match=said), opened(tmp_path, "y"):
        pass
    with pytest.raises(PipelineError, match=said):
        exists(tmp_path)


def test_what_is_another_database_is_refused_and_left(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute("create table mine (what text)")
    with pytest.raises(PipelineError, match="is no ledger"), opened(tmp_path, "y"):
        pass
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        assert database.execute("select name from sqlite_master").fetchall() == [("mine",)]


@pytest.mark.long
def test_one_who_looks_for_long_does_not_end_a_replay(tmp_path: Path) -> None:
    with opened(tmp_path, "x") as ledger:
        ledger.append(State.INTENDED, 1, "plan", messages("a"))
        looking = sqlite3.connect(tmp_path / FILE, isolation_level=None, check_same_thread=False)
        looking.execute("begin")
        looking.execute("select * from records").fetchone()
        # Longer than SQLite is patient by itself.
        threading.Timer(7, looking.close).start()
        ledger.append(State.SENT, 2, "plan", messages("a"))
    assert [row[0] for row in rows(tmp_path)] == ["intended", "sent"]


def test_another_version_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        database.execute("create table ledger (id text)")
        database.execute("pragma user_version = 3")
    with pytest.raises(PipelineError, match="has version 3"), opened(tmp_path, "y"):
        pass


OLD = """{"ledger":1,"id":"x"}
{"state":"intended","at":1,"key":"a","twin":"t","message_id":"ID:ö","target":"queue:a","plan":"p"}
{"state":"sent","at":2,"key":"a","twin":"t","message_id":"ID:ö","target":"queue:a","plan":"p"}
"""


def test_a_ledger_of_an_earlier_version_is_taken_over_once(tmp_path: Path) -> None:
    old = tmp_path / OLD_FILE
    old.write_text(OLD + '{"state":"sent","at":3,"ke')
    with pytest.raises(PipelineError, match="gateway-pipeline upgrade makes one"):
        exists(tmp_path)
    with pytest.raises(PipelineError, match="of an earlier version"), opened(tmp_path, "y"):
        pass
    assert upgraded(tmp_path) == 2
    assert not old.exists()
    expected = [
        ("intended", 1, "a", "t", "ID:ö", "queue:a", "p"),
        ("sent", 2, "a", "t", "ID:ö", "queue:a", "p"),
    ]
    assert rows(tmp_path) == expected
    # Of another one, as of a backup: its records are not in this one.
    old.write_text(OLD.replace('"x"', '"z"'))
    with pytest.raises(PipelineError, match="is of another ledger than"):
        upgraded(tmp_path)
    # As if it had been killed before it removed the old one.
    old.write_text(OLD)
    assert upgraded(tmp_path) == 2
    with opened(tmp_path, "y") as ledger:
        assert (ledger.id, rows(tmp_path)) == ("x", expected)


@pytest.mark.parametrize("line", ["no json", "[]", '{"state":"sent"}', '{"ledger":1,"id":"z"}'])
def test_damage_of_an_earlier_version_is_refused_with_its_place(line: str, tmp_path: Path) -> None:
    text = OLD.splitlines()
    (tmp_path / OLD_FILE).write_text("\n".join([text[0], line, text[1], ""]))
    with pytest.raises(PipelineError, match="damaged in line 2"):
        upgraded(tmp_path)
    assert not exists(tmp_path / "elsewhere")


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(PipelineError, match=r"--ledger .*file/l: "),
        opened(tmp_path / "file" / "l", "x"),
    ):
        pass


FULL = """
import resource, sys
from pathlib import Path
from pipeline.errors import PipelineError
from pipeline.replay.ledger import State, opened
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
row = {"key": "k" * 100, "twin": "t", "message_id": "ID:1", "target": "queue:a"}
try:
    with opened(Path(sys.argv[1]), "x") as ledger:
        while True:
            ledger.append(State.INTENDED, 1, "plan", [row] * 3)
except PipelineError as error:
    sys.exit(str(error))
"""


@pytest.mark.process
@pytest.mark.parametrize("room", [4_096, 100_000])
def test_a_disk_without_room_is_one_line_and_what_was_said_to_be_there_is(
    room: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), str(room)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.startswith(f"the ledger {tmp_path / FILE} cannot be written: ")
    assert done.stderr.count("\n") == 1
    # Half of a record is no record.
    with opened(tmp_path, "y") as ledger:
        ledger.append(State.SENT, 2, "plan", messages("c"))
    states = [row[0] for row in rows(tmp_path)]
    assert states == [*["intended"] * (len(states) - 1), "sent"]
    assert (len(states) - 1) % 3 == 0
    assert (len(states) > 1) == (room > 50_000)
