"""Finding segments, and saying what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.errors import PipelineError
from pipeline.tables.lines import line_stream, lines

_LINE = '{"v":1,"run":"r","line":%d,"time":1,"ids":["a"],"steps":["produced"]}\n'


def _stream(spark: SparkSession, folders: list[Path], checkpoint: Path) -> int:
    name = f"of_{checkpoint.name}"
    query = (
        line_stream(spark, [str(folder) for folder in folders], 1 << 20)
        .writeStream.format("memory")
        .queryName(name)
    )
    query.option("checkpointLocation", str(checkpoint)).trigger(
        availableNow=True
    ).start().awaitTermination()
    return spark.table(name).count()


def test_folders_with_any_name_are_read(spark: SparkSession, tmp_path: Path) -> None:
    plain, other, odd = (tmp_path / name for name in ("plain", "other one", "w{e}[i]r*d, ?folder"))
    for number, folder in enumerate((plain, other, odd), 1):
        folder.mkdir()
        (folder / "r-0000000001.jsonl").write_text(_LINE % number)
    assert lines(spark, [str(folder) for folder in (plain, other, odd)]).count() == 3
    assert _stream(spark, [plain, other], tmp_path / "two") == 2
    assert _stream(spark, [odd], tmp_path / "one") == 1
    with pytest.raises(PipelineError, match="cannot be read beside others"):
        _stream(spark, [plain, odd], tmp_path / "refused")


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
