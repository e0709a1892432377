"""The XA calls of a session as octets, both ways: what :mod:`bridge.providers.jms.batches` is for
everything else, whose words are used here.

Owns the layout, which ``XaWork.java`` has too. The question:

==== ======== ====================================================================================================================
12   xa       u32 tag, u8 call, i32 flags, for a commit 1 in one phase, else 0; then the *xid*, which
              neither a recover has, nor the question whether a session has the same resource manager: its flags are that one's number
==== ======== ====================================================================================================================

An *xid* is i32 format id, u8 length of the global id and the global id, u8 length of the branch
qualifier and that. The answer:

==== ======== ====================================================================================================================
9    xa done  u32 tag, u8 0 when all is well, 1 for an XAException and 2 for another failure, i32 the vote of a prepare, 1 for the same
              resource manager, the error code or the kind of failure, text, u32 number of xids and so many
==== ======== ====================================================================================================================
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from gateway.messaging.provider import Xid

_CALL: Final = struct.Struct(">BIBi")
_FORMAT: Final = struct.Struct(">i")
_DONE: Final = struct.Struct(">IBiI")
_NUMBER: Final = struct.Struct(">I")


class Call(IntEnum):
    """What an XAResource is asked, with the numbers of ``XaWork.java``."""

    START = 0
    END = 1
    PREPARE = 2
    COMMIT = 3
    ROLLBACK = 4
    RECOVER = 5
    FORGET = 6
    #: Whether a session has the same resource manager: ``flags`` is its number, and the answer 1 or
    #: 0.
    SAME = 7


class How(IntEnum):
    """How a call has ended."""

    WELL = 0
    XA_EXCEPTION = 1
    FAILURE = 2


class XADone(NamedTuple):
    """A call has ended. :param value: the vote, the error code, or the kind of failure, depending
    on ``how``.
    """

    tag: int
    how: int
    value: int
    reason: str
    xids: list[Xid]


def call(tag: int, what: Call, xid: Xid | None, flags: int = 0) -> bytes:
    """Make a call. :param xid: None for a recover and for SAME."""
    if xid is None:
        return _CALL.pack(12, tag, what, flags)
    return b"".join(
        (
            _CALL.pack(12, tag, what, flags),
            _FORMAT.pack(xid.format_id),
            _sized(xid.gtrid),
            _sized(xid.bqual),
        )
    )


def _sized(part: bytes) -> bytes:
    return bytes((len(part),)) + part


def done(octets: bytes, position: int) -> tuple[XADone, int]:
    """The answer at this place, behind its code. :returns: it, and where the next one begins."""
    tag, how, value, length = _DONE.unpack_from(octets, position)
    start = position + _DONE.size
    position = start + length
    reason = octets[start:position].decode("utf-8", "surrogatepass")
    (count,) = _NUMBER.unpack_from(octets, position)
    position += _NUMBER.size
    xids: list[Xid] = []
    for _ in range(count):
        (format_id,) = _FORMAT.unpack_from(octets, position)
        gtrid, position = _part(octets, position + _FORMAT.size)
        bqual, position = _part(octets, position)
        xids.append(Xid(format_id, gtrid, bqual))
    return XADone(tag, how, value, reason, xids), position


def _part(octets: bytes, position: int) -> tuple[bytes, int]:
    end = position + 1 + octets[position]
    return octets[position + 1 : end], end
