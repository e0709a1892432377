"""What a session asks of Java and is answered, many things at a time as octets.

Owns the layout of both directions, which ``JmsWork.java`` has too. How it gets there is
:mod:`bridge.providers.jms.wire`'s.

All numbers are big-endian; a *text* is four octets, the number of octets that follow, and then
those of UTF-8. A *message* is four octets, the length of its head, four, the length of its body,
then head and body as :mod:`gateway.messaging.envelope` has them: every type of body and of property
is exact, an object stays the octets it was serialised to, and messages of one producer share their
decoded headers.

Questions, each begun by one octet:

==== ======== ====================================================================================================================
Code Question Then
==== ======== ====================================================================================================================
1    send     u32 number of messages, u32 octets that follow, the messages
2    open     u32 consumer, u8 1 for a topic, u8 1 if temporary, u8 flags (1 no-local, 2 browse), texts: name, selector, durable
              subscription; "" for none
3    credit   u32 consumer, i64 messages more, i64 octets more, 0 when nobody counts them
4    switch   u32 consumer, u8 1 to start and 0 to stop
5    settle   u32 consumer, u32 number of keys, i64 each
6    sync     u32 tag: answered by *done* when all before it is durable
7    commit   u32 tag
8    rollback u32 tag
9    recover  nothing
10   shut     u32 consumer, u8 1 to give outstanding deliveries back at once
11   close    nothing
12   xa       see :mod:`bridge.providers.jms.xa_octets`
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
9    xa done  see :mod:`bridge.providers.jms.xa_octets`
10   unread   as 4, of a message that cannot be read: its head as far as that is known, in place of its body the octets of it that the
              client shows, or none; then a text, what reading it has failed with
==== ======== ====================================================================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from bridge.providers.jms import xa_octets
from bridge.providers.jms.xa_octets import XADone
from gateway.messaging.destination import Kind
from gateway.messaging.envelope import decode_head
from gateway.messaging.message import Message, Unreadable
from gateway.messaging.provider import Subscription

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
_DONE: Final = struct.Struct(">IiiI")
_MESSAGE: Final = struct.Struct(">IqIII")
_ENDED: Final = struct.Struct(">IiI")

RECOVER: Final = b"\x09"
CLOSE: Final = b"\x0b"


class Sent(NamedTuple):
    """Messages were sent, and are durable. :param identities: JMSMessageID and JMSTimestamp of
    each.
    """

    identities: list[tuple[str, int]]


class Dropped(NamedTuple):
    """So many messages were not sent."""

    number: int


class Finished(NamedTuple):
    """What was asked for with a tag is done. :param kind: of the failure, -1 when all is well.
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
    """A consumer could not be opened, or has failed."""

    consumer: int
    kind: int
    reason: str


class Voided(NamedTuple):
    """Deliveries before this are void."""


class Note(NamedTuple):
    """Something for the log."""

    text: str


class Shown(NamedTuple):
    """A browser is at its end."""

    consumer: int


Answer: TypeAlias = Sent | Dropped | Finished | Arrived | Ended | Voided | Note | Shown | XADone


def sends(messages: Sequence[tuple[bytes, bytes]]) -> Iterator[bytes]:
    """Send these, in questions of about a megabyte each, as one of all could fill the heap. :param
    messages: head and body of each.
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


def open_consumer(consumer: int, spec: Subscription) -> bytes:
    """Open a consumer, stopped and without credit."""
    destination = spec.destination
    flags = spec.no_local | spec.browse << 1
    texts = destination.name, spec.selector or "", spec.durable_name or ""
    return _OPEN.pack(
        2, consumer, destination.kind is Kind.TOPIC, destination.temporary, flags
    ) + b"".join(map(_text, texts))


def credit(consumer: int, messages: int, octets: int) -> bytes:
    """More credit; ``messages`` may be negative."""
    return _CREDIT.pack(3, consumer, messages, octets)


def switch(consumer: int, running: bool) -> bytes:
    """Start or stop a consumer."""
    return _CONSUMER_FLAG.pack(4, consumer, running)


def settle(consumer: int, keys: Sequence[int]) -> bytes:
    """Settle these deliveries."""
    return _SETTLE.pack(5, consumer, len(keys)) + struct.pack(f">{len(keys)}q", *keys)


def sync(tag: int) -> bytes:
    """Say when all before this is durable."""
    return _TAGGED.pack(6, tag)


def commit(tag: int) -> bytes:
    """Commit the transaction."""
    return _TAGGED.pack(7, tag)


def rollback(tag: int) -> bytes:
    """Roll the transaction back."""
    return _TAGGED.pack(8, tag)


def shut(consumer: int, requeue: bool) -> bytes:
    """Close a consumer."""
    return _CONSUMER_FLAG.pack(10, consumer, requeue)


def answers(octets: bytes) -> Iterator[Answer]:
    """The answers in these octets.

    :raises ValueError: they are none; the classes and this module are not of one version.
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
                message = Unreadable(message, reason)
            yield Arrived(consumer, key, attempts, message)
        elif code == 1:
            identities, position = _identities(octets, position)
            yield Sent(identities)
        elif code == 2:
            (count,) = _LENGTH.unpack_from(octets, position)
            position += 4
            yield Dropped(count)
        elif code == 3:
            tag, kind, index, length = _DONE.unpack_from(octets, position)
            reason, position = _decoded(octets, position + 16, length)
            yield Finished(tag, kind, index, reason)
        elif code == 5:
            consumer, kind, length = _ENDED.unpack_from(octets, position)
            reason, position = _decoded(octets, position + 12, length)
            yield Ended(consumer, kind, reason)
        elif code == 6:
            yield Voided()
        elif code == 7:
            (length,) = _LENGTH.unpack_from(octets, position)
            text, position = _decoded(octets, position + 4, length)
            yield Note(text)
        elif code == 8:
            (consumer,) = _LENGTH.unpack_from(octets, position)
            position += 4
            yield Shown(consumer)
        elif code == 9:
            ended, position = xa_octets.done(octets, position)
            yield ended
        else:
            raise ValueError(f"answer {code} at octet {position - 1} is unknown")


def _text(text: str) -> bytes:
    octets = text.encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(octets)) + octets


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
