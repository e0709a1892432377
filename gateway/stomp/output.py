"""The output of one client.

It is gathered in a turn, written once, and known to be in the kernel.

Owns the octets on their way. While none wait they are given to the kernel at once: what it takes
needs no pass of the reactor, and is known to be there when the turn's changes go to the store. What
it does not take waits in the transport. That the transport's buffer is empty is told to a *pull*
producer; it is registered on the TCP transport itself, below TLS, where every octet of TLS has
passed, because
:class:`~gateway.stomp.transport.tls.SniffingTLS` keeps none back once the handshake is done.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeAlias

from twisted.internet.interfaces import IPullProducer
from twisted.internet.tcp import Connection
from zope.interface import classImplements

from gateway.reactor.turn import Turn

#: Parts that are longer than this on the average are not joined before they are sent, and at most
#: this many go in one call.
_LONG: Final = 4096
_MOST_PARTS: Final = 512
#: Where ``tcpi_bytes_acked`` is in ``struct tcp_info`` (linux/tcp.h, since 4.1).
_ACKED: Final = struct.Struct("=Q")
_ACKED_AT: Final = 120

#: Returns what is sent for octets, with what else is due.
Wrapped: TypeAlias = Callable[[list[bytes]], list[bytes]]


class Output:
    """The output of one connection.

    :param flushed: called at each write with its octets and all that are not in the kernel then.
    :param drained: called when everything is.
    :param wrapped: None: octets are sent as they are.
    """

    __deletable__: ClassVar = ["_drained", "_flushed", "_wrapped"]

    def __init__(
        self,
        turn: Turn,
        flushed: Callable[[int, int], None],
        drained: Callable[[], None],
        wrapped: Wrapped | None = None,
    ) -> None:
        self._transport: Any
        self._raw: Any
        self._turn: Final = turn
        self._flushed = flushed
        self._drained = drained
        self._wrapped = wrapped
        self._waiting: list[Callable[[], None]] = []
        self._registered = False
        self._closed = False
        #: Where octets go at once, while there is no TLS between.
        self._socket: socket.socket | None = None
        #: Has the octets below TLS go at once.
        self._push: Callable[[], object] | None = None
        #: Bytes to send, in order. Who appends to it calls :meth:`flag` where :attr:`flagged` is
        #: False.
        self.parts: list[bytes] = []
        self.flagged = False
        #: Octets written to the transport that may not be in the kernel yet.
        self.unsent = 0

    def begin(self, transport: Any, raw: Any) -> None:
        """Write to this transport, and hear of its buffer, from now on.

        :param transport: what frames are written to.
        :param raw: the TCP transport below it, the same without TLS.
        """
        self._transport = transport
        self._raw = raw
        if isinstance(raw, Connection):
            if raw is transport:
                self._socket = raw.getHandle()
            else:
                self._push = raw.doWrite
        self._registered = True
        raw.registerProducer(self, False)

    def add(self, octets: bytes) -> None:
        """Send this at the end of the turn, behind what was added before."""
        self.parts.append(octets)
        if not self.flagged:
            self.flag()

    def flag(self) -> None:
        """Flush at the end of this turn."""
        self.flagged = True
        self._turn.write(self.flush)

    def flush(self) -> None:
        """Write what has gathered."""
        self.flagged = False
        if self._closed or not self.parts:
            return
        parts, self.parts = self.parts, []
        if self._raw is not self._transport and self._raw.disconnecting:
            # The client has ended TLS, and what is written now goes nowhere. Nothing of it counts
            # as sent.
            return
        if self._wrapped is not None:
            parts = self._wrapped(parts)
        octets = sum(map(len, parts))
        if octets < _LONG * len(parts) or self._socket is None:
            parts = [b"".join(parts)]
        sent = 0 if self._socket is None or self.unsent else _send(self._socket, parts)
        self.unsent += octets - sent
        self._flushed(octets, self.unsent)
        if self._closed:
            return
        if not self.unsent:
            self._is_drained()
            return
        self._transport.writeSequence(_after(parts, sent))
        if self._push is not None:
            # A failure need not be looked at: the reactor tries again, and has it too.
            self._push()

    def when_drained(self, done: Callable[[], None]) -> None:
        """Call ``done`` once everything is in the kernel, at once if it is."""
        if not self.unsent and not self.parts:
            done()
        else:
            self._waiting.append(done)

    def taken(self) -> int:
        """Return the bytes that the client's kernel has confirmed so far.

        TLS's own included; -1 where the system does not tell.
        """
        raw = self._raw
        return _confirmed(raw.getHandle()) if isinstance(raw, Connection) else -1

    def end(self) -> None:
        """Nothing more is told or pushed.

        The transport may close when its buffer is empty.
        """
        self._socket = self._push = None
        if self._registered:
            self._registered = False
            self._raw.unregisterProducer()

    def gone(self) -> None:
        """The connection is lost: forget what waits.

        The transport goes, too, for what it has not sent is still in its buffer.
        """
        self._closed = True
        self._socket = self._push = None
        self._registered = False
        self._transport = self._raw = None
        del self._flushed, self._drained, self._wrapped
        self.parts = []
        self._waiting = []
        self.unsent = 0

    def resumeProducing(self) -> None:
        """The buffer is empty (Twisted's pull producers are asked for more then)."""
        if self._closed:
            return
        if self._raw.disconnecting:
            # TLS closes by itself when the client does; a registered producer would keep the socket
            # open. What TLS was given after that is lost, so that an empty buffer says nothing any
            # more.
            self.end()
        elif self.unsent:
            self.unsent = 0
            with self._turn:
                self._is_drained()

    def _is_drained(self) -> None:
        """Everything is in the kernel. For within a turn."""
        self._drained()
        if self._waiting and not self.parts:
            waiting, self._waiting = self._waiting, []
            for done in waiting:
                done()

    def stopProducing(self) -> None:
        """The transport is gone; the protocol hears of it by itself."""
        self._registered = False


classImplements(Output, IPullProducer)


def _send(to: socket.socket, parts: list[bytes]) -> int:
    """Give the kernel what it takes at once.

    A failure takes nothing; the transport will meet it, too.
    :returns: the bytes taken.
    """
    sent = 0
    for first in range(0, len(parts), _MOST_PARTS):
        some = parts[first : first + _MOST_PARTS]
        try:
            taken = to.send(some[0]) if len(some) == 1 else to.sendmsg(some)
        except OSError:
            break
        sent += taken
        if taken < sum(map(len, some)):
            break
    return sent


def _confirmed(of: socket.socket) -> int:
    """``tcpi_bytes_acked`` of Linux's ``struct tcp_info``; -1 elsewhere."""
    if sys.platform != "linux":
        return -1
    try:
        told = of.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKED_AT + _ACKED.size)
        return int(_ACKED.unpack_from(told, _ACKED_AT)[0])
    except (OSError, struct.error):
        return -1


def _after(parts: list[bytes], sent: int) -> list[bytes]:
    """Return what is left when that many bytes were sent."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [part[sent:], *parts[index + 1 :]] if sent else parts[index:]
        sent -= len(part)
    return []
