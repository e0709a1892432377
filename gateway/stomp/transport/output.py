"""What goes out to one client: gathered in a turn, written once, and known to be in the kernel when the transport says that its buffer is empty.

Owns the octets on their way. That the buffer is empty is told to a *pull* producer; it is registered on the TCP transport itself, below TLS,
where every octet of TLS has passed, because :class:`~gateway.stomp.transport.tls.SniffingTLS` keeps none back once the handshake is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IPullProducer
from zope.interface import implementer

from gateway.messaging.turn import Turn


@implementer(IPullProducer)
class Output:
    """The output of one connection.

    :param transport: what frames are written to. :param raw: the TCP transport below it, the same without TLS.
    :param flushed: called before each write with its octets and those that are unsent with them. :param drained: called when everything is in the kernel.
    """

    def __init__(
        self, transport: Any, raw: Any, turn: Turn, flushed: Callable[[int, int], None], drained: Callable[[], None]
    ) -> None:
        self._transport: Final = transport
        self._raw: Final = raw
        self._turn: Final = turn
        self._flushed: Final = flushed
        self._drained: Final = drained
        self._waiting: list[Callable[[], None]] = []
        self._registered = False
        self._closed = False
        self.parts: list[bytes] = []
        self.flagged = False
        #: Octets written to the transport that may not be in the kernel yet.
        self.unsent = 0

    def begin(self) -> None:
        """Hear of the buffer from now on."""
        self._registered = True
        self._raw.registerProducer(self, False)

    def flag(self) -> None:
        """Flush at the end of this turn."""
        self.flagged = True
        self._turn.write(self.flush)

    def flush(self) -> None:
        """Write what has gathered."""
        self.flagged = False
        if self._closed or not self.parts:
            return
        data = b"".join(self.parts)
        self.parts = []
        self.unsent += len(data)
        self._flushed(len(data), self.unsent)
        if not self._closed:
            self._transport.write(data)

    def when_drained(self, done: Callable[[], None]) -> None:
        """Call ``done`` once everything is in the kernel, at once if it is."""
        if not self.unsent and not self.parts:
            done()
        else:
            self._waiting.append(done)

    def end(self) -> None:
        """No more of the buffer is told; the transport may close when it is empty."""
        if self._registered:
            self._registered = False
            self._raw.unregisterProducer()

    def gone(self) -> None:
        """The connection is lost: forget what waits."""
        self._closed = True
        self._registered = False
        self.parts = []
        self._waiting = []

    def resumeProducing(self) -> None:
        """The buffer is empty (Twisted's pull producers are asked for more then)."""
        if self._raw.disconnecting:
            # TLS closes by itself when the client does; a registered producer would keep the socket open.
            self.end()
        if not self.unsent or self._closed:
            return
        self.unsent = 0
        self._turn.begin()
        try:
            self._drained()
            if not self.parts:
                waiting, self._waiting = self._waiting, []
                for done in waiting:
                    done()
        finally:
            self._turn.end()

    def stopProducing(self) -> None:
        """The transport is gone; the protocol hears of it by itself."""
        self._registered = False
