"""Sockets that answer at once.

Owns two options of TCP. A broker with Nagle's algorithm on, as ActiveMQ has by default, sends the
second part of an answer only when the first was acknowledged, and a kernel acknowledges what needs
no answer after 40 milliseconds. With one message under way at a time that is all the time there is.
"""

from __future__ import annotations

import socket
from typing import Any, Final

from twisted.internet.interfaces import ITCPTransport

#: Linux has it; elsewhere answers are as prompt as the kernel likes.
_QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class PromptSocket:
    """The socket behind a transport, TLS or not; nothing where there is none."""

    def __init__(self, transport: Any) -> None:
        below = transport
        while not ITCPTransport.providedBy(below) or hasattr(below, "transport"):
            below = getattr(below, "transport", None)
            if below is None:
                break
        self._socket: Any = None if below is None else below.getHandle()
        if below is not None:
            below.setTcpNoDelay(True)

    def acknowledge(self) -> None:
        """What has been read is acknowledged now. The kernel forgets it, so this is for each
        time.
        """
        if self._socket is not None and _QUICKACK is not None:
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
            except OSError:
                # It is gone, which the transport notices by itself.
                self._socket = None
