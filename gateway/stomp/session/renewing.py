"""A newer token in place of the one that a client logged in with.

Owns the verification that is under way; the client goes on meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from gateway.messaging.provider import Connection, Credentials
from gateway.reactor.turn import Turn
from gateway.stomp.refusals import CommandRefused
from gateway.stomp.session.receipts import Fail, Receipts, forget


class Renewing:
    """The renewals of one connection, one at a time.

    :param is_open: whether the client is still connected.
    :param fail: ends the connection, because the token is refused.
    """

    def __init__(
        self, turn: Turn, receipts: Receipts, is_open: Callable[[], bool], fail: Fail
    ) -> None:
        self._turn: Final = turn
        self._receipts: Final = receipts
        self._is_open: Callable[[], bool] = is_open
        self._fail: Fail = fail
        self._under_way: Deferred[None] | None = None

    def renew(self, connection: Connection, who: Credentials, receipt: str | None) -> None:
        """Go on with a newer token; a RECEIPT tells that it holds.

        :raises CommandRefused: another is being verified.
        """
        if self._under_way is not None:
            raise CommandRefused("a token that came before is being verified; wait for its RECEIPT")
        renewing = connection.renew(who)
        self._under_way = renewing

        def renewed(_: None) -> None:
            # Not before: what else is due meanwhile does not wait for it.
            self._under_way = None
            if self._is_open():
                with self._turn:
                    self._receipts.release(self._receipts.open(receipt))

        def failed(failure: Failure) -> None:
            assert failure.value is not None
            self._under_way = None
            self._fail(failure.value, receipt)

        renewing.addCallbacks(renewed, failed)

    def stop(self) -> None:
        """Verify no more: the client is gone, or was told why it cannot go on."""
        renewing, self._under_way = self._under_way, None
        self._fail, self._is_open = forget, _never
        if renewing is not None:
            renewing.cancel()


def _never() -> bool:
    return False
