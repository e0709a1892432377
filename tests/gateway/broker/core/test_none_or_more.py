"""Subscriptions whose wildcard ``a.>`` covers ``a``, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor

from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.properties.pause import Pause
from gateway.broker.security.access import DEFAULT_RULES
from gateway.broker.store.interface import Store
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import AccessDenied, DurableInUse, InvalidDestination
from gateway.messaging.message import Message
from gateway.messaging.provider import ConsumerSpec, Mode, Session
from tests.gateway.broker.administration import outcome
from tests.gateway.broker.brokers import Deployment, Inbox, completed, text
from tests.gateway.broker.stepped_broker import Stepped
from tests.gateway.broker.store.databases import create_tables, database_at, postgresql_store

BELOW = Topic("a.>")
NAMES = ("a", "a.b", "a.b.c", "ab", "b")


def durable(stepped: Stepped, none_or_more: bool, pattern: Destination = BELOW) -> Inbox:
    """Subscribe as the durable subscriber."""
    session = stepped.connect("client").session(Mode.AUTO)
    return stepped.receive(session, pattern, durable_name="d", none_or_more=none_or_more)


def leave(stepped: Stepped, inbox: Inbox) -> None:
    inbox.consumer.close()
    stepped.run_until_idle()
    for connection in list(stepped.provider.connections):
        if connection.client_id == "client":
            connection.close()
    stepped.run_until_idle()


def to_each(kind: type[Any] | Any, *names: str) -> list[Message]:
    """A message to each, whose text is its destination's name."""
    return [text(kind(name), name) for name in names]


# --- what it receives


@pytest.mark.parametrize("kind", [Topic, Queue])
@pytest.mark.parametrize("none_or_more", [True, False])
def test_it_covers_the_name_before_it(stepped: Stepped, kind: Any, none_or_more: bool) -> None:
    inbox = stepped.receive(stepped.session(Mode.AUTO), kind("a.>"), none_or_more=none_or_more)
    stepped.send_each(to_each(kind, *NAMES))
    assert inbox.texts == (["a"] if none_or_more else []) + ["a.b", "a.b.c"]


@pytest.mark.parametrize("kind", [Topic, Queue])
def test_it_covers_what_was_there_before(stepped: Stepped, kind: Any) -> None:
    stepped.receive(stepped.session(Mode.AUTO), Topic("a"))
    stepped.send_each(to_each(kind, "a"))
    inbox = stepped.receive(stepped.session(Mode.AUTO), kind("a.>"), none_or_more=True)
    stepped.send_each(to_each(kind, "a"))
    assert inbox.texts == ["a"] * (2 if kind is Queue else 1)


@pytest.mark.parametrize("kind", [Topic, Queue])
def test_levels_may_be_between(stepped: Stepped, kind: Any) -> None:
    inbox = stepped.receive(stepped.session(Mode.AUTO), kind("a.>.b"), none_or_more=True)
    stepped.send_each(to_each(kind, "a.b", "a.x.b", "a.x.y.b", "a", "a.b.x", "b"))
    assert inbox.texts == ["a.b", "a.x.b", "a.x.y.b"]


def test_else_the_wildcard_of_queues_is_the_last_level(session: Session) -> None:
    with pytest.raises(InvalidDestination, match="> stands for the rest"):
        session.consumer(ConsumerSpec(Queue("a.>.b")), Inbox().deliver, print)


# --- who may


RULES = """
queue.a.consume.deny.user=guest
topic.a.consume.deny.user=guest
"""


@pytest.mark.parametrize("kind", [Topic, Queue])
def test_who_may_not_consume_the_name_before_it_does_not_get_it(tmp_path: Path, kind: Any) -> None:
    stepped = Stepped(tmp_path, rules=RULES)
    inbox = stepped.receive(stepped.session(Mode.AUTO), kind("a.>"), none_or_more=True)
    stepped.send_each(to_each(kind, "a", "a.b"))
    assert inbox.texts == ["a.b"]


def test_who_may_consume_that_queue_alone_may_subscribe(tmp_path: Path) -> None:
    stepped = Stepped(tmp_path)
    stepped.access.path.write_text(
        DEFAULT_RULES.replace("queue.*.consume.allow.user=*", "queue.a.consume.allow.user=*")
    )
    stepped.access.load()
    inbox = stepped.receive(stepped.session(Mode.AUTO), Queue("a.>"), none_or_more=True)
    stepped.send_each(to_each(Queue, "a", "a.b"))
    assert inbox.texts == ["a"]
    with pytest.raises(AccessDenied):
        stepped.receive(stepped.session(Mode.AUTO), Queue("a.>"))


# --- durable subscriptions


def test_a_durable_subscription_keeps_it_over_restarts(stepped: Stepped) -> None:
    leave(stepped, durable(stepped, none_or_more=True))
    for round in ("first", "second"):
        stepped.restart()
        stepped.send_each([text(Topic(name), f"{round} {name}") for name in ("a", "a.b")])
    assert durable(stepped, none_or_more=True).texts == [
        f"{round} {name}" for round in ("first", "second") for name in ("a", "a.b")
    ]


