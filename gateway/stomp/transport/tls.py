"""TLS below STOMP.

It notices clients that do not speak it, and why a handshake failed.
"""

from __future__ import annotations

from typing import Any, Final

from cryptography.x509 import Certificate
from cryptography.x509.oid import NameOID
from OpenSSL import SSL
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure

from gateway.stomp.connection_log import quoted
from gateway.stomp.error_frames import error_frame
from gateway.stomp.refusals import CommandRefused
from gateway.stomp.session.peer import Subject
from gateway.stomp.wire import Version

#: The first octet of a TLS client: a handshake record, or the hello of SSL 2 that some still begin
#: with.
_HELLO: Final = (0x16, 0x80)
#: A fatal TLS alert, ``protocol_version``: a TLS client on the plain port can make something of it.
PROTOCOL_VERSION_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x46"

#: OpenSSL's words for a client that showed no certificate where one is asked for.
_NO_CERTIFICATE: Final = "peer did not return a certificate"


def is_hello(data: bytes) -> bool:
    """Whether a connection that begins so speaks TLS."""
    return bool(data) and data[0] == 0x16


class SniffingTLS(TLSMemoryBIOProtocol):
    """TLS that answers a plain client in plain text.

    Unlike Twisted's own default it gathers no small writes: sessions write once a turn, and what
    has been written must be in the TCP transport's buffer when that buffer is said to be empty.
    """

    _sniffed = False
    #: What is wrong with the certificate that the client has shown; empty for nothing.
    refused_certificate = ""

    def certificate_refused(self, name: str, serial: int, reason: str) -> None:
        """The client's certificate is not accepted; the handshake fails.

        :param name: the common name of its subject.
        :param reason: in OpenSSL's words.
        """
        if not self.refused_certificate:
            self.refused_certificate = (
                f"the certificate of {quoted(name)} with serial number {serial:x}: {reason}"
            )

    def dataReceived(self, data: bytes) -> None:
        """Octets from the TCP transport."""
        if not self._sniffed and data:
            self._sniffed = True
            if data[0] not in _HELLO:
                self._refuse()
                return
        super().dataReceived(data)  # type: ignore[no-untyped-call]

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The TCP connection is gone; drop its transport and unsent output."""
        super().connectionLost(reason)  # type: ignore[no-untyped-call]
        self.transport = None

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        """TLS has failed for that reason, or ended.

        Where it failed is forgotten: the traceback has the frame that has the reason, and would
        keep this object with OpenSSL's.
        """
        if reason is not None and reason.value is not None:
            # Not by cleanFailure, which others may have replaced to keep what they report.
            reason.tb = reason.value.__traceback__ = None
        super()._tlsShutdownFinished(reason)  # type: ignore[no-untyped-call]

    def _refuse(self) -> None:
        refused = CommandRefused(
            "this port speaks TLS: connect with TLS, or to the port for plain connections"
        )
        self.wrappedProtocol.session.log.mismatched(str(refused))  # type: ignore[attr-defined]
        self.transport.write(error_frame(refused, Version.V1_0, None, ""))  # type: ignore[union-attr]
        self.transport.loseConnection()  # type: ignore[union-attr]


class NoTLS(Exception):
    """There is nothing to make TLS connections with; the text says why."""


def tls_factory(context_factory: Any, wrapped: Any, clock: IReactorTime) -> TLSMemoryBIOFactory:
    """A factory of TLS servers.

    :param context_factory: makes the TLS connections: a ``CertificateOptions``, or what stands for
        one that can be renewed.
    :param wrapped: the factory of what is inside.
    """
    factory = TLSMemoryBIOFactory(context_factory, False, wrapped, clock)
    factory.protocol = SniffingTLS
    return factory


def subject(certificate: Certificate) -> Subject | None:
    """Return whom a certificate is for; None if it has no common name."""
    found = certificate.subject
    names = found.get_attributes_for_oid(NameOID.COMMON_NAME)
    units = found.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    if not names:
        return None
    return Subject(str(names[0].value), frozenset(str(unit.value) for unit in units))


def description(transport: Any, certificate: Subject | None) -> str:
    """Say for the log what was agreed upon, and whose certificate came."""
    shown = (
        "without a certificate"
        if certificate is None
        else f"with the certificate of {quoted(certificate.name)}"
    )
    return f"{transport.getHandle().get_protocol_version_name()} {shown}"


def refusal(transport: Any, reason: Failure) -> tuple[str, bool] | None:
    """Return why the handshake failed, and if the certificate was the reason.

    None if the client just went away.

    :param reason: with which the connection was lost.
    """
    certificate = getattr(transport, "refused_certificate", "")
    if certificate:
        return certificate, True
    error = reason.value
    # Anything else than a list of what went wrong is about the socket.
    if (
        not isinstance(error, SSL.Error)
        or not error.args
        or not isinstance(error.args[0], list)
        or not error.args[0]
    ):
        return None
    text = ", ".join([str(entry[-1]) for entry in error.args[0]])
    return text, _NO_CERTIFICATE in text
