"""A session's questions to Java and Java's answers, in runs of bytes.

Owns the layout of both directions, which ``JmsWork.java`` and ``XaWork.java`` share.
:mod:`bridge.providers.jms.wire` carries the bytes.

All numbers are big-endian. A *text* is u32 the number of bytes that follow, and UTF-8. A *message*
is u32 length of its head, u32 length of its body, head and body. Their form is that of
:mod:`gateway.messaging.envelope`: every type of body and property is exact, an object keeps the
bytes it was serialised to, and messages of one producer share their decoded headers.

Questions, each begun by one byte:

==== ======== ====================================================================================================================
Code Question Then
==== ======== ====================================================================================================================
1    send     u32 number of messages, u32 bytes that follow, the messages
2    open     u32 consumer, u8 1 for a topic, u8 1 if temporary, u8 flags (1 no-local, 2 browse), texts: name, selector, durable
              subscription; "" for none
3    credit   u32 consumer, i64 messages more, i64 bytes more, 0 when bytes do not count
4    switch   u32 consumer, u8 1 to start and 0 to stop
5    settle   u32 consumer, u32 number of keys, i64 each
6    sync     u32 tag: answered by *done* when all before it is durable
7    commit   u32 tag
8    rollback u32 tag
9    recover  nothing
10   shut     u32 consumer, u8 1 to give outstanding deliveries back at once
11   close    nothing
12   xa       u32 tag, u8 call, i32 flags; the *xid*, except for a recover and for the question whether a session has the same
              resource manager. The flags are 1 or 0 for a commit in one phase or two, the other session's number for that question
==== ======== ====================================================================================================================

Answers:

==== ======== ====================================================================================================================
1    sent     u32 number; for each u16 length of its JMSMessageID, the id, i64 JMSTimestamp
2    dropped  u32 number of messages that were not sent; the next *done* says why
3    done     u32 tag, i32 kind of failure or -1, i32 the message it was at, counted from 0 since the last *done*, or -1, text
4    message  u32 consumer, i64 its key, u32 attempts, the message; keys rise by 1 from 1 for each consumer
5    ended    u32 consumer, i32 kind of failure, text
6    void     nothing: deliveries before this are void
7    note     text for the log
8    shown    u32 consumer: its browser has shown everything
9    xa done  u32 tag, u8 0 when all is well, 1 for an XAException and 2 for another failure; i32 the vote of a prepare, 1 for the same
              resource manager, the error code or the kind of failure; text; u32 number of xids, and the xids
10   unread   as 4, of a message that cannot be read: its head as far as that is known, in place of its body the bytes of it that the
              client shows, or none; then a text, the error of reading it
11   refused  as 5, of a consumer that could not be opened
==== ======== ====================================================================================================================
An *xid* is i32 format id, u8 length of the global id and the global id, u8 length of the branch
qualifier and the qualifier.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from bridge.providers.jms.failures import without_classes
from bridge.providers.jms.wire import Payload, text
from gateway.messaging.destination import Kind
from gateway.messaging.envelope import decode_head
from gateway.messaging.message import Message, Unreadable
from gateway.messaging.provider import ConsumerSpec, Xid

#: Bytes of messages in one question, where there is more than one message.
_MOST_SENT: Final = 1 << 20

_SEND: Final = struct.Struct(">BII")
_LENGTHS: Final = struct.Struct(">II")
_OPEN: Final = struct.Struct(">BIBBB")
_CREDIT: Final = struct.Struct(">BIqq")
_CONSUMER_FLAG: Final = struct.Struct(">BI?")
_SETTLE: Final = struct.Struct(">BII")
_TAGGED: Final = struct.Struct(">BI")
_LENGTH: Final = struct.Struct(">I")
_ID_LENGTH: Final = struct.Struct(">H")
_LONG: Final = struct.Struct(">q")
_MESSAGE: Final = struct.Struct(">IqIII")
_XA_CALL: Final = struct.Struct(">BIBi")
_FORMAT: Final = struct.Struct(">i")

RECOVER: Final = b"\x09"
CLOSE: Final = b"\x0b"


class Sent(NamedTuple):
    """Messages were sent, and are durable.

    :param identities: JMSMessageID and JMSTimestamp of each.
    """

    identities: list[tuple[str, int]]


class Dropped(NamedTuple):
    """So many messages were not sent."""

    number: int


class Finished(NamedTuple):
    """What was asked for with a tag is done.

    :param kind: of the failure, -1 when all is well.
    :param place: of the message, or -1.
    """

    tag: int
    kind: int
    place: int
    reason: str


class Arrived(NamedTuple):
    """A delivery. :param attempts: from 1."""

    consumer: int
    key: int
    attempts: int
    message: Message


class Ended(NamedTuple):
    """A consumer could not be opened, or has failed later.

    :ivar refused: it could not be opened.
    """

    consumer: int
    kind: int
    reason: str
    refused: bool = False


class Voided(NamedTuple):
    """Deliveries before this are void."""


class Note(NamedTuple):
    """Something for the log."""

    text: str


class Shown(NamedTuple):
    """A browser is at its end."""

    consumer: int


class XACall(IntEnum):
    """The calls of an XAResource, with the numbers of ``XaWork.java``."""

    START = 0
    END = 1
    PREPARE = 2
    COMMIT = 3
    ROLLBACK = 4
    RECOVER = 5
    FORGET = 6
    #: Whether another session has the same resource manager: ``flags`` is its number, the answer 1
    #: or 0.
    SAME = 7


class XAOutcome(IntEnum):
    """How a call of an XAResource has ended."""

    WELL = 0
    XA_EXCEPTION = 1
    FAILURE = 2


class XADone(NamedTuple):
    """A call of an XAResource has ended.

    :param value: the vote, the error code, or the kind of failure, depending on ``outcome``.
    """

    tag: int
    outcome: int
    value: int
    reason: str
    xids: list[Xid]


Answer: TypeAlias = Sent | Dropped | Finished | Arrived | Ended | Voided | Note | Shown | XADone


def sends(messages: Sequence[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Send these, in questions of about a megabyte each.

    One question of all could fill the heap. :param messages: head and body of each.
    """
    first = octets = 0
    for at, (head, body) in enumerate(messages):
        more = len(head) + len(body)
        if octets and octets + more > _MOST_SENT:
            yield send(messages[first:at])
            first, octets = at, 0
        octets += more
    yield send(messages[first:])


