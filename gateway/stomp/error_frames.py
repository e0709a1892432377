"""From errors to ERROR frames.

Owns which text a client may see. An unexpected error becomes "internal error" and an
incident identifier which the log has too. So does what an error says of the server's own files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from twisted.logger import Logger
from twisted.python.failure import Failure

from gateway.messaging.errors import (
    AccessDenied,
    AuthenticationFailed,
    MessageRejected,
    MessagingError,
    UnknownExchange,
)
from gateway.stomp.destinations import spell
from gateway.stomp.refusals import CommandRefused, Refusal
from gateway.stomp.wire import Exceeded, ProtocolError, Version, serialize

_log: Final = Logger()

#: All versions, as ``version`` of ERROR and ``accept-version`` have them.
SPOKEN: Final = ",".join(str(version) for version in Version)

#: Longest ``message`` header; the body has the whole sentence.
_SUMMARY: Final = 200


def describe(error: BaseException, incident: str) -> tuple[str, bool]:
    """Return what a client may be told, and whether it can understand it.

    :param incident: identifies an unexpected error in the text and in the log.
    """
    if isinstance(error, MessagingError):
        text = error.told(spell)
        return f"{text}, incident {incident}" if error.withheld else text, True
    if isinstance(error, (CommandRefused, ProtocolError)):
        return str(error), True
    return f"internal error, incident {incident}", False


@dataclass(frozen=True, slots=True)
class Wording:
    """How a server words its ERROR frames.

    :param words: ``message`` and body for a refusal; ``{}`` stands for what it is said of.
    :param versions: each frame has ``version`` with all versions.
    """

    words: Mapping[Refusal, tuple[str, str]] = field(default_factory=dict)
    versions: bool = False


#: This project's own.
OWN: Final = Wording()


def error_frame(
    error: BaseException,
    version: Version,
    receipt: str | None,
    incident: str,
    wording: Wording = OWN,
) -> bytes:
    """The ERROR frame for ``error``.

    It has ``message``, ``content-length``, a short text as body, and ``receipt-id`` when the frame
    that failed asked for a receipt (STOMP 1.2, "ERROR"). An unexpected error is logged here, once,
    with its traceback.

    :param receipt: the ``receipt`` header of the frame that failed.
    :param incident: an identifier that no other error has.
    :param wording: what clients expect to read.
    """
    text, understood = describe(error, incident)
    if not understood:
        _log.failure(
            "internal error, incident {incident}",
            failure=Failure(error),  # type: ignore[no-untyped-call]
            incident=incident,
        )
    summary = " ".join(text.split())
    if len(summary) > _SUMMARY:
        summary = summary[: _SUMMARY - 3] + "..."
    text += "\n"
    refusal, subject = refusal_of(error)
    if refusal is not None and refusal in wording.words:
        summary, text = wording.words[refusal]
        summary, text = summary.replace("{}", subject), text.replace("{}", subject)
    elif isinstance(error, CommandRefused) and error.summary:
        summary, text = error.summary, error.reason
    headers = {"message": summary, "content-type": "text/plain"}
    if wording.versions:
        headers["version"] = SPOKEN
    if receipt is not None:
        headers["receipt-id"] = receipt
    if isinstance(error, CommandRefused):
        headers.update(error.headers)
    body = text.replace("\0", " ").encode("utf-8", "replace")
    headers["content-length"] = str(len(body))
    return serialize("ERROR", headers.items(), body, version) + b"\n"


_EXCEEDED: Final = {
    Exceeded.COMMAND: Refusal.COMMAND_LENGTH,
    Exceeded.HEADER: Refusal.HEADER_LENGTH,
    Exceeded.HEADERS: Refusal.HEADERS,
    Exceeded.BODY: Refusal.BODY_LENGTH,
    Exceeded.FRAME: Refusal.FRAME_LENGTH,
}


def refusal_of(error: BaseException) -> tuple[Refusal | None, str]:
    """Return what an error is to profiles, and what they say it of."""
    if isinstance(error, CommandRefused):
        return error.refusal, error.subject
    if isinstance(error, ProtocolError):
        if error.command:
            return Refusal.UNKNOWN_COMMAND, error.command
        return _EXCEEDED.get(error.exceeded), ""
    if isinstance(error, AuthenticationFailed):
        return Refusal.LOGIN, error.username
    if isinstance(error, AccessDenied):
        return Refusal.ACCESS, error.told(spell)
    cause = error.cause if isinstance(error, MessageRejected) else error
    if isinstance(cause, UnknownExchange):
        return Refusal.NO_EXCHANGE, cause.sentence
    return None, ""
