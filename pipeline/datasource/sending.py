"""Rows as SEND frames.

Owns which columns may be written, what each becomes, and the duplicate ids. Knows neither sockets
nor transactions.

The id of a row that has none of its own is made of its contents, and not of its place:
``spark-HH/RUN.PARTITION.HASH.N``, where HASH is that of the frame and N counts equal rows of the
partition. So a task that runs again gives every row the id that it had, in whatever order the rows
come. RUN is the query and its micro-batch, or the one call of ``save()``. HH, two digits of HASH,
has the broker count ids in 64 runs of their own (see "Sending once" in ``docs/stomp.rst``), so that
it remembers 64 times as many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from gateway.messaging.destination import Kind
from gateway.messaging.envelope import CONTENT_TYPE
from gateway.messaging.message import text_of_body
from gateway.stomp.brokers import Dialect
from gateway.stomp.wire import Version, serialize
from pipeline.datasource import kafka
from pipeline.datasource.declared import RESERVED
from pipeline.datasource.errors import OptionError
from pipeline.datasource.options import Options
from pipeline.datasource.places import Place, kind_headers, spelled
from pipeline.errors import PipelineError

_NUMBERS: Final = (ByteType, ShortType, IntegerType, LongType)
_TIMES: Final = (TimestampType, TimestampNTZType)
#: The columns that can be written, with the types that each may have.
_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "body": (BinaryType, StringType),
    "text": (StringType,),
    "body_type": (StringType,),
    "envelope": (BinaryType,),
    "destination": (StringType,),
    "priority": _NUMBERS,
    "persistent": (BooleanType,),
    "type": (StringType,),
    "correlation_id": (StringType,),
    "reply_to": (StringType,),
    "expires": _TIMES,
    "headers": (MapType,),
    # The broker's to say: taken, so that what was read can be written, and not sent.
    "message_id": (StringType,),
    "timestamp": _TIMES,
    "redelivered": (BooleanType,),
}
_CONTENTS: Final = ("body", "text", "envelope")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def check_columns(schema: StructType, options: Options) -> None:
    """Whether rows of this schema can be sent.

    :raises PipelineError: for the first column that is unknown or has a type that it may not have,
        or a column that is missing.
    """
    for field in schema.fields:
        if field.name == options.id_column and field.name not in _COLUMNS:
            if not isinstance(field.dataType, (StringType, *_NUMBERS)):
                raise OptionError(
                    "idColumn",
                    f"the column {field.name} is {field.dataType.simpleString()}, expected string or a whole number",
                )
            continue
        types = _COLUMNS.get(field.name)
        if types is None:
            expected = kafka.column_hint(field.name) or f"expected some of {', '.join(_COLUMNS)}"
            raise PipelineError(f"column {field.name}: no message has such a thing; {expected}")
        good = isinstance(field.dataType, types)
        if isinstance(field.dataType, MapType):
            good = isinstance(field.dataType.keyType, StringType) and isinstance(
                field.dataType.valueType, StringType
            )
        if not good:
            expected = (
                "map<string,string>"
                if types == (MapType,)
                else " or ".join([kind.typeName() for kind in types])
            )
            raise PipelineError(
                f"column {field.name}: is {field.dataType.simpleString()}, expected {expected}"
            )
    names = set(schema.names)
    if not names & set(_CONTENTS):
        raise PipelineError(
            f"columns: there is no body to send; expected one of {', '.join(_CONTENTS)}"
        )
    if options.destination is None and "destination" not in names:
        raise OptionError("destination", "is missing, and there is no column destination")
    if options.id_column is not None and options.id_column not in names:
        raise OptionError(
            "idColumn",
            f"there is no column {options.id_column}; there are {', '.join(schema.names)}",
        )


class Sending:
    """The frames of one task.

    :param run: names the query and its micro-batch, the same at each attempt.
    :param partition: which of its partitions.
    """

    def __init__(
        self, options: Options, dialect: Dialect, version: Version, run: str, partition: int
    ) -> None:
        self._options: Final = options
        self._dialect: Final = dialect
        self._version: Final = version
        self._scope: Final = f"{run}.{partition}"
        self._equal: Counter[bytes] = Counter()
        self._places: dict[str, list[tuple[str, str]]] = {}

    def frames(self, batch: pa.RecordBatch, extra: Sequence[tuple[str, str]]) -> list[bytes]:
        """A SEND for each row.

        :param extra: headers that all of them have, as ``transaction``; they do not count for the
            ids.
        :raises PipelineError: a row has nothing to send, or nowhere to go; the text names its
            column.
        """
        return [self._frame(row, extra) for row in batch.to_pylist()]

    def _frame(self, row: dict[str, Any], extra: Sequence[tuple[str, str]]) -> bytes:
        headers = [*self._destination(row.get("destination"))]
        if (priority := row.get("priority")) is not None:
            if not 0 <= priority <= 9:
                raise PipelineError(f"column priority: is {priority}, expected 0 to 9")
            headers.append(("priority", str(priority)))
        persistent = row.get("persistent") is not False
        if persistent or not self._dialect.persistence_declares:
            headers.append(("persistent", "true" if persistent else "false"))
        for column, name in (("type", "type"), ("correlation_id", "correlation-id")):
            if (value := row.get(column)) is not None:
                headers.append((name, value))
        if (reply_to := row.get("reply_to")) is not None:
            headers.append(("reply-to", self._spelled("reply_to", reply_to)))
        if (expires := row.get("expires")) is not None:
            moment = expires if expires.tzinfo else expires.replace(tzinfo=UTC)
            headers.append(("expires", str((moment - _EPOCH) // timedelta(milliseconds=1))))
        body, more = self._body(row)
        headers += more
        given = {name for name, _ in headers}
        for name, value in row.get("headers") or ():
            if name and value is not None and name not in RESERVED and name not in given:
                headers.append((name, value))
        return serialize(
            "SEND", [*headers, *extra, *self._id(row, headers, body)], body, self._version
        )

    def _id(
        self, row: dict[str, Any], headers: list[tuple[str, str]], body: bytes
    ) -> list[tuple[str, str]]:
        name = self._dialect.duplicate_id
        if not name:
            return []
        if self._options.id_column is not None:
            value = row[self._options.id_column]
            if value is None or value == "":
                raise PipelineError(
                    f"column {self._options.id_column}: is {'null' if value is None else 'empty'}, and it is the idColumn"
                )
            return [(name, str(value))]
        # A map may have its entries in another order when Spark makes it again.
        digest = blake2b(repr(sorted(headers)).encode("utf-8", "surrogatepass"), digest_size=16)
        digest.update(body)
        octets = digest.digest()
        equal = self._equal[octets]
        self._equal[octets] = equal + 1
        return [(name, f"spark-{octets[0] & 63:02x}/{self._scope}.{octets.hex()}.{equal}")]

    def _body(self, row: dict[str, Any]) -> tuple[bytes, list[tuple[str, str]]]:
        """The bytes, and the headers that say what they are."""
        if (envelope := row.get("envelope")) is not None:
            return envelope, [
                ("content-type", CONTENT_TYPE),
                ("content-length", str(len(envelope))),
            ]
        body, text = row.get("body"), row.get("text")
        if text is None and (
            isinstance(body, str) or (body is not None and row.get("body_type") == "TEXT")
        ):
            text = body if isinstance(body, str) else text_of_body(body)
        kind = self._dialect.text_type
        if text is not None:
            octets = text.encode("utf-8", "replace")
            if kind is not None:
                return octets, [(kind[0], kind[1]), ("content-length", str(len(octets)))]
            return octets, []
        if body is None:
            raise PipelineError(
                "column body: is null, and so are text and envelope, as far as they are there: there is nothing to send"
            )
        return body, [
            *([(kind[0], kind[2])] if kind is not None else []),
            ("content-length", str(len(body))),
        ]

    def _destination(self, text: str | None) -> list[tuple[str, str]]:
        key = text or ""
        found = self._places.get(key)
        if found is None:
            place = self._place("destination", text) if text else self._options.destination
            if place is None:
                raise PipelineError(
                    "column destination: is null, and there is no option destination"
                )
            found = [
                ("destination", spelled(self._dialect, place)),
                *kind_headers(self._dialect, place, "destination-type"),
            ]
            self._places[key] = found
        return found

    def _spelled(self, column: str, text: str) -> str:
        # What a broker gave as reply-to, as a temporary destination, goes back as it came.
        return text if text.startswith("/") else spelled(self._dialect, self._place(column, text))

    def _place(self, column: str, text: str) -> Place:
        try:
            place = Place.parse(text)
        except ValueError as error:
            raise PipelineError(f"column {column}: is {text[:100]!r}: {error}") from None
        if place.wild and place.kind is Kind.TOPIC:
            raise PipelineError(
                f"column {column}: {place} has wildcards, and messages are sent to one destination"
            )
        return place
