"""XA over a stepped broker: branches begun, ended and asked about, one call after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import XAError
from gateway.messaging.provider import Flags, Vote, XAResource, XASession, Xid
from tests.gateway.broker.administration import outcome
from tests.gateway.broker.brokers import Inbox
from tests.gateway.broker.stepped_broker import Stepped, texts

Q, OTHER, TOPIC = Queue("q"), Queue("other"), Topic("t")
#: Both hold three messages; one refuses more, the other holds senders back.
SMALL, BLOCKING = Queue("small"), Queue("blocking")

RBROLLBACK, RBTIMEOUT = 100, 106
NOTA, INVAL, PROTO, RMFAIL, DUPID = -4, -5, -6, -7, -8


def branched(folder: Path) -> Stepped:
    """A broker whose transactions may send 10 messages and acknowledge 20, and whose branches time
    out after 100 seconds.
    """
    options = BrokerOptions(
        reap_time=0,
        transaction_messages=10,
        transaction_acknowledgements=20,
        xa_timeout=100,
        destinations=(
            (
                SMALL,
                DestinationProperties(max_num_msgs=3, limit_behavior=LimitBehavior.REJECT_NEWEST),
            ),
            (
                BLOCKING,
                DestinationProperties(max_num_msgs=3, limit_behavior=LimitBehavior.FLOW_CONTROL),
            ),
        ),
    )
    return Stepped(folder, options)


def fill(stepped: Stepped, count: int, destination: Destination = Q) -> None:
    """Send ``0``, ``1``, ... outside of branches."""
    session = stepped.session()
    session.send(texts(destination, range(count)))
    stepped.run_until_idle()
    session.close()


class Branching:
    """A session of a connection of its own, and its resource.

    :param stepped: whose clock and disk go on until a call has its answer.
    """

    def __init__(self, stepped: Stepped, client_id: str | None = None) -> None:
        self.stepped = stepped
        self.connection = stepped.connect(client_id)
        self.session: XASession = self.connection.xa_session()
        self.resource: XAResource = self.session.resource()

    def start(self, xid: Xid, flags: Flags = Flags.NOFLAGS) -> None:
        outcome(self.stepped, self.resource.start(xid, flags))

    def end(self, xid: Xid, flags: Flags = Flags.SUCCESS) -> None:
        outcome(self.stepped, self.resource.end(xid, flags))

    def prepare(self, xid: Xid) -> Vote:
        return outcome(self.stepped, self.resource.prepare(xid))

    def commit(self, xid: Xid, one_phase: bool = False) -> None:
        outcome(self.stepped, self.resource.commit(xid, one_phase))

    def rollback(self, xid: Xid) -> None:
        outcome(self.stepped, self.resource.rollback(xid))

    def forget(self, xid: Xid) -> None:
        outcome(self.stepped, self.resource.forget(xid))

    def recover(self) -> Sequence[Xid]:
        return outcome(self.stepped, self.resource.recover())

    # --- more than one call

    def sends(
        self, xid: Xid, destination: Destination, bodies: Sequence[object], **headers: Any
    ) -> None:
        """Send in a new branch, and end the association."""
        self.start(xid)
        self.session.send(texts(destination, bodies, **headers))
        self.end(xid)

    def consume(self, destination: Destination, **spec: Any) -> Inbox:
        """A consumer of the XA session."""
        return self.stepped.consume(self.session, destination, **spec)

    def prepares(
        self, xid: Xid, destination: Destination, bodies: Sequence[object], **headers: Any
    ) -> None:
        """Send in a new branch, and prepare it."""
        self.sends(xid, destination, bodies, **headers)
        assert self.prepare(xid) is Vote.OK

    def takes(self, xid: Xid, inbox: Inbox, number: int) -> None:
        """Acknowledge through this delivery in a new branch."""
        self.start(xid)
        self.stepped.run_until_idle()
        inbox.consumer.acknowledge_through(number)

    def acknowledges(self, xid: Xid, inbox: Inbox, number: int = 0) -> None:
        """Acknowledge in a new branch, and end the association.

        :param number: through this delivery; 0 is the last.
        """
        self.start(xid)
        self.stepped.run_until_idle()
        inbox.consumer.acknowledge_through(number or inbox.numbers[-1])
        self.end(xid)

    def end_and_prepare(self, xid: Xid) -> None:
        """End the association, and prepare the branch, which has work."""
        self.end(xid)
        assert self.prepare(xid) is Vote.OK

    def end_and_commit(self, xid: Xid) -> None:
        """End the association, and commit in one phase."""
        self.end(xid)
        self.commit(xid, one_phase=True)


def xid(number: int) -> Xid:
    return Xid(0x5354, b"global %d" % number, b"branch")


def code(stepped: Stepped, ask: Callable[[], Deferred[Any]]) -> int:
    """X/Open's code that a call fails with."""
    with pytest.raises(XAError) as caught:
        outcome(stepped, ask())
    return caught.value.code


def waiting(stepped: Stepped, destination: Destination) -> list[str]:
    """What a plain consumer is given now; it is given back."""
    session = stepped.session()
    inbox = stepped.consume(session, destination)
    stepped.run_until_idle()
    found = inbox.texts
    session.close()
    stepped.run_until_idle()
    return found
