"""What a message says, as two short hashes.

So that what a link received and what it sent, or what lies at its target, can be compared without
being kept.

Owns the two formats, which any language can compute. Knows nothing of who compares them, or where
they are written.

Both are BLAKE2b (RFC 7693) without a key, of 16 octets, in 32 lower-case hexadecimal digits.
*Text*, *value*, *properties* and the bodies of *map* and *stream* messages are those of
:mod:`gateway.messaging.values`. Names are in the order of their UTF-8 octets, each octet without a
sign.

The body's, over
================

======  ========================================================================================================
Octets  What
======  ========================================================================================================
1       type of the body: 0 Message, 1 TextMessage, 2 BytesMessage, 3 MapMessage, 4 StreamMessage, 5 ObjectMessage
…       the body: a TextMessage's in UTF-8, a BytesMessage's and a serialised ObjectMessage's as they are, a StreamMessage's as it is encoded, a
        MapMessage's likewise with its entries in the order of their names, which have no order in JMS; nothing for a Message
======  ========================================================================================================

A body that says it is a map's and is none counts as it is.

The headers', over
==================

======  ========================================================================================================
Octets  What
======  ========================================================================================================
1       version of this format, 1
1       JMSDeliveryMode: 1 NON_PERSISTENT, 2 PERSISTENT
1       JMSPriority, 0 to 9
…       JMSCorrelationID, a value: a string, or null where it has no such ID
…       JMSType, likewise
…       properties, in the order of their names, without those below
======  ========================================================================================================

Only what a link is to keep is in it. Not in it are the destination and JMSReplyTo, which mean
nothing elsewhere; JMSMessageID and JMSTimestamp, which each provider sets anew; JMSExpiration;
headers whose names are not those of JMS properties, as a JMS provider cannot carry them; and these
properties:

* those whose names begin with ``JMSX``, which providers set;
* :data:`ADDED`, which bridges set on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from typing import Final

from gateway.messaging.message import MEMO_DIGEST, BodyType, DeliveryMode, Headers
from gateway.messaging.provider import DUPLICATE_ID
from gateway.messaging.values import (
    MalformedValues,
    Value,
    decode_map,
    encode_map,
    encode_properties,
    encode_value,
)

#: Octets of a hash; it has twice as many digits.
SIZE: Final = 16
#: The names of properties that bridges add: their own name, the ids that a message had on the way,
#: the links that it was on, and by what a target knows it again.
ADDED: Final = frozenset(
    (
        "JMS_SUN_JMSBRIDGE_NAME",
        "HORNETQ_BRIDGE_MSG_ID_LIST",
        "STOMP_GATEWAY_BRIDGE_HOPS",
        DUPLICATE_ID,
    )
)
_SET_BY_PROVIDERS: Final = "JMSX"
_VERSION: Final = 1

#: To begin with a copy costs less than to begin anew.
_BEGUN: Final = {kind: blake2b(bytes((kind,)), digest_size=SIZE) for kind in BodyType}


def digest_of_body(kind: BodyType, body: bytes) -> str:
    """The hash of a body: 32 hexadecimal digits."""
    if kind is BodyType.MAP:
        body = _in_order(body)
    hashed = _BEGUN[kind].copy()
    hashed.update(body)
    return hashed.hexdigest()


def digest_of_headers(headers: Headers, like: Headers | None = None) -> str:
    """The hash of the headers that a link is to keep: 32 hexadecimal digits.

    Computed once and kept in ``memo``. On any thread.

    :param like: headers that may say the same, as those that these were made of do mostly: then it
        is theirs.
    :raises ValueError, TypeError: as :func:`~gateway.messaging.values.encode_properties` does.
    """
    known = headers.memo.get(MEMO_DIGEST)
    if known is None:
        if like is not None and _say_the_same(headers, like):
            known = digest_of_headers(like)
        else:
            known = _digest(headers)
        headers.memo[MEMO_DIGEST] = known
    assert isinstance(known, str)
    return known


def _digest(headers: Headers) -> str:
    properties = _kept(headers.properties)
    if not properties and headers.correlation_id is None and headers.type is None:
        # As most of them are.
        return _plain(headers.persistent, headers.priority)
    ordered = {name: properties[name] for name in sorted(properties)}
    said = (
        encode_value(headers.correlation_id)
        + encode_value(headers.type)
        + encode_properties(ordered)
    )
    return _hashed(headers.persistent, headers.priority, said)


@cache
def _plain(persistent: bool, priority: int) -> str:
    return _hashed(
        persistent, priority, encode_value(None) + encode_value(None) + encode_properties({})
    )


def _hashed(persistent: bool, priority: int, said: bytes) -> str:
    mode = DeliveryMode.PERSISTENT if persistent else DeliveryMode.NON_PERSISTENT
    return blake2b(bytes((_VERSION, mode, priority)) + said, digest_size=SIZE).hexdigest()


def _kept(properties: Mapping[str, Value]) -> Mapping[str, Value]:
    """Those that are in the hash."""
    if not properties:
        return properties
    return {
        name: value
        for name, value in properties.items()
        if name not in ADDED and not name.startswith(_SET_BY_PROVIDERS)
    }


def _say_the_same(one: Headers, other: Headers) -> bool:
    """Whether both have one hash; false where that is not plain to see."""
    if (
        one.persistent is not other.persistent
        or one.priority != other.priority
        or one.correlation_id != other.correlation_id
        or one.type != other.type
    ):
        return False
    if one.properties is other.properties:
        return True
    mine, theirs = _kept(one.properties), _kept(other.properties)
    # By identity: a number may be equal to one of another type.
    return mine.keys() == theirs.keys() and all(
        theirs[name] is value for name, value in mine.items()
    )


def _in_order(body: bytes) -> bytes:
    try:
        entries = decode_map(body)
    except MalformedValues:
        return body
    # Texts have the order of their octets in UTF-8, which has that of code points.
    ordered: dict[str, Value] = {name: entries[name] for name in sorted(entries)}
    return encode_map(ordered)
