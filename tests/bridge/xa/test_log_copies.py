"""Logs that are not open: what they hold, and whether two are the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bridge.xa.decision_log import Removed
from bridge.xa.errors import LogDamaged
from bridge.xa.log.contents import LogCopy
from bridge.xa.log.file import FileStorage, LogFile
from tests.gateway.decision_logs import entry, presumed


class Log:
    """A log in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, place: str = "here") -> LogFile:
        return LogFile(FileStorage(self.path), "one:shop", 100_000, True, os.urandom, place)

    def copy(self) -> LogCopy:
        return LogCopy(self.path.read_bytes(), str(self.path), False)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "txlog.shop")


def test_a_copy_has_what_is_not_over(log: Log, tmp_path: Path) -> None:
    file = log.open()
    file.write([entry(1), entry(2), presumed(3)], sync=True)
    file.write([Removed(entry(1).gtrid)], sync=True)
    file.close()
    copy = log.copy()
    assert copy.unfinished == 1
    other = Log(tmp_path / "txlog.other")
    other.path.write_bytes(copy.octets)
    assert other.copy().is_copy_of(copy)
    opened = other.open()
    assert (opened.entries(), opened.presumed()) == ((entry(2),), (presumed(3),))
    assert not opened.moved
    opened.close()


def test_a_log_continues_the_one_that_it_was_opened_from(log: Log) -> None:
    log.open().close()
    first = log.copy()
    file = log.open()
    second = log.copy()
    file.write([entry(1)], sync=True)
    later = log.copy()
    file.close()
    assert second.continues(first)
    assert not first.continues(second)
    assert not second.is_copy_of(first)
    assert later.continues(first)
    assert not later.continues(second)
    assert not later.is_copy_of(second)


@pytest.mark.parametrize("place", ["", "here", "there"])
@pytest.mark.parametrize("ended", [False, True])
def test_only_the_copy_of_a_log_that_ended_is_the_same_log(
    log: Log, tmp_path: Path, ended: bool, place: str
) -> None:
    file = log.open()
    file.write([entry(1)], sync=True)
    file.close()
    other = Log(tmp_path / "txlog.other")
    other.path.write_bytes(log.copy().encoded(ended))
    assert other.copy().is_copy_of(log.copy())
    for moved in (not ended, False):
        opened = other.open(place)
        assert (opened.moved, opened.entries()) == (moved, (entry(1),))
        opened.close()
    assert other.copy().continues(log.copy()) is ended


def test_a_torn_tail_is_damage_where_there_can_be_none(log: Log) -> None:
    file = log.open()
    file.write([entry(1)], sync=True)
    file.close()
    data = log.path.read_bytes() + b"torn"
    assert LogCopy(data, "the log", False).unfinished == 1
    assert LogCopy(LogCopy(data, "the log", False).octets, "the log", True).unfinished == 1
    with pytest.raises(LogDamaged, match="the log is damaged"):
        LogCopy(data, "the log", True)
