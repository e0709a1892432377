"""The journal's lines as a table: of a folder's segments.

Owns how segments are found and read, and what is said where there are no segments. What a line means is
:mod:`pipeline.transforms.events`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from gateway.journal.schema import END_SEGMENT, SEGMENT, segment_name, segment_of
from pipeline.columns import LINES
from pipeline.errors import PipelineError
from pipeline.tables.storage import Location, literally
from pipeline.transforms.events import DAMAGED

#: Only these are whole; what is being written has another ending.
PATTERN: Final = "*" + SEGMENT


_END: Final = segment_name("", END_SEGMENT)


@dataclass(frozen=True)
class Segment:
    """A whole segment.

    :param path: as Spark has it.
    :param octets: its size.
    """

    path: str
    octets: int


def lines(spark: SparkSession, folders: Sequence[str]) -> DataFrame:
    """Return the lines of all whole segments in the folders.

    Columns :data:`pipeline.columns.LINES` and :data:`pipeline.transforms.events.DAMAGED`.

    :raises PipelineError: when a folder is not there, or none of them has a segment.
    """
    check_folders(spark, folders)
    check_segments(spark, folders)
    return _parsed(
        spark.read.option("pathGlobFilter", PATTERN).text(
            [literally(Location(spark, folder).uri) for folder in folders]
        )
    )


def segments(spark: SparkSession, folders: Sequence[str]) -> list[Segment]:
    """Return all whole segments in the folders, the oldest first.

    :raises PipelineError: when a folder is not there.
    """
    check_folders(spark, folders)
    places = [Location(spark, folder) for folder in folders]
    found = [
        (one.changed, f"{place.uri}/{one.name}", one.octets)
        for place in {one.uri: one for one in places}.values()
        for one in place.files(PATTERN)
    ]
    return [Segment(path, octets) for _, path, octets in sorted(found)]


def lines_in(spark: SparkSession, found: Sequence[Segment]) -> DataFrame:
    """Return the lines of these segments, with the columns of :func:`lines`.

    The frame fails, now or when it is computed, if one of them is gone.
    """
    return _parsed(spark.read.text([literally(one.path) for one in found]))


def unended(paths: Iterable[str]) -> frozenset[str]:
    """Return the runs that did not end in order, by the paths of all segments.

    What they were told of last may be missing.
    """
    named = [segment_of(path.rpartition("/")[2]) for path in paths if path.endswith(_END)]
    return frozenset(found[0] for found in named if found is not None)


def ends_in(spark: SparkSession, found: Sequence[Segment]) -> DataFrame | None:
    """Return the end lines of runs in these segments.

    They are as :func:`lines_in` has them. They tell of no message, and are in no event.
    """
    ends = [one for one in found if one.path.endswith(_END)]
    return lines_in(spark, ends) if ends else None


def _parsed(texts: DataFrame) -> DataFrame:
    """Return a row for each non-blank line of text, whatever is in it.

    Spark's reader of JSON has none for an empty array, and takes an array for its elements.
    """
    line = sql.from_json("value", schema(), {"columnNameOfCorruptRecord": DAMAGED})
    # Of an array of one, and not by the fields of a structure: so that Spark parses it once, and
    # not once for each field.
    return texts.where(sql.trim("value") != "").select(sql.inline(sql.array(line)))


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
        place = Location(spark, folder)
        if not place.exists():
            raise PipelineError(f"the journal's folder {folder} does not exist")
        if not place.is_folder():
            raise PipelineError(
                f"{folder} is a file: expected the folder with the journal's segments ({PATTERN})"
            )


def check_segments(spark: SparkSession, folders: Sequence[str]) -> None:
    """One of the folders, which are there, must have a whole segment.

    :raises PipelineError: none of them has one.
    """
    if not any(Location(spark, folder).files(PATTERN) for folder in folders):
        raise PipelineError(
            f"there is no segment of a journal ({PATTERN}) in {', '.join(folders)}: is imq.journal.level off?"
        )
