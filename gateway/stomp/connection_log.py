"""The log of one connection: who is CONNECTED, and how it ended.

FINE adds the requests that are not about messages.

Owns the sentences and their levels. A connection that goes well has two lines at INFO, each
formatted once, whatever it does between. The address comes before all that a client chooses, so
that no client can write another's into its line.
"""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger, LogLevel

from gateway.instance.logs import Log, Strangers
from gateway.messaging.errors import AccessDenied, AuthenticationFailed
from gateway.stomp.refusals import CertificateRevoked, FrameTooSlow, MemoryShort, TooManyConnections
from gateway.stomp.wire import Head, Version

_log: Final = Logger(namespace="gateway.stomp.connection")

#: Characters of what a client chooses, and of a frame's headers, that are in a line.
_LONGEST: Final = 100
_LONGEST_HEADERS: Final = 500

#: Refusals that an operator looks for: somebody was not let in, or is let in no longer; or took
#: more than there is.
_WARNINGS: Final = (
    AuthenticationFailed,
    CertificateRevoked,
    FrameTooSlow,
    MemoryShort,
    TooManyConnections,
)

#: How a connection ended.
CLOSED_BY_CLIENT: Final = "the client has closed the connection without DISCONNECT"
#: ERRORs of one connection that the log has each of.
_FIRST: Final = 16


class ConnectionLog:
    """The lines of one connection.

    :param session: its identifier.
    :param host: the client's address.
    :param port: the client's port, 0 where it has no port.
    :param detail: the log that these lines come to, which says whether FINE is read; None for
        everything.
    :param strangers: limits the lines of clients that were never CONNECTED; None does not.
    """

    __slots__ = (
        "_connected",
        "_detail",
        "_dropped",
        "_host",
        "_over",
        "_refused",
        "_strangers",
        "session",
        "transport",
        "user",
        "where",
    )

    def __init__(
        self,
        session: str,
        host: str,
        port: int,
        detail: Log | None = None,
        strangers: Strangers | None = None,
    ) -> None:
        self.session: Final = session
        self.where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._host = host
        self._detail: Final = detail
        self._strangers: Final = strangers
        #: Below STOMP: "TCP", or TLS with its version and the client's certificate.
        self.transport = "TCP"
        #: As who the client is connected, or has tried to be; empty before CONNECT.
        self.user = ""
        self._connected = False
        self._over = False
        self._dropped = False
        self._refused = 0

    def come_from(self, host: str) -> None:
        """A proxy says whose connection it is."""
        self.where = f"{host} by {self.where}"
        self._host = host

    @property
    def fine(self) -> bool:
        """Whether :meth:`asked` has a reader."""
        return self._detail is None or self._detail.fine

    def connected(self, version: Version, client_id: str | None) -> None:
        """The client is CONNECTED."""
        self._connected = True
        known = "" if client_id is None else f", client-id {quoted(client_id)}"
        self._write(
            LogLevel.info,
            f"is CONNECTED: STOMP {version} over {self.transport}{known}",
            "connection.opened",
        )

    def asked(self, head: Head) -> None:
        """The client sent a legal frame other than a message."""
        headers = " ".join([f"{name}:{value}" for name, value in head.headers.items()])
        if len(headers) > _LONGEST_HEADERS:
            headers = f"{headers[:_LONGEST_HEADERS]}..."
        self._write(LogLevel.debug, f"asks {head.command} {headers}")

    def failed(self, error: BaseException, text: str) -> None:
        """The connection ends with an ERROR.

        :param text: what the client is told, and behind it what is withheld from it. The store's
            failure has a line of its own at SEVERE.
        """
        if not self._over:
            self._over = True
            refused = isinstance(error, _WARNINGS) or (
                isinstance(error, AccessDenied) and not self._connected
            )
            level = LogLevel.warn if refused else LogLevel.info
            if self._connected or self._may_log(_kind(error), level):
                self._write(
                    level,
                    f"ends with ERROR: {text}",
                    self._end,
                )

    def refused(self, error: BaseException, text: str) -> None:
        """A frame was answered with an ERROR, and the connection goes on.

        :param text: as of :meth:`failed`.
        """
        self._refused += 1
        # Each of the first, then one for each power of two.
        if self._refused <= _FIRST or not self._refused & (self._refused - 1):
            level = LogLevel.warn if isinstance(error, AccessDenied) else LogLevel.info
            times = "" if self._refused <= _FIRST else f", the {self._refused}th"
            self._write(level, f"goes on after an ERROR{times}: {text}")

    def ended(self, how: str) -> None:
        """The connection has ended without an ERROR.

        Only FINE tells of one that asked for nothing, such as a probe's.
        """
        if not self._over:
            self._over = True
            if self._connected or self.user:
                self._write(
                    LogLevel.info,
                    f"ends: {how}",
                    self._end,
                )
            elif self.fine:
                self._write(LogLevel.debug, f"ends before CONNECT: {how}")

    def dropped(self, reason: str) -> None:
        """It is closed without a word, or over those that it did not read."""
        if not self._dropped:
            self._over = self._dropped = True
            self._write(LogLevel.warn, f"is dropped: {reason}", "connection.closed")

    def mismatched(self, what: str) -> None:
        """Client and port do not speak the same, TLS or not."""
        self._over = True
        if self._may_log(
            "connections of TLS clients to the plain port, or the other way round", LogLevel.warn
        ):
            _log.warn(
                "{line}",
                line=f"connection from {self.where} is refused: {what}",
                event="connection.refused",
            )

    def handshake_failed(self, reason: str, certificate: bool) -> None:
        """It did not come to TLS.

        :param certificate: it was the client's certificate that was refused, or missing.
        """
        if not self._over:
            self._over = True
            level = LogLevel.warn if certificate else LogLevel.info
            if self._may_log("connections refused in the TLS handshake", level):
                _log.emit(
                    level,
                    "{line}",
                    line=f"connection from {self.where} is refused in the TLS handshake: {reason}",
                    event="connection.refused",
                )

    @property
    def _end(self) -> str:
        """The kind of event that its end is."""
        return "connection.closed" if self._connected else "connection.refused"

    def _may_log(self, kind: str, level: LogLevel) -> bool:
        return self._strangers is None or self._strangers.may_log(kind, level, self._host)

    def _write(self, level: LogLevel, what: str, event: str = "") -> None:
        """:param event: the kind of what happens, for those who follow it."""
        user = f" of user {quoted(self.user)}" if self.user else ""
        line = f"{self.session} at {self.where}{user} {what}"
        if event:
            _log.emit(level, "{line}", line=line, event=event)
        else:
            _log.emit(level, "{line}", line=line)


def _kind(error: BaseException) -> str:
    """Name what became of clients that were never CONNECTED.

    The number of lines that were left out is logged under this name.
    """
    if isinstance(error, (AuthenticationFailed, AccessDenied)):
        return "refused logins"
    if isinstance(error, TooManyConnections):
        return "connections beyond a limit"
    return "connections that ended with an ERROR before they were CONNECTED"


def quoted(text: str) -> str:
    """What a client has chosen, in quotes that it cannot end."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]}..."
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
