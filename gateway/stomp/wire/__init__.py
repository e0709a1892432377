"""Bytes to STOMP frames and back, without I/O.

Imports the standard library only.

Everything that others may use is named here; the modules behind are private to the package. Bytes
go in and frames come out: a
:class:`FrameParser` for each connection, and functions for the way back. Nothing here calls back,
waits, or knows which side it serves.
"""

from gateway.stomp.wire.errors import Exceeded, ProtocolError
from gateway.stomp.wire.frame import Frame, Head, Version
from gateway.stomp.wire.grammar import (
    BODY_COMMANDS,
    COMMANDS,
    CONNECTING_COMMANDS,
    SHORTEST_FRAME,
    STRICT,
    Leniency,
    Limits,
)
from gateway.stomp.wire.head import UndefinedEscape, unescape_header
from gateway.stomp.wire.parser import FrameParser
from gateway.stomp.wire.serializer import (
    bare_name,
    escape_header,
    escape_name,
    header_lines,
    serialize,
    without_edge_blanks,
)
from gateway.stomp.wire.shapes import ShapedHead, Varying

__all__ = [
    "BODY_COMMANDS",
    "COMMANDS",
    "CONNECTING_COMMANDS",
    "SHORTEST_FRAME",
    "STRICT",
    "Exceeded",
    "Frame",
    "FrameParser",
    "Head",
    "Leniency",
    "Limits",
    "ProtocolError",
    "ShapedHead",
    "UndefinedEscape",
    "Varying",
    "Version",
    "bare_name",
    "escape_header",
    "escape_name",
    "header_lines",
    "serialize",
    "unescape_header",
    "without_edge_blanks",
]
