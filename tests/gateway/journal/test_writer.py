"""The journal's thread: lines in order, bounded, and what it does when the disk takes no more."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.journal.lines import Lines
from gateway.journal.schema import OPEN, run_name, segment_name
from gateway.journal.segments import Bounds, Segments
from gateway.journal.writer import OVERHEAD, News, Writer
from tests.gateway.journal.reading import ids_of, lines_of
from tests.gateway.journal.test_segments import files_no_longer_than

RUN = run_name("store", 1_700_000_000_000_000)
PATIENCE = 30.0


class Told:
    """What an operator was told."""

    def __init__(self) -> None:
        self.news: list[tuple[News, dict[str, object]]] = []

    def __call__(self, news: News, said: dict[str, object]) -> None:
        assert news.value.format(**said)
        self.news.append((news, said))

    @property
    def what(self) -> list[News]:
        return [news for news, _ in self.news]


@contextmanager
def writing(
    folder: Path, told: Told, bounds: Bounds | None = None, **options: Any
) -> Iterator[Writer]:
    """A writer that runs; at the end all is written."""
    writer = Writer(
        Segments(folder, RUN, bounds or Bounds(1 << 20, 3600)), Lines(RUN, "test"), told, **options
    )
    writer.start()
    try:
        yield writer
    finally:
        ended = threading.Event()
        writer.end(ended.set)
        assert ended.wait(PATIENCE)


def written(writer: Writer) -> None:
    """Wait until all is with the kernel."""
    done = threading.Event()
    writer.after(done.set)
    assert done.wait(PATIENCE)


def fields(number: int, **more: object) -> dict[str, object]:
    return {
        "time": 5,
        "steps": ("produced",),
        "prefix": "ID-",
        "numbers": [number],
        "destination": "queue:a",
        **more,
    }


def test_lines_are_written_in_order_and_numbered(tmp_path: Path) -> None:
    told = Told()
    with writing(tmp_path, told) as writer:
        for number in range(5000):
            writer.add(fields(number), 0)
        written(writer)
        (path,) = tmp_path.iterdir()
        assert (path.name, path.read_bytes().count(b"\n")) == (segment_name(RUN, 1) + ".open", 5000)
    lines = lines_of(tmp_path)
    assert [line["line"] for line in lines] == list(range(1, 5001))
    assert [ids_of(line) for line in lines] == [[f"ID-{number}"] for number in range(5000)]
    assert {(line["run"], line["instance"], line["time"]) for line in lines} == {(RUN, "test", 5)}
    assert (writer.written_lines, writer.lost, writer.stopped) == (5000, 0, False)
    assert writer.written_octets == sum([path.stat().st_size for path in tmp_path.iterdir()])
    assert told.news == []


def test_values_are_folded_and_made_on_the_thread(tmp_path: Path) -> None:
    threads: list[str] = []

    def late() -> list[str]:
        threads.append(threading.current_thread().name)
        return ["ä\ud800\n"]

    with writing(tmp_path, Told()) as writer:
        writer.add(
            fields(1, sizes=[7, 7, 7], timestamps=[1, 2, 2], bodies=late, user="", comment=None), 0
        )
    (line,) = lines_of(tmp_path)
    assert (line["size"], line["timestamps"], line["bodies"]) == (7, [1, 2, 2], ["ä\ud800\n"])
    assert not {"sizes", "timestamp", "user", "comment", "numbers"} & line.keys()
    assert threads == ["journal"]


def test_a_line_that_cannot_be_made_is_told_and_its_number_left_out(tmp_path: Path) -> None:
    told = Told()
    with writing(tmp_path, told) as writer:
        writer.add(fields(1), 0)
        writer.add(fields(2, comment=object()), 0)
        writer.add(fields(3), 0)
    assert [line["line"] for line in lines_of(tmp_path)] == [1, 3]
    assert (told.what, writer.lost) == ([News.NOT_A_LINE], 1)


def test_what_waits_is_bounded_and_said_once(tmp_path: Path) -> None:
    told = Told()
    gate = threading.Event()

    def slow() -> str:
        assert gate.wait(PATIENCE)
        return "late"

    with writing(tmp_path, told, most=10 * OVERHEAD) as writer:
        writer.add(fields(0, comment=slow), 0)
        for number in range(1, 30):
            writer.add(fields(number), 0)
        assert (told.what, writer.lost) == ([News.CROWDED], 20)
        gate.set()
        written(writer)
        writer.add(fields(30), 0)
    assert [line["line"] for line in lines_of(tmp_path)] == [*range(1, 11), 31]
    assert [(news, said.get("lost")) for news, said in told.news] == [
        (News.CROWDED, None),
        (News.RELIEVED, 20),
    ]


def test_a_full_disk_stops_it_and_it_goes_on_by_itself(tmp_path: Path) -> None:
    told = Told()
    with writing(tmp_path, told, retry=0.0) as writer:
        writer.add(fields(0), 0)
        written(writer)
        with files_no_longer_than(sum([path.stat().st_size for path in tmp_path.iterdir()]) + 10):
            for number in range(1, 4):
                writer.add(fields(number, comment="x" * 500), 0)
                written(writer)
            assert writer.stopped
        assert told.what == [News.STOPPED], "once, though it was tried again"
        writer.add(fields(4), 0)
        written(writer)
        assert not writer.stopped
    assert [line["line"] for line in lines_of(tmp_path)] == [1, 5]
    assert (told.what, told.news[1][1]) == ([News.STOPPED, News.RESUMED], {"lost": 3})
    assert writer.lost == 3


def test_it_is_not_tried_again_at_once(tmp_path: Path) -> None:
    told = Told()
    with writing(tmp_path, told, retry=3600.0) as writer:
        with files_no_longer_than(10):
            writer.add(fields(0), 0)
            written(writer)
        writer.add(fields(1), 0)
        written(writer)
        assert writer.stopped
    assert lines_of(tmp_path) == []
    assert writer.lost == 2


def test_a_folder_that_is_gone_is_no_more_than_a_journal_that_has_stopped(tmp_path: Path) -> None:
    told = Told()
    folder = tmp_path / "journal"
    folder.mkdir()
    with writing(folder, told) as writer:
        written(writer)
        folder.rmdir()
        writer.add(fields(0), 0)
        written(writer)
    assert told.what == [News.STOPPED]
    assert str(folder) in str(told.news[0][1]["error"])


def test_what_an_earlier_run_left_open_is_completed_at_the_start(tmp_path: Path) -> None:
    told = Told()
    (tmp_path / (segment_name(RUN, 1) + ".open")).write_bytes(b'{"v":1}\n{"v":')
    with writing(tmp_path, told) as writer:
        written(writer)
        assert [path.name for path in tmp_path.iterdir()] == [segment_name(RUN, 1)]
    assert told.what == [News.COMPLETED]
    assert json.loads((tmp_path / segment_name(RUN, 1)).read_bytes()) == {"v": 1}


def test_an_idle_segment_is_rolled_by_its_age(tmp_path: Path) -> None:
    with writing(tmp_path, Told(), Bounds(1 << 20, 0.05)) as writer:
        writer.add(fields(0), 0)
        writer.rouse(False)
        rolled = threading.Event()
        for _ in range(1000):
            if (tmp_path / segment_name(RUN, 1)).exists():
                break
            rolled.wait(0.02)
        assert [path.name for path in tmp_path.iterdir()] == [segment_name(RUN, 1)]


def test_after_the_end_nobody_waits_for_ever(tmp_path: Path) -> None:
    with writing(tmp_path, Told()) as writer:
        writer.add(fields(0), 0)
    written(writer)
    writer.add(fields(1), 0)
    written(writer)
    assert writer.lost == 1
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(OPEN)]


@pytest.mark.parametrize("count", [1, 1000])
def test_a_run_of_one_producer_is_a_short_line(tmp_path: Path, count: int) -> None:
    with writing(tmp_path, Told()) as writer:
        writer.add(
            fields(
                0,
                numbers=list(range(500, 500 + count)),
                sizes=[100] * count,
                timestamps=[9] * count,
            ),
            0,
        )
    (line,) = lines_of(tmp_path)
    assert (line["runs"], line["size"], line["timestamp"]) == ([[500, count, 1]], 100, 9)
    assert sum([path.stat().st_size for path in tmp_path.iterdir()]) < 300
