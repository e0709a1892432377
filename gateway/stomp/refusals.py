"""Why STOMP or the operator refuses a frame or ends a connection.

Owns these errors, whose sentences are fit for clients. What becomes of them is
:mod:`gateway.stomp.error_frames`' to say.
"""

from __future__ import annotations

from collections.abc import Mapping


class CommandRefused(Exception):
    """A frame cannot be carried out, or a connection cannot go on.

    :param reason: a sentence fit for the client.
    :param headers: more headers for the ERROR frame.
    """

    def __init__(self, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.headers: Mapping[str, str] = headers or {}


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


class TooManyConnections(CommandRefused):
    """A limit of connections is reached: of all, an address or a user."""
