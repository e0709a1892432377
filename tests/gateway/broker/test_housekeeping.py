"""Destinations that nobody uses any more: how many go in a turn, and that their memory is free
then.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.broker.core.delivery.dispatch import Dispatch
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.housekeeping import SWEPT
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.provider import Mode
from tests.gateway.broker.brokers import Inbox
from tests.gateway.broker.stepped_broker import SlowClock, Stepped, in_each_pass, texts

REAP_S = 10


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    return Stepped(tmp_path, BrokerOptions(reap_time=REAP_S), clock=SlowClock())


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """The generations that were collected, while Python does not do that by itself."""
    found: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(info["generation"])

    gc.collect()
    # What the tests before have left need not be looked at each time.
    gc.freeze()
    gc.disable()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.enable()


def living() -> dict[type, int]:
    """How many there are of each kind; compiled objects take no weak references."""
    kinds = [type(each) for each in gc.get_objects()]
    return {
        kind: kinds.count(kind)
        for kind in (PhysicalQueue, PhysicalTopic, TopicSubscription, Dispatch, Inbox)
    }


@pytest.mark.parametrize("kind", [Kind.QUEUE, Kind.TOPIC])
def test_many_destinations_go_a_few_in_each_turn(stepped: Stepped, kind: Kind) -> None:
    for number in range(300):
        stepped.consume(stepped.session(), Destination(kind, f"d{number}")).consumer.close()
    stepped.run_until_idle()
    assert len(stepped.broker.destinations) == 300
    assert isinstance(stepped.clock, SlowClock)
    # Two looks at the clock are all that a turn has time for.
    stepped.clock.tick = 0.0025
    gone = in_each_pass(stepped, REAP_S + 1, lambda: 300 - len(stepped.broker.destinations))
    assert sum(gone) == 300
    assert max(gone) <= 5, "others had to wait for many"


@pytest.mark.parametrize("destination", [Queue("q"), Topic("t"), Topic("t.*")], ids=str)
@pytest.mark.parametrize("spec", [{}, {"selector": "colour = 'red'"}], ids=["plain", "selector"])
def test_what_went_is_freed_without_a_garbage_collection(
    stepped: Stepped, collections: list[int], destination: Destination, spec: dict[str, Any]
) -> None:
    name = Destination(destination.kind, destination.name.replace("*", "a"))
    before = living()
    connection = stepped.connect()
    session = connection.session(Mode.INDIVIDUAL)
    # As clients of the seam do, it refers to its consumer, and its consumer to it.
    inbox = stepped.consume(session, destination, **spec)
    stepped.send(texts(name, range(3)), session)
    assert living()[Inbox] == before[Inbox] + 1
    for number in range(len(inbox.messages)):
        inbox.consumer.acknowledge([number + 1])
    inbox.consumer.close()
    del inbox
    session.close()
    if spec:
        # What was not wanted.
        stepped.broker.remove(stepped.broker.create(name))
    connection.close()
    del session, connection
    stepped.later(REAP_S + 1)
    stepped.later(REAP_S + 1)
    assert stepped.broker.find(name) is None
    assert living() == before
    assert collections == []


def test_no_collection_holds_others_up_when_thousands_go(
    stepped: Stepped, collections: list[int]
) -> None:
    for number in range(4100):
        stepped.broker.create(Topic(f"t{number}"))
    stepped.later(REAP_S + 1)
    stepped.later(0.1)
    assert not stepped.broker.destinations
    assert collections == []


def test_a_sweep_for_expired_messages_looks_at_a_few_queues_in_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped = Stepped(tmp_path, BrokerOptions(reap_time=0, expiration_interval=30))
    swept: list[int] = []
    monkeypatch.setattr(PhysicalQueue, "sweep", lambda queue, now_ms: swept.append(now_ms))
    for number in range(3 * SWEPT):
        stepped.broker.queue(Queue(f"q{number}"))
    rises = in_each_pass(stepped, 30, lambda: len(swept))
    assert (sum(rises), max(rises)) == (3 * SWEPT, SWEPT)
    stepped.later(31)
    assert len(swept) == 6 * SWEPT, "it is not done again"