def test_two_durable_subscriptions_to_one_text_may_differ(stepped: Stepped) -> None:
    for client, none_or_more in (("wide", True), ("narrow", False), ("also wide", True)):
        session = stepped.connect(client).session(Mode.AUTO)
        stepped.receive(session, BELOW, durable_name="d", none_or_more=none_or_more)
    stepped.restart()
    connection = stepped.connect("wide")
    connection.unsubscribe("d")
    stepped.run_until_idle()
    stepped.restart()
    stepped.send_each(to_each(Topic, "a", "a.b"))
    found = {}
    for client, none_or_more in (("narrow", False), ("also wide", True)):
        session = stepped.connect(client).session(Mode.AUTO)
        inbox = stepped.receive(session, BELOW, durable_name="d", none_or_more=none_or_more)
        found[client] = inbox.texts
    assert found == {"narrow": ["a.b"], "also wide": ["a", "a.b"]}


def test_one_of_an_earlier_version_covers_more_and_loses_nothing(stepped: Stepped) -> None:
    """Then clients of ActiveMQ had the narrower one."""
    leave(stepped, durable(stepped, none_or_more=False))
    stepped.send_each(to_each(Topic, "a", "a.b"))
    wide = durable(stepped, none_or_more=True)
    assert wide.texts == ["a.b"]
    stepped.send_each(to_each(Topic, "a"))
    assert wide.texts == ["a.b", "a"]
    leave(stepped, wide)
    stepped.restart()
    stepped.send_each(to_each(Topic, "a"))
    assert durable(stepped, none_or_more=True).texts == ["a"]
    assert [row.name for row in stepped.disk.destinations.values()].count("a.>") == 1


def test_a_topic_that_is_paused_stays_so_for_what_covers_more(
    stepped: Stepped, admin: BrokerAdministration
) -> None:
    leave(stepped, durable(stepped, none_or_more=False))
    outcome(stepped, admin.create("topic", "a", {}))
    topic = stepped.broker.topic(Topic("a"))
    stepped.broker.pauses.set(topic, Pause.CONSUMERS)
    inbox = durable(stepped, none_or_more=True)
    stepped.send_each(to_each(Topic, "a", "a.b"))
    assert inbox.texts == ["a.b"]
    stepped.broker.pauses.set(topic, Pause.NONE)
    stepped.run_until_idle()
    assert inbox.texts == ["a.b", "a"]


def test_what_covers_less_is_another_subscription(stepped: Stepped) -> None:
    leave(stepped, durable(stepped, none_or_more=True))
    stepped.send_each(to_each(Topic, "a", "a.b"))
    inbox = durable(stepped, none_or_more=False)
    assert inbox.texts == [], "as where it is asked for with another topic"
    stepped.send_each(to_each(Topic, "a", "a.b"))
    assert inbox.texts == ["a.b"]


@pytest.mark.parametrize("first", [True, False])
def test_it_does_not_change_under_a_consumer(stepped: Stepped, first: bool) -> None:
    shared = {"durable_name": "d", "shared": True}
    stepped.receive(stepped.session(Mode.AUTO), BELOW, none_or_more=first, **shared)
    with pytest.raises(DurableInUse):
        stepped.receive(stepped.session(Mode.AUTO), BELOW, none_or_more=not first, **shared)


# --- on real stores


class _OverPostgresql(Deployment):
    url = ""

    def make_store(self) -> Store:
        return postgresql_store(database_at(self.url), self.reactor)


@pytest_twisted.async_yield_fixture(
    params=["sqlite", pytest.param("postgresql", marks=pytest.mark.process)]
)
async def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Deployment]:
    if request.param == "postgresql":
        _OverPostgresql.url = request.getfixturevalue("postgresql_database")
        create_tables(database_at(_OverPostgresql.url))
        made: Deployment = _OverPostgresql(reactor, tmp_path, request.param)
    else:
        made = Deployment(reactor, tmp_path, request.param)
    yield made
    await made.close()


@pytest_twisted.ensureDeferred
async def test_a_real_store_keeps_what_they_receive(deployment: Deployment) -> None:
    client = await deployment.connect(client_id="me")
    session = client.session(Mode.AUTO)
    client.consumer(session, BELOW, durable_name="wide", none_or_more=True)
    client.consumer(session, BELOW, durable_name="narrow")
    several: dict[str, Any] = {"durable_name": "several", "shared": True, "adds": True}
    for topic in ("ä", "a.b"):
        client.consumer(session, Topic(topic), **several)
    assert await completed(session) is None
    await client.close()
    await deployment.reopen()
    sender = await deployment.connect()
    session = sender.session()
    session.send(to_each(Topic, "a", "a.b", "ä"))
    assert await completed(session) is None
    await sender.close()
    await deployment.reopen()
    client = await deployment.connect(client_id="me")
    session = client.session(Mode.AUTO)
    wide = client.consumer(session, BELOW, durable_name="wide", none_or_more=True)
    narrow = client.consumer(session, BELOW, durable_name="narrow")
    await wide.count(2)
    await narrow.count(1)
    assert (wide.texts, narrow.texts) == (["a", "a.b"], ["a.b"])
    both = client.consumer(session, Topic("ä"), **several)
    await both.count(2)
    assert both.texts == ["a.b", "ä"]
