"""Refusing many messages at once: no turn is long, and each of them is dead once."""

from __future__ import annotations

from gateway.broker.durability.rows import BLOCK
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Queue
from gateway.messaging.provider import Session
from tests.gateway.broker.stepped_broker import Stepped, texts

Q = Queue("q")
DMQ = Queue("mq.sys.dmq")
COUNT = 4 * BLOCK


def test_many_refused_for_good_are_buried_in_slices(stepped: Stepped, individual: Session) -> None:
    stepped.send(texts(Q, range(COUNT)), individual)
    inbox = stepped.receive(individual, Q, credit=COUNT)
    assert len(inbox.numbers) == COUNT
    inbox.consumer.reject(inbox.numbers, dead=DeadReason.UNDELIVERABLE)
    assert stepped.broker.queue(DMQ).count == BLOCK
    assert stepped.broker.queue(Q).count == COUNT - BLOCK, "what is not buried yet still counts"
    stepped.run_until_idle()
    assert stepped.broker.queue(Q).count == 0
    dead = stepped.receive(individual, DMQ, credit=COUNT + 1)
    assert [int(body) for body in dead.texts] == list(range(COUNT))
