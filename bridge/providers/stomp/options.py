"""Where a STOMP broker is and how to treat it.

A connection factory of a bridge says both.

Owns the form of its ``lookup-name``, ``stomp://HOST:PORT`` or ``stomp+tls://HOST:PORT`` with an
optional ``/VHOST``, and the names of its ``property`` children: time limits, heart-beats, TLS and
the dialect. Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from twisted.internet import ssl
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

from gateway.messaging.provider import Capabilities
from gateway.stomp.brokers import BROKERS, GENERIC, Dialect

PLAIN: Final = "stomp"
TLS: Final = "stomp+tls"
#: The ports that ActiveMQ, RabbitMQ and Artemis use, where the name gives none.
PORTS: Final = {PLAIN: 61613, TLS: 61614}

PREFIX: Final = "stomp."
#: The dialects that ``stomp.dialect`` may name.
DIALECTS: Final = {**BROKERS, GENERIC.name: GENERIC}
_SECONDS: Final = frozenset(("connect_timeout", "receipt_timeout", "close_timeout"))
_COUNTS: Final = frozenset(("heart_beat_ms", "topic_prefetch", "max_frame", "max_buffer"))
_FILES: Final = frozenset(("ca", "certificate", "key"))


class InvalidAddress(ValueError):
    """A text that is not the address of a STOMP broker.

    :param text: as it was given.
    :param reason: what is wrong with it.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(
            f"'{text}' is not the address of a STOMP broker: {reason}; expected stomp://HOST:PORT or stomp+tls://HOST:PORT"
        )
        self.reason = reason


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
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise InvalidAddress(text, str(error)) from None
        if parts.scheme not in PORTS:
            raise InvalidAddress(text, f"the scheme is '{parts.scheme}'")
        if "@" in parts.netloc:
            # Its text may hold a passcode, which no error shows.
            raise InvalidAddress(f"{parts.scheme}://...@...", "it must not hold a user name")
        if not parts.hostname:
            raise InvalidAddress(text, "it has no host")
        if port == 0:
            raise InvalidAddress(text, "port 0 is not a valid port")
        if parts.query or parts.fragment:
            raise InvalidAddress(text, "it must end with the virtual host")
        return cls(
            parts.hostname,
            port or PORTS[parts.scheme],
            parts.scheme == TLS,
            unquote(parts.path[1:]) or "/",
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{TLS if self.tls else PLAIN}://{host}:{self.port}"


class InvalidOption(ValueError):
    """A property of a connection factory has an unknown name or bad value.

    :param name: the property.
    :param reason: what was expected.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"property '{name}' of a STOMP connection factory: {reason}")
        self.name = name
        self.reason = reason


@dataclass(frozen=True, slots=True)
class StompOptions:
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
            raise InvalidOption(
                f"{PREFIX}dialect",
                f"'{self.dialect}' is unknown; expected one of {', '.join(DIALECTS)}",
            )
        if self.key is not None and self.certificate is None:
            raise InvalidOption(f"{PREFIX}key", f"it requires {PREFIX}certificate")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> StompOptions:
        """Return the options that these properties give.

        Those without the prefix ``stomp.`` are ignored.

        :raises InvalidOption: an unknown name, or a value out of range.
        """
        names = {PREFIX + field.name.replace("_", "-"): field.name for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in properties.items():
            if name.startswith(PREFIX):
                if name not in names:
                    raise InvalidOption(
                        name, f"unknown property; expected one of {', '.join(names)}"
                    )
                values[names[name]] = _value(name, names[name], text.strip())
        return cls(**values)

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
        trust = None
        own = None
        if self.ca is not None:
            text = self.ca.read_bytes()
            try:
                roots = [ssl.Certificate.loadPEM(part) for part in _certificates(text)]
                trust = ssl.trustRootFromCertificates(roots)  # type: ignore[no-untyped-call]
            except Exception as error:
                raise InvalidOption(
                    f"{PREFIX}ca", f"{self.ca} holds no certificates: {_reason(error)}"
                ) from error
        if self.certificate is not None:
            text = self.certificate.read_bytes() + (
                b"" if self.key is None else b"\n" + self.key.read_bytes()
            )
            try:
                own = ssl.PrivateCertificate.loadPEM(text)  # type: ignore[no-untyped-call]
            except Exception as error:
                reason = f"{self.certificate} holds no certificate with its key: {_reason(error)}"
                raise InvalidOption(f"{PREFIX}certificate", reason) from error
        return ssl.optionsForClientTLS(self.server_name or address.host, trust, own)


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
    )


def _certificates(text: bytes) -> list[bytes]:
    end = b"-----END CERTIFICATE-----"
    found = [
        part[part.index(b"-----BEGIN CERTIFICATE-----") :] + end for part in text.split(end)[:-1]
    ]
    if not found:
        raise ValueError("there is no BEGIN CERTIFICATE")
    return found


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _value(name: str, field: str, text: str) -> str | float | int | Path:
    if field in _SECONDS:
        try:
            seconds = float(text)
        except ValueError:
            seconds = 0.0
        if not 0 < seconds <= 86_400:
            raise InvalidOption(
                name, f"'{text[:40]}': expected a number of seconds above 0 and up to 86400"
            )
        return seconds
    if field in _COUNTS:
        least = 0 if field == "heart_beat_ms" else 1
        if not text.isascii() or not text.isdecimal() or not least <= int(text) <= 0x7FFF_FFFF:
            raise InvalidOption(
                name, f"'{text[:40]}': expected a number from {least} to 2147483647"
            )
        return int(text)
    if field in _FILES:
        if not text:
            raise InvalidOption(name, "it is empty: expected the path of a PEM file")
        return Path(text)
    return text
