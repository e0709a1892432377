"""MESSAGE frames as rows of :data:`pipeline.columns.MESSAGES`, in bulk.

Owns what each column means, column by column, since that is several times faster than row by row.
Knows neither sockets nor files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from gateway.messaging.envelope import CONTENT_TYPE
from gateway.messaging.message import DEFAULT_PRIORITY, BodyType, text_of_body
from gateway.stomp.brokers import Dialect, with_slashes
from gateway.stomp.wire import Frame
from pipeline.columns import LATEST
from pipeline.datasource.envelopes import opened
from pipeline.datasource.errors import BrokerError

#: :data:`pipeline.columns.MESSAGES` as Arrow has it, and as Spark expects it from a data source.
SCHEMA: Final = pa.schema(
    [
        ("body", pa.binary()),
        ("text", pa.string()),
        ("body_type", pa.string()),
        ("message_id", pa.string()),
        ("destination", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("expires", pa.timestamp("us", "UTC")),
        ("priority", pa.int32()),
        ("persistent", pa.bool_()),
        ("type", pa.string()),
        ("correlation_id", pa.string()),
        ("reply_to", pa.string()),
        ("redelivered", pa.bool_()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("envelope", pa.binary()),
    ]
)

#: The header by which links say what a body is, where the broker does not tell.
_BODY: Final = "JMS_STOMP_BODY"
_TEXT, _BYTES = BodyType.TEXT.name, BodyType.BYTES.name
_BODY_TYPES: Final = {kind.name.lower(): kind.name for kind in BodyType}
_find_nul: Final = re.compile(b"\0").search
_TRUE: Final = frozenset(("true", "1"))


def record_batch(
    frames: Sequence[Frame], dialect: Dialect, enveloped: bool = False
) -> pa.RecordBatch:
    """The rows of these MESSAGEs, in their order.

    ``destination`` and ``reply_to`` are ``queue:NAME`` and ``topic:NAME`` where they are plain
    ones; the octets of every header are in ``headers``. A header that is not what JMS says it is,
    as a ``timestamp`` that is no number, gives null, and is still in ``headers``.

    :param enveloped: they are what a subscription with ``envelope:true`` got. Then ``envelope`` is
        that of the message, and all else is of the message in it.
    :raises BrokerError: one of those is not in an envelope that can be read; or, without envelopes,
        the gateway shows something in place of a message.
    """
    if enveloped:
        found = opened(frames)
        heads = [each.head for each in found]
        bodies = [each.body for each in found]
        envelopes = pa.array([each.envelope for each in found], pa.binary())
        body = pa.array(bodies, pa.binary())
        types = _marked([each.body_type for each in found], heads)
    else:
        heads = [frame.head.headers for frame in frames]
        if dialect.envelopes:
            _check_whole(heads)
        bodies = [frame.body for frame in frames]
        envelopes = _envelopes(heads, bodies)
        body = pa.array(bodies, pa.binary())
        types = _body_types(heads, bodies, body, dialect)
    columns = [
        body,
        _texts(bodies, body, types),
        pa.array(types, pa.string()),
        _message_ids(heads, dialect),
        _places(heads, "destination", unquote if dialect.escapes_names else str),
        _times(heads, "timestamp"),
        _times(heads, "expires"),
        pa.array([_priority(head.get("priority")) for head in heads], pa.int32()),
        pa.array([head.get("persistent", "").lower() in _TRUE for head in heads], pa.bool_()),
        _strings(heads, "type"),
        _strings(heads, "correlation-id"),
        _places(heads, "reply-to", with_slashes if dialect.escapes_names else str),
        pa.array([head.get("redelivered", "") == "true" for head in heads], pa.bool_()),
        _headers(heads),
        envelopes,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _check_whole(heads: list[dict[str, str]]) -> None:
    """Refuse a browser's placeholder, which is not the message's body."""
    for head in heads:
        reason = head.get("transformation-error")
        if reason is not None:
            raise BrokerError(
                f"STOMP cannot carry message {head.get('message-id', '')}: {reason}; expected the option envelope"
            )


def _message_ids(heads: list[dict[str, str]], dialect: Dialect) -> pa.Array:
    if not dialect.id_after:
        return _strings(heads, "message-id")
    return pa.array(
        [
            None if (said := head.get("message-id")) is None else dialect.message_id(said)
            for head in heads
        ],
        pa.string(),
    )


def without_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same with no ``text``, which is ``body`` once more."""
    return batch.set_column(1, SCHEMA.field(1), pa.nulls(batch.num_rows, pa.string()))


