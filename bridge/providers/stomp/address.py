"""Where a STOMP broker is: the ``lookup-name`` of a connection factory.

Owns the form ``stomp://HOST:PORT`` and ``stomp+tls://HOST:PORT``, each with an optional ``/VHOST``
behind it. Knows nothing of certificates, sockets or what the broker can do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

PLAIN: Final = "stomp"
TLS: Final = "stomp+tls"
#: The ports that ActiveMQ, RabbitMQ and Artemis use, where the name gives none.
PORTS: Final = {PLAIN: 61613, TLS: 61614}


class InvalidAddress(ValueError):
    """The text is no address of a STOMP broker.

    :param text: as it was given. :param reason: what is wrong with it.
    """

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(
            f"'{text}' is no address of a STOMP broker: {reason}; expected stomp://HOST:PORT or stomp+tls://HOST:PORT"
        )
        self.text = text
        self.reason = reason


@dataclass(frozen=True, slots=True)
class StompAddress:
    """A broker's address.

    :param host: a name or an IP address, without brackets. :param port: 1 to 65535. :param tls: TLS
        from the first octet.
    :param virtual_host: the ``host`` header of CONNECT. It is ``/`` where the address gives none:
        RabbitMQ's default, and all one to others.
    """

    host: str
    port: int
    tls: bool = False
    virtual_host: str = "/"

    @classmethod
    def parse(cls, text: str) -> StompAddress:
        """The address that a ``lookup-name`` means.

        :raises InvalidAddress: it is none, or holds a user, a query or a fragment; who connects is
            not the address's to say.
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
            raise InvalidAddress(f"{parts.scheme}://...@...", "a user name does not belong there")
        if not parts.hostname:
            raise InvalidAddress(text, "there is no host")
        if port == 0:
            raise InvalidAddress(text, "port 0 is none")
        if parts.query or parts.fragment:
            raise InvalidAddress(text, "nothing may follow the virtual host")
        return cls(
            parts.hostname,
            port or PORTS[parts.scheme],
            parts.scheme == TLS,
            unquote(parts.path[1:]) or "/",
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{TLS if self.tls else PLAIN}://{host}:{self.port}"
