"""What the connection factories of network protocols have in common.

Owns how properties become the fields of a dataclass, the form of addresses, and TLS. The names of
the properties and what they mean are each protocol's business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from twisted.internet import ssl
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator

_FILES: Final = frozenset(("ca", "certificate", "key"))


class Scheme(NamedTuple):
    """The addresses of one protocol.

    :param protocol: its name, for errors.
    :param ports: by scheme, the ports that brokers use, where the address gives none.
    """

    protocol: str
    ports: Mapping[str, int]

    @property
    def expected(self) -> str:
        """The forms that an address may have, for errors."""
        return " or ".join(f"{scheme}://HOST:PORT" for scheme in self.ports)

    def parse(self, text: str) -> Parsed:
        """Return the parts of an address.

        :raises InvalidAddress: it is not an address, or holds a user, a query or a fragment.
        """
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise InvalidAddress(self, text, str(error)) from None
        if parts.scheme not in self.ports:
            raise InvalidAddress(self, text, f"the scheme is '{parts.scheme}'")
        if "@" in parts.netloc:
            # Its text may hold a passcode, which no error shows.
            raise InvalidAddress(self, f"{parts.scheme}://...@...", "it must not hold a user name")
        if not parts.hostname:
            raise InvalidAddress(self, text, "it has no host")
        if port == 0:
            raise InvalidAddress(self, text, "port 0 is not a valid port")
        if parts.query or parts.fragment:
            raise InvalidAddress(self, text, "it must end with the virtual host")
        return Parsed(
            parts.scheme,
            parts.hostname,
            port or self.ports[parts.scheme],
            unquote(parts.path[1:]),
        )


class Parsed(NamedTuple):
    """The parts of an address.

    :param host: a name or an IP address, without brackets.
    :param port: 1 to 65535.
    :param virtual_host: "" where the address gives none.
    """

    scheme: str
    host: str
    port: int
    virtual_host: str


class InvalidAddress(ValueError):
    """A text that is not the address of a broker.

    :param text: as it was given.
    :param reason: what is wrong with it.
    """

    def __init__(self, scheme: Scheme, text: str, reason: str) -> None:
        article = "an" if scheme.protocol[0] in "AEIO" else "a"
        super().__init__(
            f"'{text}' is not the address of {article} {scheme.protocol} broker: {reason}; expected {scheme.expected}"
        )
        self.reason = reason


class InvalidOption(ValueError):
    """A property of a connection factory has an unknown name or bad value.

    :param protocol: the name of the protocol.
    :param name: the property.
    :param reason: what was expected.
    """

    def __init__(self, protocol: str, name: str, reason: str) -> None:
        article = "an" if protocol[0] in "AEIO" else "a"
        super().__init__(f"property '{name}' of {article} {protocol} connection factory: {reason}")
        self.name = name
        self.reason = reason


class ConnectionOptions:
    """The base of a protocol's options, which is a frozen dataclass.

    Each field is a property with :attr:`PREFIX` and hyphens for underscores.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        # Each protocol has these fields, with a documentation of its own.
        @property
        def ca(self) -> Path | None: ...

        @property
        def certificate(self) -> Path | None: ...

    #: The name of the protocol, for errors.
    PROTOCOL: ClassVar[str]
    #: What the names of its properties begin with.
    PREFIX: ClassVar[str]
    #: Fields that are numbers of seconds, and whole numbers.
    SECONDS: ClassVar[Collection[str]] = ()
    COUNTS: ClassVar[Collection[str]] = ()
    #: Those of both that may be 0.
    MAY_BE_ZERO: ClassVar[Collection[str]] = ()

    @classmethod
    def values_of(cls, properties: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields that these properties give.

        Those without the prefix are ignored.

        :raises InvalidOption: an unknown name, or a value out of range.
        """
        names = {
            cls.PREFIX + field.name.replace("_", "-"): field.name
            for field in fields(cls)  # type: ignore[arg-type]
        }
        values: dict[str, Any] = {}
        for name, text in properties.items():
            if name.startswith(cls.PREFIX):
                if name not in names:
                    raise cls.invalid(name, f"unknown property; expected one of {', '.join(names)}")
                values[names[name]] = cls._value(name, names[name], text.strip())
        return values

    @classmethod
    def invalid(cls, name: str, reason: str) -> InvalidOption:
        """Return the error for a property.

        :param name: with the prefix.
        """
        return InvalidOption(cls.PROTOCOL, name, reason)

    @classmethod
    def _value(cls, name: str, field: str, text: str) -> str | float | int | Path:
        if field in cls.SECONDS:
            zero = field in cls.MAY_BE_ZERO
            try:
                seconds = float(text)
            except ValueError:
                seconds = -1.0
            if not 0 <= seconds <= 86_400 or not (seconds or zero):
                lowest = "from 0" if zero else "above 0 and"
                raise cls.invalid(
                    name, f"'{text[:40]}': expected a number of seconds {lowest} up to 86400"
                )
            return seconds
        if field in cls.COUNTS:
            least = 0 if field in cls.MAY_BE_ZERO else 1
            if not text.isascii() or not text.isdecimal() or not least <= int(text) <= 0x7FFF_FFFF:
                raise cls.invalid(
                    name, f"'{text[:40]}': expected a number from {least} to 2147483647"
                )
            return int(text)
        if field in _FILES:
            if not text:
                raise cls.invalid(name, "it is empty: expected the path of a PEM file")
            return Path(text)
        return text

    @classmethod
    def client_tls(
        cls, server_name: str, ca: Path | None, certificate: Path | None, key: Path | None
    ) -> IOpenSSLClientConnectionCreator:
        """Return the options of TLS to a server of this name.

        They check the certificate chain and the host name, and show the client's certificate.

        :raises OSError: a file cannot be read.
        :raises InvalidOption: a file holds no certificate or no key.
        """
        trust = None
        own = None
        if ca is not None:
            text = ca.read_bytes()
            try:
                roots = [ssl.Certificate.loadPEM(part) for part in _certificates(text)]
                trust = ssl.trustRootFromCertificates(roots)  # type: ignore[no-untyped-call]
            except Exception as error:
                raise cls.invalid(
                    f"{cls.PREFIX}ca", f"{ca} holds no certificates: {_reason(error)}"
                ) from error
        if certificate is not None:
            text = certificate.read_bytes() + (b"" if key is None else b"\n" + key.read_bytes())
            try:
                own = ssl.PrivateCertificate.loadPEM(text)  # type: ignore[no-untyped-call]
            except Exception as error:
                reason = f"{certificate} holds no certificate with its key: {_reason(error)}"
                raise cls.invalid(f"{cls.PREFIX}certificate", reason) from error
        return ssl.optionsForClientTLS(server_name, trust, own)


def spelled_host(host: str) -> str:
    """Return a host as it stands in an address."""
    return f"[{host}]" if ":" in host else host


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