def send(messages: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Send these. :param messages: head and body of each."""
    parts: list[bytes] = []
    for head, body in messages:
        parts += (_LENGTHS.pack(len(head), len(body)), head, body)
    return _SEND.pack(1, len(messages), sum(map(len, parts))) + b"".join(parts)


def open_consumer(consumer: int, spec: ConsumerSpec, suffix: str = "") -> bytes:
    """Open a consumer, stopped and without credit.

    :param suffix: follows the name of its destination.
    """
    destination = spec.destination
    flags = spec.no_local | spec.browse << 1
    texts = destination.name + suffix, spec.selector or "", spec.durable_name or ""
    return _OPEN.pack(
        2, consumer, destination.kind is Kind.TOPIC, destination.temporary, flags
    ) + b"".join(map(text, texts))


def credit(consumer: int, messages: int, octets: int) -> bytes:
    """More credit; ``messages`` may be negative."""
    return _CREDIT.pack(3, consumer, messages, octets)


def switch(consumer: int, running: bool) -> bytes:
    return _CONSUMER_FLAG.pack(4, consumer, running)


def settle(consumer: int, keys: Sequence[int]) -> bytes:
    return _SETTLE.pack(5, consumer, len(keys)) + struct.pack(f">{len(keys)}q", *keys)


def sync(tag: int) -> bytes:
    """Say when all before this is durable."""
    return _TAGGED.pack(6, tag)


def commit(tag: int) -> bytes:
    return _TAGGED.pack(7, tag)


def rollback(tag: int) -> bytes:
    return _TAGGED.pack(8, tag)


def shut(consumer: int, requeue: bool) -> bytes:
    return _CONSUMER_FLAG.pack(10, consumer, requeue)


def xa_call(tag: int, what: XACall, xid: Xid | None, flags: int = 0) -> bytes:
    """Make a call of the XAResource. :param xid: None for RECOVER and SAME."""
    if xid is None:
        return _XA_CALL.pack(12, tag, what, flags)
    return b"".join(
        (
            _XA_CALL.pack(12, tag, what, flags),
            _FORMAT.pack(xid.format_id),
            _sized(xid.gtrid),
            _sized(xid.bqual),
        )
    )


def _sized(part: bytes) -> bytes:
    return bytes((len(part),)) + part


def answers(octets: bytes) -> Iterator[Answer]:
    """The answers in these bytes.

    :raises ValueError:
    :raises WireError: they cannot be read; the classes and this module are not of one version.
    """
    position = 0
    while position < len(octets):
        code = octets[position]
        position += 1
        if code in (4, 10):
            consumer, key, attempts, head_length, body_length = _MESSAGE.unpack_from(
                octets, position
            )
            body_start = position + 24 + head_length
            end = body_start + body_length
            message = decode_head(octets[position + 24 : body_start], octets[body_start:end])
            position = end
            if code == 10:
                (length,) = _LENGTH.unpack_from(octets, position)
                reason, position = _decoded(octets, position + 4, length)
                message = Unreadable(message, reason, without_classes(reason))
            yield Arrived(consumer, key, attempts, message)
        elif code == 1:
            identities, position = _identities(octets, position)
            yield Sent(identities)
        else:
            payload = Payload(octets, position)
            yield _other(code, payload)
            position = payload.position


def _other(code: int, payload: Payload) -> Answer:
    match code:
        case 2:
            return Dropped(payload.number())
        case 3:
            return Finished(payload.number(), payload.kind(), payload.kind(), payload.text())
        case 5 | 11:
            return Ended(payload.number(), payload.kind(), payload.text(), code == 11)
        case 6:
            return Voided()
        case 7:
            return Note(payload.text())
        case 8:
            return Shown(payload.number())
        case 9:
            tag, outcome, value = payload.number(), payload.rest(1)[0], payload.kind()
            reason, count = payload.text(), payload.number()
            return XADone(tag, outcome, value, reason, [_xid(payload) for _ in range(count)])
    raise ValueError(f"answer {code} at octet {payload.position - 1} is unknown")


def _xid(payload: Payload) -> Xid:
    format_id = payload.kind()
    gtrid = payload.rest(payload.rest(1)[0])
    return Xid(format_id, gtrid, payload.rest(payload.rest(1)[0]))


def _decoded(octets: bytes, start: int, length: int) -> tuple[str, int]:
    return octets[start : start + length].decode("utf-8", "surrogatepass"), start + length


def _identities(octets: bytes, position: int) -> tuple[list[tuple[str, int]], int]:
    (count,) = _LENGTH.unpack_from(octets, position)
    position += 4
    identities: list[tuple[str, int]] = []
    for _ in range(count):
        (length,) = _ID_LENGTH.unpack_from(octets, position)
        message_id, position = _decoded(octets, position + 2, length)
        identities.append((message_id, _LONG.unpack_from(octets, position)[0]))
        position += 8
    return identities, position
