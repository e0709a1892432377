"""Duplicate ids are as durable as the messages they came with: after crashes, and where the disk
was full.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.broker.durability.duplicates import Sifted
from gateway.messaging.destination import Kind, Queue
from gateway.messaging.errors import StorageFailed
from gateway.messaging.provider import Mode
from tests.gateway.broker.bearing import Q, bearing, committed, rest, told
from tests.gateway.broker.stepping import Stepped, Told, texts

OTHER = Queue("other")


@pytest.fixture
def stepped(tmp_path: Path) -> Stepped:
    return Stepped(tmp_path)


# --- restarts


def test_they_are_remembered_over_a_crash(stepped: Stepped) -> None:
    session = stepped.session()
    session.send([bearing(str(number)) for number in range(5)])
    stepped.settle()
    stepped.restart()
    stepped.session().send([bearing(str(number)) for number in range(7)])
    stepped.settle()
    assert [int(body) for body in rest(stepped)] == list(range(7))


def test_what_was_taken_before_it_was_stored_is_remembered_over_a_crash(stepped: Stepped) -> None:
    session = stepped.session(Mode.AUTO)
    inbox = stepped.consume(session, Q)
    session.send([bearing("a")])
    done = told(session)
    stepped.turns()
    assert inbox.texts == ["a"]
    assert stepped.empty
    stepped.settle()
    assert done.well
    stepped.restart()
    stepped.session().send([bearing("a")])
    stepped.settle()
    assert rest(stepped) == []


def test_what_was_not_durable_is_not_remembered(stepped: Stepped) -> None:
    stepped.session().send([bearing("a")])
    stepped.turns()
    stepped.restart()
    stepped.session().send([bearing("a")])
    stepped.settle()
    assert rest(stepped) == ["a"]


def test_what_is_not_persistent_is_remembered_as_long_as_it_may_be_there(stepped: Stepped) -> None:
    session = stepped.session()
    session.send([bearing("a", persistent=False), bearing("a", persistent=False)])
    stepped.settle()
    assert rest(stepped) == ["a"]
    stepped.session().send([bearing("a", persistent=False)])
    stepped.settle()
    assert rest(stepped) == []
    stepped.restart()
    stepped.session().send([bearing("a", persistent=False)])
    stepped.settle()
    assert rest(stepped) == ["a"]
    assert not stepped.disk.duplicates


@pytest.mark.parametrize("kind", [Kind.QUEUE, Kind.TOPIC])
def test_temporary_destinations_remember_in_memory(stepped: Stepped, kind: Kind) -> None:
    connection = stepped.connect()
    session, temporary = connection.session(Mode.AUTO), connection.temporary(kind)
    inbox = stepped.consume(session, temporary)
    session.send([bearing("a", destination=temporary), bearing("a", destination=temporary)])
    stepped.settle()
    assert inbox.texts == ["a"]
    assert not stepped.disk.duplicates
    connection.close()
    stepped.settle()
    assert stepped.broker.duplicates.count == 0


# --- a full disk


def test_what_did_not_fit_may_be_sent_again(stepped: Stepped) -> None:
    session = stepped.session()
    session.send([bearing("a")])
    refused = told(session)
    stepped.turns()
    stepped.store.step(full=True)
    stepped.settle()
    assert refused.failed
    session.send([bearing("a")])
    taken = told(session)
    stepped.settle()
    assert taken.well
    assert rest(stepped) == ["a"]
    stepped.restart()
    stepped.session().send([bearing("a")])
    stepped.settle()
    assert rest(stepped) == []


def test_who_repeats_what_did_not_fit_is_told_so(stepped: Stepped) -> None:
    first, second = stepped.session(), stepped.session()
    first.send([bearing("a")])
    refused = told(first)
    stepped.turns()
    second.send([bearing("a")])
    too = told(second)
    stepped.turns()
    assert too.results == []
    stepped.store.step(full=True)
    stepped.settle()
    assert refused.failed
    assert too.failed
    assert isinstance(too.results[0], StorageFailed)
    assert rest(stepped) == []


def test_who_repeats_what_did_not_fit_and_asks_nothing_loses_the_connection(
    stepped: Stepped,
) -> None:
    stepped.session().send([bearing("a")])
    stepped.turns()
    stepped.session().send([bearing("a")])
    stepped.store.step(full=True)
    stepped.settle()
    assert len(stepped.losses) == 2


@pytest.mark.parametrize("mode", [Mode.CLIENT, Mode.TRANSACTED])
@pytest.mark.parametrize("fits", [(False, True), (True, False), (False, False), (True, True)])
def test_who_repeats_what_came_in_two_batches_is_told_if_either_did_not_fit(
    stepped: Stepped, mode: Mode, fits: tuple[bool, bool]
) -> None:
    originals, session = stepped.session(), stepped.session(mode)
    asked = []
    for id in "ab":
        originals.send([bearing(id)])
        asked.append(told(originals))
        stepped.turns()
    session.send([bearing("a"), bearing("b")])
    done = committed(session) if mode is Mode.TRANSACTED else told(session)
    for fit in fits:
        stepped.turns()
        stepped.store.step(full=not fit)
    stepped.settle()
    assert [one.well for one in asked] == list(fits)
    assert done.well is all(fits)
    assert done.failed is not all(fits)
    assert rest(stepped) == [id for id, fit in zip("ab", fits, strict=True) if fit]
    assert stepped.losses == []


@pytest.mark.parametrize("mode", [Mode.CLIENT, Mode.TRANSACTED])
def test_who_repeats_what_a_transaction_has_sent_that_is_taken_back_is_told(
    stepped: Stepped, mode: Mode
) -> None:
    original, transacted, last = (
        stepped.session(),
        stepped.session(Mode.TRANSACTED),
        stepped.session(mode),
    )
    original.send([bearing("a")])
    refused = [told(original)]
    stepped.turns()
    transacted.send([bearing("a"), bearing("b")])
    refused.append(committed(transacted))
    last.send([bearing("b")])
    refused.append(committed(last) if mode is Mode.TRANSACTED else told(last))
    stepped.store.step(full=True)
    stepped.settle()
    assert all(one.failed for one in refused)
    assert rest(stepped) == []
    last.send([bearing("b"), bearing("c")])
    again = committed(last) if mode is Mode.TRANSACTED else told(last)
    stepped.settle()
    assert again.well
    assert rest(stepped) == ["b", "c"]


def test_each_of_many_transactions_that_repeats_one_before_it_is_taken_back(
    stepped: Stepped,
) -> None:
    original = stepped.session()
    original.send([bearing("0")])
    refused = [told(original)]
    stepped.turns()
    for number in range(500):
        session = stepped.session(Mode.TRANSACTED)
        session.send([bearing(f"{number}"), bearing(f"{number + 1}")])
        refused.append(committed(session))
    stepped.store.step(full=True)
    stepped.settle()
    assert [one.failed for one in refused] == [True] * 501
    assert rest(stepped) == []
    assert stepped.broker.duplicates.count == 0


def test_one_who_fails_when_told_keeps_nobody_else_from_hearing_of_it(
    stepped: Stepped, capfd: pytest.CaptureFixture[str]
) -> None:
    stepped.session().send([bearing("a")])
    duplicates, commits, heard = (
        stepped.broker.duplicates,
        stepped.broker.commits,
        list[Exception](),
    )

    def fail(error: Exception) -> None:
        raise RuntimeError("cannot hear")

    for tell in (fail, heard.append):
        commits.begin()
        duplicates.remember([], Sifted(1, frozenset([stepped.broker.last_seq])), tell)
        commits.end()
    stepped.turns()
    stepped.store.step(full=True)
    stepped.settle()
    assert len(heard) == 1
    assert "cannot hear" in capfd.readouterr().err


def test_who_repeats_what_is_there_is_not_told_of_others_that_did_not_fit(stepped: Stepped) -> None:
    original, other, session = stepped.session(), stepped.session(), stepped.session()
    original.send([bearing("a", persistent=False)])
    other.send(texts(OTHER, ["too much"]))
    outcomes = [told(original), told(other)]
    stepped.turns()
    session.send([bearing("a")])
    outcomes.append(told(session))
    stepped.store.step(full=True)
    stepped.settle()
    assert [one.well for one in outcomes] == [True, False, True]
    assert rest(stepped) == ["a"]


def test_a_transaction_that_repeats_what_did_not_fit_is_rolled_back(stepped: Stepped) -> None:
    transacted = stepped.session(Mode.TRANSACTED)
    inbox = stepped.consume(transacted, OTHER)
    stepped.session().send(texts(OTHER, ["in"]))
    stepped.settle()
    first = stepped.session()
    first.send([bearing("a")])
    refused = told(first)
    stepped.turns()
    inbox.consumer.acknowledge_through(1)
    transacted.send([bearing("a"), bearing("b"), *texts(Q, ["plain"])])
    done = committed(transacted)
    stepped.turns()
    stepped.store.step(full=True)
    stepped.settle()
    assert refused.failed
    assert done.failed
    assert rest(stepped) == []
    assert stepped.bodies == ["in"]
    inbox.consumer.acknowledge_through(inbox.numbers[-1])
    transacted.send([bearing("a"), bearing("b")])
    again = committed(transacted)
    stepped.settle()
    assert again.well
    assert rest(stepped) == ["a", "b"]
    assert stepped.empty


def test_a_transaction_in_the_same_batch_has_the_same_fate(stepped: Stepped) -> None:
    first, transacted = stepped.session(), stepped.session(Mode.TRANSACTED)
    first.send([bearing("a")])
    refused = told(first)
    transacted.send([bearing("a")])
    done = committed(transacted)
    stepped.turns()
    stepped.store.step(full=True)
    stepped.settle()
    assert refused.failed
    assert done.failed
    assert rest(stepped) == []


def test_a_transaction_that_did_not_fit_may_be_sent_again(stepped: Stepped) -> None:
    transacted = stepped.session(Mode.TRANSACTED)
    messages = [bearing("a"), bearing("b", persistent=False)]
    transacted.send(messages)
    refused = committed(transacted)
    stepped.turns()
    stepped.store.step(full=True)
    stepped.settle()
    assert refused.failed
    assert stepped.broker.duplicates.count == 0
    transacted.send([bearing("a"), bearing("b", persistent=False)])
    done = committed(transacted)
    stepped.settle()
    assert done.well
    assert rest(stepped) == ["a", "b"]


def test_the_id_of_what_was_taken_is_tried_again(stepped: Stepped) -> None:
    """The consumer has it, so who sent it may send it again, and it is not kept twice."""
    session = stepped.session(Mode.AUTO)
    inbox = stepped.consume(session, Q)
    session.send([bearing("a")])
    refused = told(session)
    other = stepped.session()
    other.send(texts(OTHER, ["too much"]))
    other.completion(Told())
    stepped.turns()
    assert inbox.texts == ["a"]
    stepped.store.step(full=True)
    stepped.settle()
    assert refused.failed
    session.send([bearing("a")])
    again = told(session)
    stepped.settle()
    assert again.well
    assert inbox.texts == ["a"]
    stepped.restart()
    stepped.session().send([bearing("a")])
    stepped.settle()
    assert rest(stepped) == []
