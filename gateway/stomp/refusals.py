"""Why STOMP or the operator refuses a frame or ends a connection.

Owns these errors, whose sentences are fit for clients. What becomes of them is
:mod:`gateway.stomp.error_frames`' to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Refusal(Enum):
    """What some servers have words of their own for, which clients compare."""

    UNKNOWN_COMMAND = "unknown command"
    NOT_CONNECTED = "not connected"
    CONNECTED = "connected already"
    VERSION = "version"
    LOGIN = "login"
    HOST = "host"
    ACCESS = "access"
    NO_DESTINATION = "no destination"
    EMPTY_DESTINATION = "empty destination"
    NO_EXCHANGE = "no exchange"
    HEADER = "header"
    NO_DELIVERY = "no delivery named"
    NO_SUBSCRIPTION = "no subscription"
    DUPLICATE_SUBSCRIPTION = "duplicate subscription"
    DURABLE_WITHOUT_ID = "durable without id"
    COMMAND_LENGTH = "command length"
    HEADER_LENGTH = "header length"
    HEADERS = "number of headers"
    BODY_LENGTH = "body length"
    FRAME_LENGTH = "frame length"


class CommandRefused(Exception):
    """A frame cannot be carried out, or a connection cannot go on.

    :param reason: a sentence fit for the client.
    :param headers: more headers for the ERROR frame.
    :param refusal: what it is, for profiles that say it in other words.
    :param subject: what they say it of.
    :param summary: for ``message``, where the reason is the body as it is; "" for a beginning of the
        reason.
    """

    def __init__(
        self,
        reason: str,
        headers: Mapping[str, str] | None = None,
        *,
        refusal: Refusal | None = None,
        subject: str = "",
        summary: str = "",
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.headers: Mapping[str, str] = headers or {}
        self.refusal = refusal
        self.subject = subject
        self.summary = summary


class BridgeStopped(CommandRefused):
    """The operator stopped the STOMP bridge, or the process ends."""


class CertificateRevoked(CommandRefused):
    """The client's certificate was revoked while it was connected."""

    def __init__(self) -> None:
        super().__init__("the client's certificate was revoked")


class FrameTooSlow(CommandRefused):
    """A frame that has begun does not go on fast enough."""


class MemoryShort(CommandRefused):
    """Memory is short for what a client sends or holds.

    What it holds counts once others have waited too long for it.
    """


class OneTooMany(CommandRefused):
    """A limit of what one connection may make is reached."""


class PartlySettled(CommandRefused):
    """An ACK or NACK of several subscriptions is in force for some only."""

    def __init__(self, command: str, why: str) -> None:
        super().__init__(f"{command} is in force for some subscriptions only: {why}")


class SilentTooLong(CommandRefused):
    """Nothing has come from the client for longer than its listener allows."""


class TooManyConnections(CommandRefused):
    """A limit of connections is reached: of all, an address or a user."""
