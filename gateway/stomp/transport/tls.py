"""TLS below STOMP, which notices clients that do not speak it."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol

from gateway.stomp.errors import CommandRefused, error_frame
from gateway.stomp.wire import Version

#: The first octet of a TLS client: a handshake record, or the hello of SSL 2 that some still begin with.
_HELLO: Final = (0x16, 0x80)
#: A fatal TLS alert, ``protocol_version``: a TLS client on the plain port can make something of it.
PROTOCOL_VERSION_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x46"


def is_hello(data: bytes) -> bool:
    """Whether a connection that begins so speaks TLS."""
    return bool(data) and data[0] == 0x16


class SniffingTLS(TLSMemoryBIOProtocol):
    """TLS that answers a plain client in plain text.

    Unlike Twisted's own default it gathers no small writes: sessions write once a turn, and what has been written must be in the TCP
    transport's buffer when that buffer is said to be empty.
    """

    _sniffed = False

    def dataReceived(self, data: bytes) -> None:
        """Octets from the TCP transport."""
        if not self._sniffed and data:
            self._sniffed = True
            if data[0] not in _HELLO:
                self._refuse()
                return
        super().dataReceived(data)  # type: ignore[no-untyped-call]

    def _refuse(self) -> None:
        refused = CommandRefused("this port speaks TLS: connect with TLS, or to the port for plain connections")
        self.wrappedProtocol.mismatched(str(refused))  # type: ignore[attr-defined]
        self.transport.write(error_frame(refused, Version.V1_0, None, ""))  # type: ignore[union-attr]
        self.transport.loseConnection()  # type: ignore[union-attr]


def tls_factory(context_factory: Any, wrapped: Any, clock: IReactorTime) -> TLSMemoryBIOFactory:
    """A factory of TLS servers.

    :param context_factory: makes the TLS connections: a ``CertificateOptions``, or what stands for one that can be renewed.
    :param wrapped: the factory of what is inside.
    """
    factory = TLSMemoryBIOFactory(context_factory, False, wrapped, clock)
    factory.protocol = SniffingTLS
    return factory
