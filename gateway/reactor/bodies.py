"""Bodies of HTTP responses that are read up to a length.

Owns how reading ends: at the end of the body, which may be that of the connection (RFC 9112, section
6.3), at the length, or when its Deferred is cancelled. Twisted's own ``readBody`` takes whatever comes.
"""

from __future__ import annotations

from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.iweb import IResponse


class BodyTooLong(Exception):
    """A body has more octets than are read."""


def read_body(response: IResponse, most: int) -> Deferred[bytes]:
    """Return the body of a response.

    Without a length in its head it may have been cut off.

    :param most: octets that it may have.
    :return: fails with :class:`BodyTooLong`, and with what ended the connection before the end of the
        body. It can be cancelled. Either closes the connection.
    """
    body = _Body(most)
    response.deliverBody(body)  # type: ignore[no-untyped-call]
    return body.whole


class _Body(Protocol):
    def __init__(self, most: int) -> None:
        self.whole: Final[Deferred[bytes]] = Deferred(lambda _: self._close())
        self._most: Final = most
        self._data = bytearray()

    def dataReceived(self, data: bytes) -> None:
        """Octets of it."""
        self._data += data
        if len(self._data) > self._most and not self.whole.called:
            self._data.clear()
            self._close()
            self.whole.errback(BodyTooLong(f"it has more than {self._most} octets"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """It has ended."""
        if self.whole.called:
            return
        if isinstance(reason.value, (ResponseDone, PotentialDataLoss)):
            self.whole.callback(bytes(self._data))
        else:
            self.whole.errback(reason)

    def _close(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()
