"""Subscriptions that are not durable and that consumers share by a name."""

from __future__ import annotations

import pytest

from gateway.messaging.destination import Topic
from gateway.messaging.errors import InvalidDestination, SubscriptionDiffers
from gateway.messaging.provider import Connection, Credentials, Mode
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.stepped_broker import Stepped, texts

T = Topic("t")
DURABLE = {"durable_name": "s", "shared": True}


def test_a_pattern_can_be_shared(stepped: Stepped) -> None:
    inboxes = [
        stepped.consume(stepped.session(Mode.CLIENT), Topic("t.*"), credit=1, shared_name="s")
        for _ in range(2)
    ]
    stepped.send(texts(Topic("t.a"), ["1", "2", "3"]))
    assert sorted(inboxes[0].texts + inboxes[1].texts) == ["1", "2"]
    inboxes[0].consumer.close()
    stepped.grant(inboxes[1], 9)
    assert sorted(inboxes[1].texts) == ["1", "2", "3"]


def test_users_do_not_share(stepped: Stepped) -> None:
    mine = stepped.consume(stepped.session(Mode.CLIENT), T, shared_name="s")
    made: list[Connection] = []
    others = Credentials("admin", "guest")
    stepped.provider.connect(others, None, stepped.losses.append).addCallback(made.append)
    their = stepped.consume(made[0].session(Mode.CLIENT), T, shared_name="s")
    stepped.send(texts(T, ["1"]))
    assert (mine.texts, their.texts) == (["1"], ["1"])


def test_a_name_is_of_one_kind(stepped: Stepped) -> None:
    durable = stepped.consume(stepped.session(Mode.CLIENT), T, **DURABLE)
    with pytest.raises(SubscriptionDiffers, match="expected a durable one"):
        stepped.consume(stepped.session(Mode.CLIENT), T, shared_name="s")
    durable.consumer.close()
    outcome(stepped, stepped.connect().unsubscribe("s"))
    stepped.consume(stepped.session(Mode.CLIENT), T, shared_name="s")
    with pytest.raises(SubscriptionDiffers, match="expected one that is not durable"):
        stepped.consume(stepped.session(Mode.CLIENT), T, **DURABLE)


def test_no_local_is_not_for_those_who_share(stepped: Stepped) -> None:
    with pytest.raises(InvalidDestination, match="no-local"):
        stepped.consume(stepped.session(Mode.CLIENT), T, shared_name="s", no_local=True)


def test_a_durable_one_keeps_what_waits_where_it_is_not_to_be_redefined(stepped: Stepped) -> None:
    stepped.consume(stepped.session(Mode.CLIENT), T, **DURABLE).consumer.close()
    stepped.send(texts(T, ["kept"]))
    with pytest.raises(SubscriptionDiffers):
        stepped.consume(stepped.session(Mode.CLIENT), Topic("u"), redefines=False, **DURABLE)
    inbox = stepped.receive(stepped.session(Mode.CLIENT), T, redefines=False, **DURABLE)
    assert inbox.texts == ["kept"]


def test_one_that_an_administrator_has_ended_can_be_made_again(stepped: Stepped) -> None:
    first = stepped.consume(stepped.session(Mode.CLIENT), T, shared_name="s")
    outcome(stepped, administration(stepped).destroy("topic", "t"))
    assert isinstance(first.failures[0], InvalidDestination)
    second = stepped.consume(stepped.session(Mode.CLIENT), T, shared_name="s")
    stepped.send(texts(T, ["1"]))
    assert second.texts == ["1"]
