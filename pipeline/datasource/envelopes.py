"""MESSAGEs of a subscription with ``envelope:true``.

The gateway delivers the whole message as their body.

Owns how they are taken apart, each once, into what a plain subscription would have got and what
that could not say: types, and bodies that STOMP has no form for. Such a subscription of the gateway
has no other MESSAGEs, also where the message itself holds an envelope: then one is in the other.
Knows neither sockets nor rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gateway.messaging.envelope import EnvelopeError, decode
from gateway.messaging.message import Headers
from gateway.messaging.values import text_of
from gateway.stomp.wire import Frame
from pipeline.datasource.errors import BrokerError

#: Of SUBSCRIBE, and of each MESSAGE that is delivered so.
ENVELOPE: Final = "envelope"
_CONTENT_TYPE: Final = "content-type"


class Opened(NamedTuple):
    """The message in a MESSAGE.

    :param head: the headers that it has without an envelope.
    :param body_type: the name of its JMS type.
    :param envelope: as it came.
    """

    head: dict[str, str]
    body: bytes
    body_type: str
    envelope: bytes


def opened(frames: Sequence[Frame]) -> list[Opened]:
    """What is in these, in their order.

    :raises BrokerError: one is not in an envelope, or in one that cannot be read.
    """
    return [_opened(frame) for frame in frames]


def _opened(frame: Frame) -> Opened:
    told = frame.head.headers
    if told.get(ENVELOPE) != "true":
        raise BrokerError(
            "the gateway sent a message as it is; expected it in an envelope, as this was asked for"
        )
    try:
        message = decode(frame.body)
    except EnvelopeError as error:
        raise BrokerError(f"the gateway sent an envelope that cannot be read: {error}") from None
    head = dict(told)
    del head[ENVELOPE]
    head.pop(_CONTENT_TYPE, None)
    head["content-length"] = str(len(message.body))
    headers = message.headers
    if headers.extras or ENVELOPE in headers.properties:
        _own(head, headers)
    return Opened(head, message.body, headers.body_type.name, frame.body)


def _own(head: dict[str, str], headers: Headers) -> None:
    """Return the message's own headers under the gateway's two envelope names."""
    for name, value in headers.extras:
        if name in (_CONTENT_TYPE, ENVELOPE):
            head.setdefault(name, value)
    if ENVELOPE in headers.properties:
        head[ENVELOPE] = text_of(headers.properties[ENVELOPE])
