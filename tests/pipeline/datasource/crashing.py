"""The data source with processes that end where a test wants them to.

A test writes the name of a point into the file :func:`death` of a staging folder; the first task
that comes there removes the file and ends by SIGKILL. Run as a program, this module is a streaming
query for a test to kill: ``python -m tests.pipeline.datasource.crashing JSON``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSourceStreamReader,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pipeline.datasource.options import Use, parse
from pipeline.datasource.source import StompDataSource, register
from pipeline.datasource.stream_reader import StompStreamReader
from pipeline.datasource.writer import StompStreamWriter

#: Where a task of a read can end, in order.
POINTS: Final = ("received", "staged", "acknowledged", "yielded")
NAME: Final = "crashing-stomp"


def death(staging: str | Path) -> Path:
    """The file that says where to end."""
    return Path(f"{staging}.death")


def end_at(path: Path, point: str) -> None:
    """End this process by SIGKILL if the file names that point, and remove the file."""
    try:
        named = path.read_text()
    except FileNotFoundError:
        return
    if named == point:
        path.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


class CrashingReader(StompStreamReader):
    def reached(self, point: str) -> None:
        assert self._options.staging_path is not None
        end_at(death(self._options.staging_path), point)


class CrashingWriter(StompStreamWriter):
    """Ends when it has been given its last rows, most of which are confirmed by then. The
    passcode's file says where the file of its death is.
    """

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        def rows() -> Iterator[pa.RecordBatch]:
            yield from iterator
            end_at(death(str(self._options.passcode_file)), "sent")

        return super().write(rows())


class CrashingSource(StompDataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CrashingReader(parse(self.options, Use.STREAM))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return CrashingWriter(parse(self.options, Use.WRITE), schema, overwrite)


def main(given: str) -> None:
    """Move a queue into Parquet until this is killed, or until all that there is now has been
    moved.
    """
    from pipeline.session import spark_session
    from tests.pipeline.conftest import SHORT, options

    what = json.loads(given)
    folder = Path(what["folder"])
    own = folder / f"spark-{os.getpid()}"
    own.mkdir()
    with spark_session("killed", options(own, **SHORT)) as spark:
        register(spark)
        query = into_parquet(spark, "stomp", what["options"], folder, what["end"])
        print("running", flush=True)
        query.awaitTermination()


def into_parquet(  # type: ignore[no-untyped-def]
    spark: SparkSession, name: str, options: dict[str, str], folder: Path, end: bool = True
):
    """Start a query of the folder's staging path, checkpoint and sink."""
    rows = (
        spark.readStream.format(name).options(stagingPath=str(folder / "staging"), **options).load()
    )
    writer = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "sink"))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if end else writer).start()


if __name__ == "__main__":
    main(sys.argv[1])
