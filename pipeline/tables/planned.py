"""Which segments are in a stream's batch, by the stream's own records.

Owns that a segment which was settled to be read, and is gone, is not passed over: Spark's file
source would leave it out without a word.

The records are those of Spark's file source: ``offsets/N`` ends with how far its log of files was
read, ``sources/0/K`` has the files of each step of it, and ``sources/0/K.compact`` those of all
steps so far.
"""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from pipeline.tables.lines import place


def missing_segments(spark: SparkSession, checkpoint: str, number: int) -> list[str]:
    """The segments of a batch that are not there any more, by their paths.

    :param checkpoint: of the stream.
    :param number: of the batch.
    """
    found = []
    for path in _planned(spark, checkpoint, number):
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        file = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path))
        files = file.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        if not files.exists(file):
            found.append(str(file.toUri().getPath()))
    return found


def _planned(spark: SparkSession, checkpoint: str, number: int) -> list[str]:
    last = _read_to(spark, checkpoint, number)
    first = _read_to(spark, checkpoint, number - 1) + 1 if number else 0
    paths = []
    for step in range(first, last + 1):
        entries = _text(spark, f"{checkpoint}/sources/0/{step}") or _text(
            spark, f"{checkpoint}/sources/0/{step}.compact"
        )
        parsed = (json.loads(entry) for entry in entries if entry.startswith("{"))
        paths += [entry["path"] for entry in parsed if entry["batchId"] == step]
    return paths


def _read_to(spark: SparkSession, checkpoint: str, number: int) -> int:
    """How far the log of files was read with a batch."""
    return int(json.loads(_text(spark, f"{checkpoint}/offsets/{number}")[-1])["logOffset"])


def _text(spark: SparkSession, path: str) -> list[str]:
    """The lines of a small file, in their order; none where it is not there."""
    files, file = place(spark, path)
    if not files.exists(file):
        return []
    (row,) = spark.read.text(path, wholetext=True).collect()
    return str(row.value).splitlines()
