"""The error for what is not STOMP.

The one error of this package; it knows nothing of connections or of ERROR frames.
"""

from __future__ import annotations

from enum import Enum


class Exceeded(Enum):
    """Which limit of a frame was exceeded."""

    NONE = "none"
    COMMAND = "command"
    HEADER = "header"
    HEADERS = "headers"
    BODY = "body"
    FRAME = "frame"


class ProtocolError(Exception):
    """The bytes received are not a STOMP frame, or exceed the limits.

    After it nothing that follows on the connection can be trusted to begin where a frame begins:
    answer with ERROR and close.

    :param message: one line, fit for the ``message`` header of ERROR. It never quotes the value of
        a header, which may be a passcode.
    :param receipt_id: the value of the bad frame's ``receipt`` header where that was read before
        the fault, for ERROR's ``receipt-id``.
    :param command: that is unknown; "" where something else is wrong.
    :param exceeded: the limit that the frame is above.
    """

    def __init__(
        self,
        message: str,
        receipt_id: str | None = None,
        command: str = "",
        exceeded: Exceeded = Exceeded.NONE,
    ) -> None:
        super().__init__(message)
        self.exceeded = exceeded
        self.command = command
        self.message = message
        self.receipt_id = receipt_id


def again(error: ProtocolError) -> ProtocolError:
    """Return one that says the same, and has no traceback."""
    return ProtocolError(error.message, error.receipt_id, error.command, error.exceeded)


def shown(text: str | bytes, most: int = 32) -> str:
    """Make text of the other side fit to be quoted.

    It has at most `most` characters and an ellipsis, unprintable ones as ``?``.
    """
    if isinstance(text, bytes):
        text = text[: 4 * most + 4].decode("utf-8", "replace")
    short = text if len(text) <= most else text[:most] + "..."
    return "".join([letter if letter.isprintable() else "?" for letter in short])
