"""Where a STOMP broker is and how to treat it.

A connection factory of a bridge says both.

Owns the form of its ``lookup-name``, ``stomp://HOST:PORT`` or ``stomp+tls://HOST:PORT`` with an
optional ``/VHOST``, and the names of its ``property`` children: time limits, heart-beats, TLS and
the dialect. Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from bridge.providers.connection_options import ConnectionOptions, Scheme, spelled_host
from gateway.messaging.provider import Capabilities
from gateway.stomp.brokers import BROKERS, GENERIC, Dialect, Schedules

PLAIN: Final = "stomp"
TLS: Final = "stomp+tls"
#: The ports that ActiveMQ, RabbitMQ and Artemis use, where the name gives none.
PORTS: Final = {PLAIN: 61613, TLS: 61614}

SCHEME: Final = Scheme("STOMP", PORTS)

PREFIX: Final = "stomp."
#: The dialects that ``stomp.dialect`` may name.
DIALECTS: Final = {**BROKERS, GENERIC.name: GENERIC}
_SECONDS: Final = frozenset(("connect_timeout", "receipt_timeout", "close_timeout"))
_COUNTS: Final = frozenset(("heart_beat_ms", "topic_prefetch", "max_frame", "max_buffer"))


@dataclass(frozen=True, slots=True)
class StompAddress:
    """A broker's address.

    :param host: a name or an IP address, without brackets.
    :param port: 1 to 65535.
    :param tls: TLS from the first byte.
    :param virtual_host: the ``host`` header of CONNECT. It is ``/`` where the address gives none:
        RabbitMQ's default, which others ignore.
    """

    host: str
    port: int
    tls: bool = False
    virtual_host: str = "/"

    @classmethod
    def parse(cls, text: str) -> StompAddress:
        """Return the address that a ``lookup-name`` means.

        :raises InvalidAddress: it is not an address, or holds a user, a query or a fragment.
        """
        parts = SCHEME.parse(text)
        return cls(parts.host, parts.port, parts.scheme == TLS, parts.virtual_host or "/")

    def __str__(self) -> str:
        return f"{TLS if self.tls else PLAIN}://{spelled_host(self.host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class StompOptions(ConnectionOptions):
    """The options of one provider.

    Each is a property ``stomp.NAME`` with hyphens for underscores, such as
    ``stomp.connect-timeout``.

    :param dialect: a name of :data:`DIALECTS`, for a broker whose
        CONNECTED does not tell it; "" recognises it. A declared dialect makes
        :attr:`StompProvider.capabilities` known before the first connection.
    :param connect_timeout: seconds from the start to CONNECTED, TLS and name look-up included.
    :param receipt_timeout: seconds that any RECEIPT may take; then the connection is lost.
    :param close_timeout: seconds that a close may take in all.
    :param heart_beat_ms: the interval offered and asked for, in milliseconds; 0 means none.
    :param topic_prefetch: messages of a topic that may be unsettled at once. For a queue the credit
        decides.
    :param max_frame: bytes that one frame may have.
    :param max_buffer: bytes of memory of undelivered messages, estimated, from which on the socket
        is not read. While a RECEIPT is awaited, which comes behind them, it is read until
        ``max_frame`` more wait.
    :param ca: PEM file of the authorities that are trusted; None trusts those of the system.
    :param certificate: PEM file of the client's certificate; its key may be in it.
    :param key: PEM file of the client's key, unless it is with the certificate.
    :param server_name: the name that the broker's certificate must be for; "" is the address's
        host.
    """

    PROTOCOL: ClassVar[str] = SCHEME.protocol
    PREFIX: ClassVar[str] = PREFIX
    SECONDS: ClassVar[Collection[str]] = _SECONDS
    COUNTS: ClassVar[Collection[str]] = _COUNTS
    MAY_BE_ZERO: ClassVar[Collection[str]] = ("heart_beat_ms",)

    dialect: str = ""
    connect_timeout: float = 15.0
    receipt_timeout: float = 60.0
    close_timeout: float = 5.0
    heart_beat_ms: int = 10_000
    topic_prefetch: int = 32_766
    max_frame: int = 104_857_600
    max_buffer: int = 8_388_608
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str = ""

    def __post_init__(self) -> None:
        if self.dialect and self.dialect not in DIALECTS:
            raise self.invalid(
                f"{PREFIX}dialect",
                f"'{self.dialect}' is unknown; expected one of {', '.join(DIALECTS)}",
            )
        if self.key is not None and self.certificate is None:
            raise self.invalid(f"{PREFIX}key", f"it requires {PREFIX}certificate")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> StompOptions:
        """Return the options that these properties give.

        Those without the prefix ``stomp.`` are ignored.

        :raises InvalidOption: an unknown name, or a value out of range.
        """
        return cls(**cls.values_of(properties))

    @property
    def declared(self) -> Dialect | None:
        """The declared dialect, if there is one."""
        return DIALECTS[self.dialect] if self.dialect else None

    def tls(self, address: StompAddress) -> IOpenSSLClientConnectionCreator:
        """Return the options of TLS to this address.

        They check the certificate chain and the host name, and show the client's certificate.

        :raises OSError: a file cannot be read.
        :raises InvalidOption: a file holds no certificate or no key.
        """
        name = self.server_name or address.host
        return self.client_tls(name, self.ca, self.certificate, self.key)


def capabilities_of(dialect: Dialect) -> Capabilities:
    """Return what a provider to such a broker can do."""
    return Capabilities(
        transacted=dialect.transacted,
        joined=dialect.joined,
        durable=dialect.durable,
        selectors=dialect.selectors,
        browse=dialect.browse,
        individual=dialect.individual,
        delivery_count=dialect.delivery_count,
        duplicate_ids=dialect.duplicate_ids,
        stable_ids=dialect.stable_ids,
        queue_patterns=dialect.queue_patterns,
        exclusive=bool(dialect.exclusive),
        delayed=dialect.schedules is not Schedules.NONE,
        recurring=dialect.schedules in (Schedules.ACTIVEMQ, Schedules.ALL),
        scheduler_optional=dialect.schedules is Schedules.ACTIVEMQ,
    )
