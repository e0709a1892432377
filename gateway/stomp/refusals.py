"""Why a frame is not carried out, or a connection ends, where STOMP itself or the operator has it
so.

Owns these errors, whose sentences are fit for clients. What becomes of them is
:mod:`gateway.stomp.errors`' to say.
"""

from __future__ import annotations

from collections.abc import Mapping


class CommandRefused(Exception):
    """A frame cannot be carried out, and it is its sender's doing.

    :param reason: a sentence fit for the client.
    :param headers: more headers for the ERROR frame.
    """

    def __init__(self, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.headers: Mapping[str, str] = headers or {}


class BridgeStopped(Exception):
    """The operator stopped the STOMP bridge, or the process ends.

    :param reason: a sentence fit for the client.
    """

    def __init__(self, reason: str = "the STOMP bridge was stopped") -> None:
        super().__init__(reason)
        self.reason = reason


class CertificateRevoked(Exception):
    """The certificate that the client has shown was revoked while it was connected."""

    def __init__(self) -> None:
        super().__init__("the client's certificate was revoked")


class FrameTooSlow(CommandRefused):
    """A frame that has begun does not go on fast enough."""


class MemoryShort(CommandRefused):
    """There is not the memory for what a client sends, or others have waited too long for what it
    holds.
    """


class TooManyConnections(CommandRefused):
    """There are as many connections as there may be: in all, from that address, or of that user."""
