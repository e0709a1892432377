"""Advisories: what they cost without a listener, and what is left of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.security.access import DEFAULT_RULES
from gateway.messaging.destination import Queue, Topic
from gateway.messaging.errors import AccessDenied
from gateway.messaging.provider import Mode
from tests.gateway.broker.brokers import text
from tests.gateway.broker.stepped_broker import Stepped

ALL = Topic("ActiveMQ.Advisory.>")
RULE = "\ntopic.ActiveMQ.Advisory.>.consume.allow.user=guest\n"


@pytest.fixture
def told(tmp_path: Path) -> Stepped:
    """A broker of which guest may know what others do."""
    return Stepped(tmp_path, rules=RULE)


def test_without_a_listener_nothing_is_made(told: Stepped) -> None:
    told.receive(told.session(Mode.AUTO), Queue("q"))
    told.send([text(Queue("q"), "1")])
    assert told.broker.last_seq == 1
    assert list(told.broker.destinations) == [Queue("q")]


def test_a_listener_hears_of_others_until_it_leaves(told: Stepped) -> None:
    listening = told.session(Mode.AUTO)
    inbox = told.receive(listening, ALL)
    other = told.session(Mode.AUTO)
    told.receive(other, Queue("q"))
    inbox.clear()
    other.close()
    told.run_until_idle()
    assert [each[:13] for each in inbox.texts] == ['{"RemoveInfo"']
    listening.close()
    told.run_until_idle()
    last = told.broker.last_seq
    told.receive(told.session(Mode.AUTO), Queue("q"))
    assert told.broker.last_seq == last
    assert not told.broker.advisories.listeners


def test_who_may_hear_of_some_hears_of_no_others(told: Stepped) -> None:
    inbox = told.receive(told.session(Mode.AUTO), ALL)
    told.access.path.write_text(
        DEFAULT_RULES + "\ntopic.ActiveMQ.Advisory.*.consume.allow.user=guest\n"
    )
    told.access.reload()
    inbox.clear()
    told.receive(told.session(Mode.AUTO), Queue("q"))
    assert sorted(each[:10] for each in inbox.texts) == ['{"Connecti', '{"Destinat']


def test_topics_that_only_patterns_cover_go_again(told: Stepped) -> None:
    told.receive(told.session(Mode.AUTO), ALL)
    for number in range(3):
        told.receive(told.session(Mode.AUTO), Queue(f"q{number}"))
    advisory = [each for each in told.broker.destinations if each.name.startswith("ActiveMQ.")]
    assert Topic("ActiveMQ.Advisory.Consumer.Queue.q2") in advisory
    told.clock.advance(61)
    told.run_until_idle()
    assert not [each for each in told.broker.destinations if each.name.startswith("ActiveMQ.")]


def test_who_is_not_named_may_neither_listen_nor_send(stepped: Stepped) -> None:
    with pytest.raises(AccessDenied):
        stepped.consume(stepped.session(), ALL)
    with pytest.raises(AccessDenied):
        stepped.consume(stepped.session(), Topic("ActiveMQ.Advisory.Connection"))
