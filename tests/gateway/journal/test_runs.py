"""What runs have lost that did not end in order is seen later."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.journal.chain import Chain, verify
from gateway.journal.holes import RunLines, holes
from gateway.journal.lines import Lines
from gateway.journal.runs import RUNS, EndTold, Runs, Unended, end_left, unended
from gateway.journal.schema import RUN_ENDED, run_name, segment_name, segment_of
from gateway.journal.segments import Bounds, Segments
from gateway.journal.writer import News, Writer
from tests.gateway.journal.reading import lines_of
from tests.gateway.journal.test_segments import files_no_longer_than
from tests.gateway.journal.test_writer import PATIENCE, Told, fields, written

RUN = run_name("store", 1_700_000_000_000_000)
NEXT = run_name("store", 1_800_000_000_000_000)


def segment(folder: Path, number: int, lines: range | list[int], run: str = RUN) -> None:
    made = Lines(run, "test")
    (folder / segment_name(run, number)).write_bytes(
        b"".join(made.line(line, fields(line)) for line in lines)
    )


def ended(folder: Path) -> list[tuple[int, str, str]]:
    return [
        (line["line"], line["reason"], line["comment"])
        for line in lines_of(folder)
        if line["steps"] == [RUN_ENDED]
    ]


class Run:
    """A run with a journal of its own, in this process."""

    def __init__(self, folder: Path, run: str, told: Told, instance: str = "test") -> None:
        self.writer = Writer(
            Segments(folder, run, Bounds(1 << 20, 3600), chain=Chain(folder)),
            Lines(run, instance),
            told,
            retry=0.0,
            runs=Runs(folder, run, instance),
        )
        self.writer.start()
        written(self.writer)

    def add(self, count: int) -> None:
        for number in range(count):
            self.writer.add(fields(number, comment="x" * 100), 0)
        written(self.writer)

    def end(self) -> None:
        over = threading.Event()
        self.writer.end(over.set)
        assert over.wait(PATIENCE)


def test_a_run_that_ends_in_order_leaves_nothing(tmp_path: Path) -> None:
    told = Told()
    run = Run(tmp_path, RUN, told)
    assert [each.run for each in unended(tmp_path)] == [RUN]
    run.add(5)
    run.end()
    assert (unended(tmp_path), holes(tmp_path), told.news) == ([], [], [])
    Run(tmp_path, NEXT, told).end()
    assert (ended(tmp_path), told.news) == ([], [])


def test_lines_lost_at_an_orderly_end_are_missing_before_the_end_line(tmp_path: Path) -> None:
    told = Told()
    run = Run(tmp_path, RUN, told)
    run.add(2)
    room = max(path.stat().st_size for path in tmp_path.iterdir() if path.name != RUNS)
    with files_no_longer_than(room):
        run.add(3)
        run.end()
    assert told.what == [News.STOPPED]
    assert ended(tmp_path) == [
        (6, "stopped", "the run has stopped in order, and 3 lines before this one are lost")
    ]
    assert holes(tmp_path) == [RunLines(RUN, 2, 3)]
    assert unended(tmp_path) == []


def test_a_full_disk_keeps_the_end_line_for_the_next_start(tmp_path: Path) -> None:
    told = Told()
    # So an end line needs more room than a slot, which is in the first 512 octets.
    run = Run(tmp_path, RUN, told, "i" * 330)
    run.add(2)
    with files_no_longer_than(512):
        run.add(3)
        run.end()
        with pytest.raises(OSError, match="No space left"):
            list(end_left(tmp_path))
        assert ended(tmp_path) == []
        assert holes(tmp_path) == [RunLines(RUN, 2, 3)], "it is known without the line"
    told.news.clear()
    Run(tmp_path, NEXT, told).end()
    what = "the run has stopped in order, and 3 lines before this one are lost"
    assert ended(tmp_path) == [(6, "stopped", what)]
    assert told.news == [(News.ENDED, {"run": RUN, "comment": what})]
    assert unended(tmp_path) == []
    assert verify(tmp_path).problems == ()


@pytest.mark.parametrize(
    ("taken", "lost", "number", "comment"),
    [
        (9, 4, 10, "the run was killed: 4 lines before this one are lost, and more may be"),
        (6, 1, 7, "the run was killed: 1 line before this one is lost, and more may be"),
        (0, 0, 6, "the run was killed: lines of its last moment may be lost"),
    ],
)
def test_a_run_that_was_killed_has_an_end_line(
    tmp_path: Path, taken: int, lost: int, number: int, comment: str
) -> None:
    Runs(tmp_path, RUN, "test").note(taken, taken - lost, lost)
    segment(tmp_path, 1, range(1, 6))
    assert holes(tmp_path) == [RunLines(RUN, 5, lost, open=True)]
    chain = Chain(tmp_path)
    chain.complete()
    assert list(end_left(tmp_path, chain)) == [EndTold(RUN, comment)]
    assert ended(tmp_path) == [(number, "killed", comment)]
    assert holes(tmp_path) == [RunLines(RUN, 5, max(0, taken - 5), killed=True)]
    assert verify(tmp_path).problems == ()
    assert list(end_left(tmp_path)) == [], "once"


def test_a_run_of_which_all_is_lost_is_told_from_one_whose_segments_are_too_old(
    tmp_path: Path,
) -> None:
    Runs(tmp_path, RUN, "test").note(300, 0, 300)
    Runs(tmp_path, NEXT, "test").note(300, 290, 0)
    assert len(list(end_left(tmp_path))) == 2
    assert [comment for _, _, comment in ended(tmp_path)] == [
        "the run was killed: 300 lines before this one are lost, and more may be",
        "the run was killed: lines of its last moment may be lost",
    ]
    assert holes(tmp_path) == [
        RunLines(RUN, 0, 300, killed=True),
        RunLines(NEXT, 0, 0, killed=True),
    ]


def test_it_has_one_end_line_though_its_slot_was_not_freed(tmp_path: Path) -> None:
    Runs(tmp_path, RUN, "test").note(3, 0, 3)
    before = (tmp_path / RUNS).read_bytes()
    assert len(list(end_left(tmp_path))) == 1
    (tmp_path / RUNS).write_bytes(before)
    assert list(end_left(tmp_path)) == []
    assert (len(ended(tmp_path)), unended(tmp_path)) == (1, [])


def test_one_that_has_told_nothing_has_no_end_line(tmp_path: Path) -> None:
    Runs(tmp_path, RUN, "test").note(0, 0, 0)
    assert list(end_left(tmp_path)) == []
    assert (unended(tmp_path), lines_of(tmp_path)) == ([], [])


def test_a_note_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    Runs(tmp_path, RUN, "test").note(1, 1, 0)
    path = tmp_path / RUNS
    path.write_bytes(path.read_bytes().replace(b'"run"', b'"???"'))
    assert unended(tmp_path) == [Unended("")]
    told = Told()
    Run(tmp_path, NEXT, told).end()
    assert told.what == [News.UNREADABLE]
    assert unended(tmp_path) == []


def test_there_is_a_slot_for_each_of_many_runs(tmp_path: Path) -> None:
    runs = [run_name("store", number) for number in range(80)]
    for run in runs:
        Runs(tmp_path, run, "test").note(1, 0, 1)
    assert [each.run for each in unended(tmp_path)] == runs


def test_a_disk_that_is_full_at_the_first_start_is_told(tmp_path: Path) -> None:
    told = Told()
    with files_no_longer_than(100):
        run = Run(tmp_path, RUN, told)
        run.add(2)
        assert News.NOT_NOTED in told.what
    run.add(1)
    assert [each.lost for each in unended(tmp_path)] == [2], "as soon as there is room"
    run.end()


@given(st.text(max_size=600), st.integers(0, 1 << 62), st.booleans())
def test_a_note_is_read_as_it_was_written(instance: str, number: int, flag: bool) -> None:
    note = Unended(RUN, instance, number, number, number, flag, not flag)
    slot = note.slot()
    assert (len(slot), slot.count(b"\n")) == (512, 1)
    found = json.loads(slot)
    assert found.pop("instance") in (instance, "")
    assert found == {
        "run": RUN,
        "taken": number,
        "written": number,
        "lost": number,
        "stopped": flag,
        "closed": not flag,
    }


def test_gaps_are_counted_within_segments_and_between_them(tmp_path: Path) -> None:
    segment(tmp_path, 1, [2, 3, 6])
    segment(tmp_path, 2, [10, 11])
    assert holes(tmp_path) == [RunLines(RUN, 11, 6)]
    # What is older than the oldest segment that is there was removed when it was too old.
    (tmp_path / segment_name(RUN, 1)).unlink()
    assert holes(tmp_path) == []


def test_the_first_segment_has_the_first_number_also_after_a_full_disk(tmp_path: Path) -> None:
    told = Told()
    run = Run(tmp_path, RUN, told)
    with files_no_longer_than(10):
        run.add(3)
    run.add(2)
    run.end()
    names = [segment_of(path.name) for path in tmp_path.iterdir()]
    assert [found for found in names if found is not None] == [(RUN, 1)]
    assert holes(tmp_path) == [RunLines(RUN, 5, 3)]
