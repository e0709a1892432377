"""A session of the embedded broker whose work belongs to XA branches
(``messaging.provider.XASession``).

Owns nothing but the words: sending, receiving and order are those of a transacted session, and the
calls of XA its resource's. The session is composed, not derived, because it is compiled where it
can be.

Deliveries may be made between branches; they are acknowledged in the branch that is associated
then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gateway.broker.xa.resource import EmbeddedXAResource
from gateway.messaging.errors import MessagingError, NotSupported
from gateway.messaging.message import Message
from gateway.messaging.provider import Deliver, Done, Subscription, XAResource

if TYPE_CHECKING:
    from gateway.broker.sessions.consumer import EmbeddedConsumer
    from gateway.broker.sessions.session import EmbeddedSession


class EmbeddedXASession:
    """One XA session. Made by its connection.

    :param session: of mode TRANSACTED, nobody else's.
    """

    def __init__(self, session: EmbeddedSession) -> None:
        self._session = session
        self._resource = EmbeddedXAResource(session)

    def resource(self) -> XAResource:
        return self._resource

    def send(self, messages: Sequence[Message]) -> None:
        """As ``Session.send``. :raises NotSupported: outside of a branch. :raises XAError: the
        branch can only be rolled back.
        """
        self._session.send(messages)

    def writable(self) -> bool:
        return self._session.writable()

    def on_writable(self, resume: Callable[[], None]) -> None:
        self._session.on_writable(resume)

    def consumer(
        self, spec: Subscription, deliver: Deliver, failed: Callable[[MessagingError], None]
    ) -> EmbeddedConsumer:
        return self._session.consumer(spec, deliver, failed)

    def completion(self, done: Done) -> None:
        self._session.completion(done)

    def commit(self, done: Done) -> None:
        """:raises NotSupported: always; the resource does it (JTA 1.1, section 3.2.3)."""
        raise NotSupported("commit of an XA session, whose resource commits branches")

    def rollback(self, done: Done) -> None:
        """:raises NotSupported: always; the resource does it."""
        raise NotSupported("rollback of an XA session, whose resource rolls branches back")

    def recover(self) -> None:
        """As ``Session.recover``; what was acknowledged in branches stays theirs."""
        self._session.check_open()
        self._session.return_outstanding()

    def close(self) -> None:
        """As ``Session.close``; branches that it took part in and that are not prepared are rolled
        back.
        """
        self._session.close()
