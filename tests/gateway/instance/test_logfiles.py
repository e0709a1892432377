"""Rotation of log files, as java.util.logging's FileHandler does it."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.instance.logs import LogFiles


@pytest.fixture
def named(tmp_path: Path) -> Callable[[int], Path]:
    return lambda generation: tmp_path / "bridges" / "stomp" / f"stomp{generation}.log"


def contents(named: Callable[[int], Path]) -> list[str]:
    return [path.read_text() for path in sorted(named(0).parent.iterdir())]


def test_without_a_limit_one_file_grows(named: Callable[[int], Path]) -> None:
    log = LogFiles(named, limit=0, count=3)
    for number in range(100):
        log.write(f"line {number}")
    log.close()
    [text] = contents(named)
    assert text.splitlines() == [f"line {number}" for number in range(100)]
    assert stat.S_IMODE(named(0).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("limit", "count", "lines", "left"),
    [
        pytest.param(
            4, 3, ["aaa", "bbb", "ccc", "d"], ["d\n", "ccc\n", "bbb\n"], id="the oldest is dropped"
        ),
        pytest.param(4, 1, ["aaa", "b"], ["b\n"], id="a count of one begins the file anew"),
        pytest.param(5, 2, ["éé"], ["", "éé\n"], id="bytes count and not characters"),
        pytest.param(0, 1, ["a\ud83db"], ["a\\ud83db\n"], id="half a surrogate pair is escaped"),
    ],
)
def test_what_is_left_of_lines(
    named: Callable[[int], Path], limit: int, count: int, lines: list[str], left: list[str]
) -> None:
    log = LogFiles(named, limit, count)
    for line in lines:
        log.write(line)
    log.close()
    assert contents(named) == left


def test_it_rotates_after_the_line_that_reaches_the_limit(named: Callable[[int], Path]) -> None:
    log = LogFiles(named, limit=5, count=2)
    log.write("aaa")
    assert contents(named) == ["aaa\n"]
    log.write("bbbbbb")
    assert contents(named) == ["", "aaa\nbbbbbb\n"]
    log.close()


def test_what_is_there_is_kept_and_counts(named: Callable[[int], Path]) -> None:
    first = LogFiles(named, limit=8, count=2)
    first.write("aaa")
    first.close()
    second = LogFiles(named, limit=8, count=2)
    second.write("bbb")
    second.write("c")
    second.close()
    assert contents(named) == ["c\n", "aaa\nbbb\n"]


@given(st.lists(st.integers(0, 30), max_size=30), st.integers(1, 40), st.integers(1, 4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_the_files_are_the_end_of_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], limit: int, count: int
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log = LogFiles(lambda generation: directory / str(generation), limit, count)
    lines = [chr(ord("a") + number % 26) * length + "\n" for number, length in enumerate(lengths)]
    for line in lines:
        log.write(line[:-1])
    log.close()
    generations = sorted(int(path.name) for path in directory.iterdir())
    assert generations == list(range(len(generations)))
    assert len(generations) <= count
    texts = [(directory / str(generation)).read_text() for generation in reversed(generations)]
    assert "".join(lines).endswith("".join(texts))
    for text in texts[:-1]:
        assert len(text) >= limit
        assert len(text) - len(text.splitlines(keepends=True)[-1]) < limit
    assert len(texts[-1]) < limit
    if len(generations) < count:
        assert "".join(texts) == "".join(lines)


def test_many_threads_write_whole_lines(named: Callable[[int], Path]) -> None:
    log = LogFiles(named, limit=100, count=100)

    def write(letter: str) -> None:
        for _ in range(50):
            log.write(letter * 20)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    log.close()
    lines = [line for text in contents(named) for line in text.splitlines()]
    assert sorted(lines) == sorted(letter * 20 for letter in "abcd" for _ in range(50))


def test_reopening_follows_a_file_that_was_moved(named: Callable[[int], Path]) -> None:
    log = LogFiles(named)
    log.write("a")
    named(0).rename(named(0).with_name("stomp0.log.moved"))
    log.reopen()
    log.write("b")
    log.close()
    assert contents(named) == ["b\n", "a\n"]


def test_after_closing_nothing_is_written(named: Callable[[int], Path]) -> None:
    log = LogFiles(named)
    log.close()
    log.close()
    log.write("a")
    assert contents(named) == [""]


def test_a_file_that_cannot_be_opened_is_told(named: Callable[[int], Path]) -> None:
    named(0).mkdir(parents=True)
    with pytest.raises(OSError, match=r"stomp0\.log"):
        LogFiles(named)


def test_a_failed_rotation_loses_no_line_and_is_told_once(
    named: Callable[[int], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    log = LogFiles(named, limit=4, count=2)
    named(1).mkdir()  # nothing can take its name
    (named(1) / "x").touch()
    for text in ("aaa", "bbb", "ccc"):
        log.write(text)
    log.close()
    assert named(0).read_text() == "aaa\nbbb\nccc\n"
    told = capfd.readouterr().err
    assert told.count("the log cannot be written") == 1
    assert str(named(0)) in told


def test_after_half_a_line_on_a_full_disk_the_next_begins_on_its_own(
    named: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 9
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(descriptor, data[:room])
        room -= written
        return written

    log = LogFiles(named)
    monkeypatch.setattr(os, "write", full)
    for line in ("first", "second", "third"):
        log.write(line)
    monkeypatch.undo()
    log.write("fourth")
    log.write("fifth")
    log.close()
    assert contents(named) == ["first\nsec\nfourth\nfifth\n"]


def test_after_half_a_line_of_an_earlier_process_the_next_begins_on_its_own(
    named: Callable[[int], Path],
) -> None:
    named(0).parent.mkdir(parents=True)
    named(0).write_text("first\nsec")
    log = LogFiles(named)
    log.write("third")
    log.close()
    assert contents(named) == ["first\nsec\nthird\n"]


@pytest.mark.parametrize(("limit", "count"), [(-1, 1), (0, 0)])
def test_limits_that_make_no_sense(named: Callable[[int], Path], limit: int, count: int) -> None:
    with pytest.raises(ValueError, match="expected at least"):
        LogFiles(named, limit, count)


def test_a_signal_handler_that_logs_while_a_line_is_written_does_not_wait_for_itself(
    named: Callable[[int], Path],
) -> None:
    def interrupted(generation: int) -> Path:
        # Asked for its path in the middle of a rotation, under the lock.
        if log is not None and not said:
            said.append("x")
            log.write("from the handler")
        return named(generation)

    log: LogFiles | None = None
    said: list[str] = []
    log = LogFiles(interrupted, limit=4, count=3)
    log.write("aaaa")
    log.close()
    assert said
    assert (
        sum(path.read_text().count("from the handler") for path in named(0).parent.iterdir()) == 1
    )
