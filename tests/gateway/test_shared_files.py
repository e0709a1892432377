"""Files that processes share by the database: which copy counts."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from gateway.broker.store.interface import StoreError
from gateway.broker.store.postgresql.shared_files import SharedFileRows
from gateway.instance.layout import LineError, folder_locked
from gateway.shared_files import SharedFiles
from tests.gateway.broker.store.databases import create_tables, database_at

pytestmark = pytest.mark.process


def check(path: Path) -> None:
    if b"bad" in path.read_bytes():
        raise LineError(path, 1, "it is bad")


class Machine:
    """A process with its own file."""

    def __init__(self, folder: Path, name: str, url: str, text: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.file = self.folder / "users"
        self.file.write_text(text)
        self._url = url
        self.name = name
        self.begin()

    def begin(self) -> bool:
        """As a start does."""
        rows = SharedFileRows(database_at(self._url), self.name)
        self.files = SharedFiles(rows, {"users": (self.file, check)}, self.folder / "shared.json")
        return self.files.look(give=True)

    def look(self, give: bool = False) -> bool:
        return self.files.look(give=give)

    @property
    def text(self) -> str:
        return self.file.read_text()

    @property
    def replaced(self) -> str:
        path = self.folder / "users.replaced"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def url(postgresql_database: str) -> str:
    create_tables(database_at(postgresql_database))
    return postgresql_database


def test_the_first_file_counts_and_the_second_is_kept_aside(url: str, tmp_path: Path) -> None:
    east = Machine(tmp_path, "east", url, "first")
    west = Machine(tmp_path, "west", url, "second")
    assert (east.text, west.text, west.replaced) == ("first", "first", "second")


def test_a_change_comes_to_the_others_when_it_is_given(url: str, tmp_path: Path) -> None:
    east = Machine(tmp_path, "east", url, "one")
    west = Machine(tmp_path, "west", url, "one")
    east.file.write_text("half")
    assert (east.look(), west.look(), west.text) == (False, False, "one")
    east.file.write_text("whole")
    assert (east.look(give=True), west.look(), west.text) == (False, True, "whole")
    assert west.look() is False
    # One that stands by may change it as well.
    west.file.write_text("west's")
    west.look(give=True)
    assert (east.look(), east.text, east.replaced) == (True, "west's", "")


def test_of_two_changes_at_once_none_is_lost(url: str, tmp_path: Path) -> None:
    east = Machine(tmp_path, "east", url, "one")
    west = Machine(tmp_path, "west", url, "one")
    east.file.write_text("east's")
    west.file.write_text("west's")
    east.look(give=True)
    assert (west.look(give=True), west.text, west.replaced) == (True, "east's", "west's")
    # Nor of the next two.
    east.file.write_text("east's second")
    west.file.write_text("west's second")
    east.look(give=True)
    west.look(give=True)
    assert west.replaced == "west's"
    assert (west.folder / "users.replaced-2").read_text() == "west's second"


def test_a_file_that_is_being_changed_is_waited_for(url: str, tmp_path: Path) -> None:
    east = Machine(tmp_path, "east", url, "one")
    west = Machine(tmp_path, "west", url, "one")
    east.file.write_text("east's")
    east.look(give=True)
    looking = threading.Thread(target=west.look)
    with folder_locked(west.folder):
        looking.start()
        looking.join(0.3)
        assert looking.is_alive()
        west.file.write_text("west's")
    looking.join()
    assert (west.text, west.replaced) == ("east's", "west's")


def test_a_change_that_was_made_while_the_process_was_stopped(url: str, tmp_path: Path) -> None:
    east = Machine(tmp_path, "east", url, "one")
    west = Machine(tmp_path, "west", url, "one")
    east.file.write_text("changed")
    assert east.begin() is False
    assert (west.look(), west.text) == (True, "changed")


def test_what_cannot_be_used_is_not_shared(url: str, tmp_path: Path) -> None:
    east = Machine(tmp_path, "east", url, "one")
    west = Machine(tmp_path, "west", url, "one")
    east.file.write_text("bad")
    assert (east.look(give=True), west.look(), west.text) == (False, False, "one")
    # And does not keep a good one from coming.
    west.file.write_text("good")
    west.look(give=True)
    assert (east.look(), east.text, east.replaced) == (True, "good", "bad")


def test_tables_that_are_made_anew_get_the_files_again(url: str, tmp_path: Path) -> None:
    east = Machine(tmp_path, "east", url, "one")
    database = database_at(url)
    with database.connect("the test") as session:
        session.execute("DELETE FROM shared_file")
    assert east.look() is False
    east.look(give=True)
    west = Machine(tmp_path, "west", url, "other")
    assert west.text == "one"


def test_a_record_that_is_damaged_is_made_anew(url: str, tmp_path: Path) -> None:
    east = Machine(tmp_path, "east", url, "one")
    (east.folder / "shared.json").write_text("{")
    assert east.begin() is False
    east.file.write_text("two")
    assert (east.look(give=True), east.replaced) == (False, "")


def test_without_tables_nothing_is_changed(postgresql_database: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="imqdbmgr create tbl"):
        Machine(tmp_path, "east", postgresql_database, "one")
    assert (tmp_path / "east" / "users").read_text() == "one"
