"""Durable subscriptions that consumers of several connections share."""

from __future__ import annotations

import pytest
from twisted.python.failure import Failure

from gateway.messaging.destination import Topic
from gateway.messaging.errors import (
    ClientIdInUse,
    ClientIdRequired,
    DurableInUse,
    UnknownSubscription,
)
from gateway.messaging.provider import Connection, Credentials, Mode
from tests.gateway.broker.administration import outcome
from tests.gateway.broker.stepped_broker import Stepped, texts

T = Topic("t")
SHARED = {"durable_name": "d", "shared": True}


def test_each_message_goes_to_one_consumer(stepped: Stepped) -> None:
    inboxes = [
        stepped.consume(stepped.session(Mode.INDIVIDUAL), T, credit=2, **SHARED) for _ in range(2)
    ]
    stepped.send(texts(T, ["1", "2", "3", "4"]))
    assert [len(inbox.texts) for inbox in inboxes] == [2, 2]
    assert sorted(inboxes[0].texts + inboxes[1].texts) == ["1", "2", "3", "4"]


def test_it_outlives_its_consumers_and_the_process(stepped: Stepped) -> None:
    stepped.consume(stepped.session(Mode.CLIENT), T, **SHARED).consumer.close()
    stepped.send(texts(T, ["kept"]))
    stepped.restart()
    assert stepped.receive(stepped.session(Mode.CLIENT), T, **SHARED).texts == ["kept"]


def test_a_connection_without_client_identifier_removes_it(stepped: Stepped) -> None:
    inbox = stepped.consume(stepped.session(Mode.CLIENT), T, **SHARED)
    connection = stepped.connect()
    with pytest.raises(DurableInUse):
        outcome(stepped, connection.unsubscribe("d"))
    inbox.consumer.close()
    outcome(stepped, connection.unsubscribe("d"))
    stepped.send(texts(T, ["lost"]))
    assert stepped.receive(stepped.session(Mode.CLIENT), T, **SHARED).texts == []


def test_those_of_a_client_identifier_are_others(stepped: Stepped) -> None:
    stepped.consume(stepped.session(Mode.CLIENT, client_id="me"), T, durable_name="d")
    stepped.consume(stepped.session(Mode.CLIENT), T, **SHARED)
    with pytest.raises(ClientIdRequired):
        stepped.consume(stepped.session(Mode.CLIENT), T, durable_name="d")
    with pytest.raises(ClientIdRequired):
        outcome(stepped, stepped.connect().unsubscribe("other"))
    with pytest.raises(UnknownSubscription):
        outcome(stepped, stepped.connect("you").unsubscribe("other"))


def test_another_topic_cannot_be_had_while_it_is_in_use(stepped: Stepped) -> None:
    stepped.consume(stepped.session(Mode.CLIENT), T, **SHARED)
    with pytest.raises(DurableInUse):
        stepped.consume(stepped.session(Mode.CLIENT), Topic("u"), **SHARED)


def test_users_do_not_share(stepped: Stepped) -> None:
    mine = stepped.consume(stepped.session(Mode.CLIENT), T, **SHARED)
    made: list[Connection] = []
    others = Credentials("admin", "guest")
    stepped.provider.connect(others, None, stepped.losses.append).addCallback(made.append)
    their = stepped.consume(made[0].session(Mode.CLIENT), T, **SHARED)
    stepped.send(texts(T, ["1"]))
    assert (mine.texts, their.texts) == (["1"], ["1"])
    mine.consumer.close()
    outcome(stepped, stepped.connect().unsubscribe("d"))
    stepped.send(texts(T, ["2"]))
    assert their.texts == ["1", "2"]


def test_no_client_identifier_is_that_of_shared_ones(stepped: Stepped) -> None:
    refused: list[Failure] = []
    credentials = Credentials("guest", "guest")
    connecting = stepped.provider.connect(credentials, "shared-by:guest", stepped.losses.append)
    connecting.addErrback(refused.append)
    assert isinstance(refused[0].value, ClientIdInUse)


def test_a_connection_with_a_client_identifier_removes_it_too(stepped: Stepped) -> None:
    connection = stepped.connect("me")
    stepped.consume(connection.session(Mode.CLIENT), T, **SHARED).consumer.close()
    outcome(stepped, connection.unsubscribe("d"))
