"""Where an AMQP 1.0 broker is and how to treat it.

A connection factory of a bridge says both.

Owns the form of its ``lookup-name``, ``amqp://HOST:PORT`` or ``amqps://HOST:PORT`` with an
optional ``/VHOST``, and the names of its ``property`` children: time limits, TLS and the peer.
Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from bridge.providers.amqp.peers import GENERIC, PEERS, Peer
from bridge.providers.connection_options import ConnectionOptions, Scheme, spelled_host

PLAIN: Final = "amqp"
TLS: Final = "amqps"
SCHEME: Final = Scheme("AMQP 1.0", {PLAIN: 5672, TLS: 5671})

PREFIX: Final = "amqp."
#: The peers that ``amqp.peer`` may name.
DECLARABLE: Final = {**PEERS, GENERIC.name: GENERIC}


@dataclass(frozen=True, slots=True)
class AmqpAddress:
    """A broker's address.

    :param host: a name or an IP address, without brackets.
    :param port: 1 to 65535.
    :param tls: TLS from the first byte.
    :param virtual_host: "" where the address gives none; then the open frame has the host.
    """

    host: str
    port: int
    tls: bool = False
    virtual_host: str = ""

    @classmethod
    def parse(cls, text: str) -> AmqpAddress:
        """Return the address that a ``lookup-name`` means.

        :raises InvalidAddress: it is not an address, or holds a user, a query or a fragment.
        """
        parts = SCHEME.parse(text)
        return cls(parts.host, parts.port, parts.scheme == TLS, parts.virtual_host)

    def __str__(self) -> str:
        return f"{TLS if self.tls else PLAIN}://{spelled_host(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class AmqpOptions(ConnectionOptions):
    """The options of one provider.

    Each is a property ``amqp.NAME`` with hyphens for underscores, such as
    ``amqp.connect-timeout``.

    :param peer: a name of :data:`DECLARABLE`, for a broker whose open frame does not tell it; ""
        recognises it. A declared peer makes :attr:`AmqpProvider.capabilities` known before the
        first connection.
    :param connect_timeout: seconds from the start to the broker's open frame, TLS and name look-up
        included.
    :param answer_timeout: seconds that any answer may take; then the connection is lost.
    :param close_timeout: seconds that a close may take in all.
    :param idle_timeout: seconds without a frame after which the connection is lost; half of it is
        what the broker is told, so that it sends a frame that often. 0 means none.
    :param max_message: bytes that a message may have. A larger one is delivered as unreadable.
    :param max_buffer: bytes of memory of undelivered messages from which on the broker is told to
        send no more in a session.
    :param ca: PEM file of the authorities that are trusted; None trusts those of the system.
    :param certificate: PEM file of the client's certificate; its key may be in it. Without a user
        name it is what the broker authenticates (SASL EXTERNAL).
    :param key: PEM file of the client's key, unless it is with the certificate.
    :param server_name: the name that the broker's certificate must be for; "" is the address's
        host.
    """

    PROTOCOL: ClassVar[str] = SCHEME.protocol
    PREFIX: ClassVar[str] = PREFIX
    SECONDS: ClassVar[Collection[str]] = (
        "connect_timeout",
        "answer_timeout",
        "close_timeout",
        "idle_timeout",
    )
    COUNTS: ClassVar[Collection[str]] = ("max_message", "max_buffer")
    MAY_BE_ZERO: ClassVar[Collection[str]] = ("idle_timeout",)

    peer: str = ""
    connect_timeout: float = 15.0
    answer_timeout: float = 60.0
    close_timeout: float = 5.0
    idle_timeout: float = 60.0
    max_message: int = 104_857_600
    max_buffer: int = 8_388_608
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str = ""

    def __post_init__(self) -> None:
        if self.peer and self.peer not in DECLARABLE:
            raise self.invalid(
                f"{PREFIX}peer",
                f"'{self.peer}' is unknown; expected one of {', '.join(DECLARABLE)}",
            )
        if self.key is not None and self.certificate is None:
            raise self.invalid(f"{PREFIX}key", f"it requires {PREFIX}certificate")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> AmqpOptions:
        """Return the options that these properties give.

        Those without the prefix ``amqp.`` are ignored.

        :raises InvalidOption: an unknown name, or a value out of range.
        """
        return cls(**cls.values_of(properties))

    @property
    def declared(self) -> Peer | None:
        """The declared peer, if there is one."""
        return DECLARABLE[self.peer] if self.peer else None

    def tls(self, address: AmqpAddress) -> IOpenSSLClientConnectionCreator:
        """Return the options of TLS to this address.

        They check the certificate chain and the host name, and show the client's certificate.

        :raises OSError: a file cannot be read.
        :raises InvalidOption: a file holds no certificate or no key.
        """
        name = self.server_name or address.host
        return self.client_tls(name, self.ca, self.certificate, self.key)
