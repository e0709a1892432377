"""Bytes to STOMP frames and back, without I/O.

Imports the standard library only.

Everything that others may use is named here; the modules behind are private to the package. Bytes
go in and frames come out: a
:class:`FrameParser` for each connection, and functions for the way back. Nothing here calls back,
waits, or knows which side it serves.
"""

from gateway.stomp.wire.errors import ProtocolError
from gateway.stomp.wire.escaping import (
    UndefinedEscape,
    bare_name,
    escape_1_0,
    escape_1_1,
    escape_1_2,
    escape_header,
    escape_name_1_0,
    escape_name_1_1,
    escape_name_1_2,
    escaper,
    name_escaper,
    unescape_header,
    without_edge_blanks,
)
from gateway.stomp.wire.frame import Frame, Head, Version
from gateway.stomp.wire.grammar import (
    BEFORE_CONNECT,
    BODY_COMMANDS,
    CLIENT_COMMANDS,
    COMMANDS,
    CONNECTING_COMMANDS,
    SERVER_COMMANDS,
    Limits,
)
from gateway.stomp.wire.parser import FrameParser
from gateway.stomp.wire.serializer import header_lines, serialize

__all__ = [
    "BEFORE_CONNECT",
    "BODY_COMMANDS",
    "CLIENT_COMMANDS",
    "COMMANDS",
    "CONNECTING_COMMANDS",
    "SERVER_COMMANDS",
    "Frame",
    "FrameParser",
    "Head",
    "Limits",
    "ProtocolError",
    "UndefinedEscape",
    "Version",
    "bare_name",
    "escape_1_0",
    "escape_1_1",
    "escape_1_2",
    "escape_header",
    "escape_name_1_0",
    "escape_name_1_1",
    "escape_name_1_2",
    "escaper",
    "header_lines",
    "name_escaper",
    "serialize",
    "unescape_header",
    "without_edge_blanks",
]
