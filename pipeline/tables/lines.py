"""The journal's lines as a table: of a folder's segments, or as a stream.

Owns how segments are found and read, and what is said where there are no segments. What a line means is
:mod:`pipeline.transforms.events`'s.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from gateway.journal.schema import SEGMENT
from pipeline.columns import LINES
from pipeline.errors import PipelineError
from pipeline.transforms.events import DAMAGED

#: Only these are whole; what is being written has another ending.
PATTERN: Final = "*" + SEGMENT
_GLOB: Final = re.compile(r"([\\{}\[\]*?,])")
#: Longer than any journal is kept. Spark's own would leave out, without a word, a segment whose
#: file is a week older than the newest.
_AGE: Final = "36500d"


def lines(spark: SparkSession, folders: Sequence[str]) -> DataFrame:
    """Return the lines of all whole segments in the folders.

    Columns :data:`pipeline.columns.LINES` and :data:`pipeline.transforms.events.DAMAGED`.

    :raises PipelineError: when a folder is not there, or none of them has a segment.
    """
    check_folders(spark, folders)
    if not any(has_segments(spark, folder) for folder in folders):
        raise PipelineError(no_segments(folders))
    return _parsed(
        spark.read.option("pathGlobFilter", PATTERN).text(
            [_literally(folder) for folder in folders]
        )
    )


def line_stream(
    spark: SparkSession, folders: Sequence[str], octets: int, skip_missing: bool = False
) -> DataFrame:
    """The same as a stream: each segment once, as it appears.

    :param octets: about how much of segments is in a micro-batch.
    :param skip_missing: go on without segments that are gone when they are to be read.
    :raises PipelineError: when a folder is not there.
    """
    check_folders(spark, folders)
    reader = spark.readStream.option("pathGlobFilter", PATTERN).option(
        "maxBytesPerTrigger", str(octets)
    )
    reader = reader.option("maxFileAge", _AGE).option("ignoreMissingFiles", skip_missing)
    return _parsed(reader.text(_together(spark, folders)))


def _parsed(texts: DataFrame) -> DataFrame:
    """Return a row for each non-blank line of text, whatever is in it.

    Spark's reader of JSON has none for an empty array, and takes an array for its elements.
    """
    line = sql.from_json("value", schema(), {"columnNameOfCorruptRecord": DAMAGED})
    # Of an array of one, and not by the fields of a structure: so that Spark parses it once, and
    # not once for each field.
    return texts.where(sql.trim("value") != "").select(sql.inline(sql.array(line)))


def _together(spark: SparkSession, folders: Sequence[str]) -> str:
    """Return one pattern for all folders instead of one stream for each.

    So a folder can be added or removed between two runs.
    """
    if len(folders) == 1:
        return _literally(folders[0])
    roots, names = set(), []
    for folder in folders:
        files, path = place(spark, folder)
        whole = files.makeQualified(path).toUri()
        roots.add(f"{whole.getScheme()}://{whole.getAuthority() or ''}/")
        # Hadoop takes such a name literally in a pattern of its own only.
        if _GLOB.search(folder):
            raise PipelineError(
                f"the folder {folder} cannot be read beside others: its name has one of \\ {{ }} [ ] * ? and comma"
            )
        names.append(str(whole.getPath()).lstrip("/"))
    if len(roots) > 1:
        raise PipelineError(
            f"the journal's folders are on several file systems ({', '.join(sorted(roots))}): expected one"
        )
    return roots.pop() + "{" + ",".join(names) + "}"


def schema() -> StructType:
    """The columns of a line as it is read."""
    found = StructType.fromDDL(f"{LINES}, {DAMAGED} string")
    assert isinstance(found, StructType)
    return found


def check_folders(spark: SparkSession, folders: Sequence[str]) -> None:
    """Each folder of a journal must be there.

    :raises PipelineError: naming the first that is not.
    """
    for folder in folders:
        files, path = place(spark, folder)
        if not files.exists(path):
            raise PipelineError(f"the journal's folder {folder} does not exist")
        if not files.getFileStatus(path).isDirectory():
            raise PipelineError(
                f"{folder} is a file: expected the folder with the journal's segments ({PATTERN})"
            )


def has_segments(spark: SparkSession, folder: str) -> bool:
    """Whether there is a whole segment in a folder."""
    files, path = place(spark, folder)
    found = files.listStatusIterator(path)
    while found.hasNext():
        if str(found.next().getPath().getName()).endswith(SEGMENT):
            return True
    return False


def no_segments(folders: Sequence[str]) -> str:
    """What is said where there is nothing to read."""
    return f"there is no segment of a journal ({PATTERN}) in {', '.join(folders)}: is imq.journal.level off?"


def _literally(folder: str) -> str:
    """A folder's name as a pattern that means nothing else."""
    return _GLOB.sub(r"\\\1", folder)


def place(spark: SparkSession, folder: str) -> tuple[Any, Any]:
    """The Hadoop file system of a path, and the path."""
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(folder)  # type: ignore[union-attr]
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()), path
