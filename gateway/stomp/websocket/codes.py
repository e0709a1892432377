"""Why a WebSocket is closed."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """Why a connection is closed, as far as a server says so (section 7.4.1)."""

    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    #: A text is not UTF-8.
    INVALID_TEXT = 1007
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL_ERROR = 1011
    #: In IANA's registry of close codes.
    TRY_AGAIN_LATER = 1013


class WebSocketError(Exception):
    """The peer has broken a rule.

    :param code: with which the connection is closed.
    """

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
