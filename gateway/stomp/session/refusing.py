"""The ERROR frames of one connection.

Owns their numbers, and after which of them the connection goes on.
"""

from __future__ import annotations

from typing import Final

from gateway.messaging.errors import MessagingError
from gateway.stomp.connection_log import ConnectionLog
from gateway.stomp.counters import Counters
from gateway.stomp.error_frames import describe, error_frame
from gateway.stomp.profiles import Profile, survives
from gateway.stomp.session.receipts import Receipts, Ticket, forget
from gateway.stomp.wire import Version


class Refusing:
    """Answers what a client must not or cannot do.

    :param identifier: the session's.
    :param receipts: the line that ERRORs stand in, behind what is due before them.
    """

    def __init__(
        self,
        identifier: str,
        receipts: Receipts,
        log: ConnectionLog,
        counters: Counters,
        profile: Profile,
    ) -> None:
        self._identifier: Final = identifier
        self._receipts: Final = receipts
        self._log: Final = log
        self._counters: Final = counters
        self._profile: Final = profile
        #: ERRORs that the connection has survived.
        self._survived = 0

    def survives(self, error: BaseException, version: Version) -> bool:
        """Whether the connection goes on after an error.

        The frame that failed has changed nothing.
        """
        return survives(self._profile, error, version)

    def frame(
        self, error: BaseException, version: Version, receipt: str | None
    ) -> tuple[str, bytes]:
        """Return what the client is told of an error, and the frame. Counts it.

        :param receipt: the ``receipt`` header of the frame that failed.
        """
        self._counters.errors += 1
        incident = f"{self._identifier}-{self._survived + 1}"
        text, _ = describe(error, incident)
        return text, error_frame(error, version, receipt, incident, self._profile.wording)

    def answer(
        self,
        error: BaseException,
        version: Version,
        receipt: str | None,
        ticket: Ticket | None = None,
    ) -> None:
        """Send an ERROR after which the connection goes on.

        :param ticket: in whose place; None for one behind all others.
        """
        text, octets = self.frame(error, version, receipt)
        self._survived += 1
        self._log.refused(error, with_withheld(error, text))
        self._receipts.replace(ticket or self._receipts.open(None), octets)
        forget(error, receipt)


def with_withheld(error: BaseException, text: str) -> str:
    """Return what the log says of an error.

    :param text: what the client is told.
    """
    withheld = error.withheld if isinstance(error, MessagingError) else ""
    return f"{text}: {withheld}" if withheld else text