def with_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same as before :func:`without_text`."""
    body, types = batch.column(0), batch.column(2).to_pylist()
    texts = _all_text(body, types)
    if texts is None:
        texts = _texts(body.to_pylist(), body, types)
    return batch.set_column(1, SCHEMA.field(1), texts)


def _body_types(
    heads: list[dict[str, str]], bodies: list[bytes], body: pa.Array, dialect: Dialect
) -> list[str]:
    if dialect.types_told:
        found = [_BYTES if "content-length" in head else _TEXT for head in heads]
    else:
        found = [_TEXT if _is_textual(head.get("content-type")) else _BYTES for head in heads]
        values = body.buffers()[2]
        if values is not None and _find_nul(values):
            found = [
                _BYTES if kind is _TEXT and b"\0" in octets else kind
                for kind, octets in zip(found, bodies, strict=True)
            ]
    found = _marked(found, heads)
    try:
        body.cast(pa.string())
    except pa.ArrowInvalid:
        found = [
            _BYTES if kind is _TEXT and text_of_body(octets) is None else kind
            for kind, octets in zip(found, bodies, strict=True)
        ]
    return found


def _marked(types: list[str], heads: list[dict[str, str]]) -> list[str]:
    """The types with what links say that a body is."""
    said = [head.get(_BODY) for head in heads]
    if not any(said):
        return types
    return [
        kind if mark is None else _BODY_TYPES.get(mark, kind)
        for kind, mark in zip(types, said, strict=True)
    ]


def _is_textual(content_type: str | None) -> bool:
    """Whether a body is text by its headers; without any it is text."""
    if content_type is None:
        return True
    kind = content_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.endswith(("json", "xml"))


def _texts(bodies: list[bytes], body: pa.Array, types: list[str]) -> pa.Array:
    texts = _all_text(body, types)
    if texts is None:
        found = [
            text_of_body(octets) if kind == _TEXT else None
            for kind, octets in zip(types, bodies, strict=True)
        ]
        texts = pa.array(found, pa.string())
    return texts


def _all_text(body: pa.Array, types: list[str]) -> pa.Array | None:
    """Return all bodies as texts, and None for a body that is not text.

    The type says so, or the body came from Java with half a surrogate.
    """
    if types.count(_TEXT) != len(types):
        return None
    try:
        return body.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _strings(heads: list[dict[str, str]], name: str) -> pa.Array:
    return pa.array([head.get(name) for head in heads], pa.string())


def _times(heads: list[dict[str, str]], name: str) -> pa.Array:
    """Return milliseconds since 1970 as times, and null for absent or 0."""
    texts = _strings(heads, name)
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        numbers = pa.array(
            [
                int(text) if text and text.isdecimal() and len(text) < 16 else None
                for text in texts.to_pylist()
            ],
            pa.int64(),
        )
    known = pc.and_(pc.greater(numbers, 0), pc.less_equal(numbers, LATEST))
    return pc.multiply(pc.if_else(known, numbers, pa.scalar(None, pa.int64())), 1000).cast(
        SCHEMA.field(name).type
    )


def _priority(text: str | None) -> int:
    return (
        int(text) if text is not None and len(text) == 1 and text.isdecimal() else DEFAULT_PRIORITY
    )


def plain(text: str) -> str:
    """Return ``queue:NAME`` or ``topic:NAME``, or another spelling as it is."""
    if text.startswith("/queue/"):
        return f"queue:{text[7:]}"
    return f"topic:{text[7:]}" if text.startswith("/topic/") else text


def _places(heads: list[dict[str, str]], header: str, unescaped: Callable[[str], str]) -> pa.Array:
    def place(text: str) -> str:
        made = plain(text)
        return made if made == text else unescaped(made)

    return pa.array(_each([head.get(header) for head in heads], place), pa.string())


def _each(texts: list[str | None], function: Callable[[str], str]) -> list[str | None]:
    """Apply the function, once for equal values: a batch has few destinations."""
    made: dict[str | None, str | None] = {None: None}
    for text in set(texts):
        if text is not None:
            made[text] = function(text)
    return [made[text] for text in texts]


def _headers(heads: list[dict[str, str]]) -> pa.Array:
    names: list[str] = []
    values: list[str] = []
    for head in heads:
        names += head
        values += head.values()
    offsets = pa.array([0, *accumulate([len(head) for head in heads])], pa.int32())
    return pa.MapArray.from_arrays(
        offsets, pa.array(names, pa.string()), pa.array(values, pa.string())
    )


def _envelopes(heads: list[dict[str, str]], bodies: list[bytes]) -> pa.Array:
    found: list[Any] = [
        octets if head.get("content-type") == CONTENT_TYPE else None
        for head, octets in zip(heads, bodies, strict=True)
    ]
    return pa.array(found, pa.binary())


# --- properties

_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,30}")
#: As selectors read numbers.
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONG: Final = range(-(2**63), 2**63)


def _whole(text: str | None) -> int | None:
    """A ``bigint``; None where the text is not a whole number."""
    if text is None or _WHOLE.fullmatch(text) is None:
        return None
    number = int(text)
    return number if number in _LONG else None


def _number(text: str | None) -> float | None:
    """A ``double``; None where the text is not a finite number."""
    if text is None or _NUMBER.fullmatch(text) is None:
        return None
    found = float(text)
    return found if math.isfinite(found) else None


def _flag(text: str | None) -> bool | None:
    """A ``boolean``: ``true`` or ``false`` in any case; else None."""
    return None if text is None else {"true": True, "false": False}.get(text.lower())


_PROPERTIES: Final[dict[str, tuple[pa.DataType, Callable[[str | None], Any] | None]]] = {
    "string": (pa.string(), None),
    "bigint": (pa.int64(), _whole),
    "double": (pa.float64(), _number),
    "boolean": (pa.bool_(), _flag),
}


def schema_with(properties: Mapping[str, str]) -> pa.Schema:
    """The columns of messages, and behind them declared properties."""
    return pa.schema(
        [*SCHEMA, *[(name, _PROPERTIES[kind][0]) for name, kind in properties.items()]]
    )


def with_properties(
    batches: Iterable[pa.RecordBatch], properties: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Rows of :data:`SCHEMA` with declared properties.

    A column that is not of texts has what reads as its type, else null.

    :param properties: types by name.
    """
    if not properties:
        yield from batches
        return
    wider = schema_with(properties)
    for batch in batches:
        headers = batch.column("headers")
        columns = list(batch.columns)
        for name, kind in properties.items():
            texts = pc.map_lookup(headers, pa.scalar(name), "first")
            type_, read = _PROPERTIES[kind]
            columns.append(
                texts
                if read is None
                else pa.array([read(text) for text in texts.to_pylist()], type_)
            )
        yield pa.RecordBatch.from_arrays(columns, schema=wider)
