"""What no client can bring about at will, of a broker over a disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gateway.admin.why.cause import Cause, CauseKind
from gateway.admin.why.destinations import queue_causes
from gateway.admin.why.facts import Facts
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.store.interface import StoreDamaged
from gateway.messaging.dead import DMQ, DeadReason
from gateway.messaging.destination import Queue
from gateway.messaging.message import Message
from gateway.messaging.provider import Mode
from gateway.messaging.redelivery import RedeliveryChanges
from tests.gateway.broker.administration import administration
from tests.gateway.broker.stepped_broker import Stepped, texts
from tests.why.scenes import parsed

Q = Queue("q")


def filled(stepped: Stepped, bodies: Sequence[object]) -> PhysicalQueue:
    stepped.send(texts(Q, bodies))
    stepped.run_until_idle()
    queue = stepped.broker.find(Q)
    assert isinstance(queue, PhysicalQueue)
    return queue


def cause(
    stepped: Stepped, queue: PhysicalQueue, kind: CauseKind, sample: Sequence[Message] = ()
) -> Cause:
    """The cause of that kind which the queue has now."""
    facts = Facts(stepped.now_ms, dict(stepped.provider.connections), stomp="STARTED")
    found: list[Cause] = []
    for _ in queue_causes(stepped.broker, queue, facts, 0, sample, found):
        pass
    [of_kind] = [each for each in found if each.kind is kind]
    if of_kind.command:
        parsed(of_kind.command)
    return of_kind


def test_what_has_expired_is_told_before_it_is_found(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    queue = filled(stepped, range(3))
    sample = texts(Q, ["a", "b", "c"])
    for message in sample[:2]:
        message.expires = stepped.now_ms
    sample[2].expires = stepped.now_ms + 1
    found = cause(stepped, queue, CauseKind.EXPIRED, sample)
    assert found.figures == {"expired": 2, "looked_at": 3}
    assert "dead within 60 seconds" in found.sentence


def test_a_message_of_it_is_damaged_in_the_store(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    queue = filled(stepped, range(3))
    seq, row = next(iter(stepped.disk.rows.items()))
    assert stepped.store.on_damaged is not None
    stepped.store.on_damaged(
        StoreDamaged(
            "the disk",
            f"message {seq}",
            "its checksum is wrong",
            seq=seq,
            destination=row.destination,
        )
    )
    found = cause(stepped, queue, CauseKind.DESTINATION_DAMAGED)
    assert found.figures == {"messages": 3}
    assert "Queue 'q' is stopped: a message of it in the store is damaged" in found.sentence
    assert found.command == "imqcmd destroy dst -t q -n q"


def test_an_administrator_removes_it(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    queue = filled(stepped, range(3))
    going = administration(stepped).destroy("queue", "q", use_dmq=True)
    found = cause(stepped, queue, CauseKind.DESTINATION_GOING)
    assert found.figures == {"messages": 3}
    assert "An administrator is removing queue 'q': 3 messages are left of it" in found.sentence
    stepped.run_until_idle()
    assert going.called
    assert stepped.broker.find(Q) is None


def test_what_is_not_acknowledged_fills_the_memory(tmp_path: Path) -> None:
    memory = Memory()
    memory.octets_left = lambda: 100_000 - memory.unacknowledged
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0), memory)
    queue = filled(stepped, ["x" * 30_000] * 5)
    inbox = stepped.consume(stepped.session(), Q, octets=30_000)
    while True:
        before = len(inbox.messages)
        inbox.consumer.grant(0, 30_000)
        stepped.run_until_idle()
        if len(inbox.messages) == before:
            break
    found = cause(stepped, queue, CauseKind.UNACKNOWLEDGED_MEMORY)
    held = len(inbox.messages)
    assert 0 < held < 5
    assert found.figures["unacknowledged"] == held
    assert found.figures["waiting"] == 5 - held
    assert int(found.figures["octets"]) >= held * 30_000
    assert "(imq.memory.unacknowledged)" in found.sentence
    # Where it acknowledges, it gets the rest.
    inbox.consumer.acknowledge_through(inbox.numbers[-1])
    stepped.later(0.1)
    assert len(inbox.messages) > held


def test_selectors_have_used_their_time(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    queue = filled(stepped, range(3))
    inbox = stepped.consume(stepped.session(), Q, selector="colour = 'red'")
    with stepped.turn:
        queue.dispatch.hold_up(queue)
    found = cause(stepped, queue, CauseKind.SELECTOR_TIME)
    assert found.figures == {"waiting": 3}
    assert "it goes on by itself" in found.sentence
    stepped.run_until_idle()
    assert not queue.dispatch.held_up
    assert not inbox.messages


def test_what_its_consumers_want_dropped_is_not_said_to_be_kept(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    session = stepped.session(Mode.INDIVIDUAL)
    changes = RedeliveryChanges(keeps_unstored=False)
    inbox = stepped.consume(session, Q, redelivery=changes)
    stepped.send([*texts(Q, ["lost"], persistent=False), *texts(Q, ["kept"])])
    stepped.reject(inbox, inbox.numbers, dead=DeadReason.UNDELIVERABLE)
    queue = stepped.broker.find(Q)
    assert isinstance(queue, PhysicalQueue)
    found = cause(stepped, queue, CauseKind.DEAD)
    assert found.figures == {"dead": 2}
    assert "they are in mq.sys.dmq, except 1 message that clients" in found.sentence
    assert stepped.receive(stepped.session(), DMQ).texts == ["kept"]


def test_why_what_was_dropped_died(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    session = stepped.session(Mode.INDIVIDUAL)
    changes = RedeliveryChanges(keeps_unstored=False)
    inbox = stepped.consume(session, Q, redelivery=changes)
    stepped.send(texts(Q, ["lost"], persistent=False))
    stepped.reject(inbox, inbox.numbers, dead=DeadReason.UNDELIVERABLE)
    queue = stepped.broker.find(Q)
    assert queue is not None
    assert queue.last_death == "refused by its consumer once, and not persistent"
    assert (queue.dropped, queue.count) == (1, 0)
