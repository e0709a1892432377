"""Duplicate ids are as durable as the messages they came with: after crashes, and where the disk
was full.
"""

from __future__ import annotations

import pytest

from gateway.messaging.destination import Kind, Queue
from gateway.messaging.provider import Connection, Mode
from tests.gateway.broker.duplicate_ids import Q, bearing, rest, told
from tests.gateway.broker.stepped_broker import Stepped

OTHER = Queue("other")


# --- restarts


def test_they_are_remembered_over_a_crash(stepped: Stepped) -> None:
    stepped.send([bearing(str(number)) for number in range(5)])
    stepped.restart()
    stepped.send([bearing(str(number)) for number in range(7)])
    assert [int(body) for body in rest(stepped)] == list(range(7))


def test_what_was_taken_before_it_was_stored_is_remembered_over_a_crash(stepped: Stepped) -> None:
    session = stepped.session(Mode.AUTO)
    inbox = stepped.consume(session, Q)
    session.send([bearing("a")])
    done = told(session)
    stepped.run_reactor()
    assert (inbox.texts, stepped.empty) == (["a"], True)
    stepped.run_until_idle()
    assert done.well
    stepped.restart()
    stepped.send([bearing("a")])
    assert rest(stepped) == []


def test_what_was_not_durable_is_not_remembered(stepped: Stepped) -> None:
    stepped.session().send([bearing("a")])
    stepped.run_reactor()
    stepped.restart()
    stepped.send([bearing("a")])
    assert rest(stepped) == ["a"]


def test_what_is_not_persistent_is_remembered_as_long_as_it_may_be_there(stepped: Stepped) -> None:
    stepped.send([bearing("a", persistent=False), bearing("a", persistent=False)])
    assert rest(stepped) == ["a"]
    stepped.send([bearing("a", persistent=False)])
    assert rest(stepped) == []
    stepped.restart()
    stepped.send([bearing("a", persistent=False)])
    assert rest(stepped) == ["a"]
    assert not stepped.disk.duplicates


@pytest.mark.parametrize("kind", [Kind.QUEUE, Kind.TOPIC])
def test_temporary_destinations_remember_in_memory(
    stepped: Stepped, kind: Kind, connection: Connection
) -> None:
    session, temporary = connection.session(Mode.AUTO), connection.temporary(kind)
    inbox = stepped.consume(session, temporary)
    stepped.send(
        [bearing("a", destination=temporary), bearing("a", destination=temporary)], session
    )
    assert inbox.texts == ["a"]
    assert not stepped.disk.duplicates
    stepped.close(connection)
    assert stepped.broker.duplicates.count == 0
