"""What the log of a Delta Lake table says of a Parquet file's rows.

Owns the bounds by which readers pass files over: those of Parquet, as Delta Lake writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyarrow.parquet import FileMetaData
from pyspark.sql.types import DataType, StringType, TimestampType

from pipeline.columns import LATEST

#: Of a text that is longer only the beginning is among a file's statistics.
_LONGEST: Final = 64
#: Milliseconds since 1970 of the years 1 to 9999, the last one left out.
_TIMES: Final = (-62_135_596_800_000, LATEST)


def statistics(footer: FileMetaData, counted: Mapping[str, DataType]) -> dict[str, Any]:
    """A file's statistics, as the protocol of Delta has them.

    Where one column has no bounds that can be written, the file has none at all: a reader may take
    a bound that is missing for one that nothing meets.

    :param counted: the columns: whole numbers, texts and times.
    """
    known: dict[str, Any] = {"numRecords": footer.num_rows}
    places = {footer.schema.column(place).path: place for place in range(footer.num_columns)}
    lows, highs, nulls = {}, {}, {}
    for name, kind in counted.items():
        if name not in places:
            return known
        parts = [
            footer.row_group(group).column(places[name]).statistics
            for group in range(footer.num_row_groups)
        ]
        if any(part is None or not part.has_null_count for part in parts):
            return known
        nulls[name] = sum(part.null_count for part in parts)
        filled = [part for part in parts if part.num_values]
        if not filled or not all(part.has_min_max for part in filled):
            return known
        bounds = _bounds(
            min(part.min_raw for part in filled), max(part.max_raw for part in filled), kind
        )
        if bounds is None:
            return known
        lows[name], highs[name] = bounds
    return {**known, "minValues": lows, "maxValues": highs, "nullCount": nulls}


def _bounds(low: Any, high: Any, kind: DataType) -> tuple[object, object] | None:
    """Bounds as Delta writes them, of those of Parquet.

    :returns: None where it cannot write them.
    """
    if isinstance(kind, TimestampType):
        # Parquet has microseconds.
        low, high = low // 1000, -(-high // 1000)
        return (_time(low), _time(high)) if _TIMES[0] <= low and high <= _TIMES[1] else None
    if isinstance(kind, StringType):
        try:
            low, high = bytes(low).decode(), bytes(high).decode()
        except UnicodeDecodeError:
            return None
        if len(high) > _LONGEST:
            if high[_LONGEST - 1] == "\U0010ffff":
                return None
            high = high[: _LONGEST - 1] + "\U0010ffff"
        return low[:_LONGEST], high
    return low, high


def _time(milliseconds: int) -> str:
    """A bound of times: of whole milliseconds, as all readers understand them."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
