"""Duplicate ids as tests send and look for them."""

from __future__ import annotations

from typing import Any

from gateway.messaging.destination import Destination, Queue
from gateway.messaging.message import Message
from gateway.messaging.provider import DUPLICATE_ID, Session
from tests.gateway.broker.brokers import text
from tests.gateway.broker.stepped_broker import Stepped, Told

Q = Queue("q")


def bearing(
    id: str, body: str | None = None, destination: Destination = Q, **headers: Any
) -> Message:
    """A message with a duplicate id; its body is the id unless one is given."""
    return text(destination, id if body is None else body, properties={DUPLICATE_ID: id}, **headers)


def told(session: Session) -> Told:
    made = Told()
    session.completion(made)
    return made


def committed(session: Session) -> Told:
    made = Told()
    session.commit(made)
    return made


def rest(stepped: Stepped, destination: Destination = Q) -> list[str]:
    """What waits there, taken."""
    session = stepped.session()
    inbox = stepped.consume(session, destination)
    stepped.run_until_idle()
    bodies = inbox.texts
    if inbox.numbers:
        inbox.consumer.acknowledge_through(inbox.numbers[-1])
    session.close()
    stepped.run_until_idle()
    return bodies
