"""Finding segments, and saying what is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.errors import PipelineError
from pipeline.tables.events import read_events
from pipeline.tables.lines import lines, lines_in, segments

_LINE = '{"v":1,"run":"r","line":%d,"time":1,"ids":["a"],"steps":["produced"]}\n'


def test_folders_with_any_name_are_read(spark: SparkSession, tmp_path: Path) -> None:
    plain, other, odd = (tmp_path / name for name in ("plain", "other one", "w{e}[i]r*d, ?folder"))
    for number, folder in enumerate((plain, other, odd), 1):
        folder.mkdir()
        segment = folder / "r-0000000001.jsonl"
        segment.write_text(_LINE % number)
        os.utime(segment, (number, number))
    assert lines(spark, [str(folder) for folder in (plain, other, odd)]).count() == 3
    found = segments(spark, [str(folder) for folder in (odd, plain, other)])
    assert [one.path.removeprefix("file:") for one in found] == [
        f"{folder}/r-0000000001.jsonl" for folder in (plain, other, odd)
    ]
    assert {one.octets for one in found} == {len(_LINE) - 1}
    assert lines_in(spark, found[1:]).count() == 2


@pytest.mark.parametrize("name", ["a%2Fb", "a\\b", "a\tb"])
def test_a_journal_may_be_where_no_table_can_be(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "r-0000000001.jsonl").write_text(_LINE % 1)
    assert read_events(spark, [str(folder)]).frame.count() == 1


def test_what_is_not_there_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"^the journal's folder .*/nowhere does not exist$"):
        lines(spark, [str(tmp_path / "nowhere")])
    with pytest.raises(
        PipelineError,
        match=r"^there is no segment of a journal \(\*\.jsonl\) in .*: is imq\.journal\.level off\?$",
    ):
        lines(spark, [str(tmp_path)])
    (tmp_path / "file").write_text("")
    with pytest.raises(PipelineError, match="is a file: expected the folder"):
        lines(spark, [str(tmp_path / "file")])
