"""Completions: in which order, when, and what is durable by then (``Session.completion``)."""

from __future__ import annotations

from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError
from gateway.messaging.provider import Done, Mode, Session
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, text, texts
from tests.contract.waiting import Told, completed, until


def noting(fired: list[int], number: int) -> Done:
    """A completion that notes its number, and must be told that all is well."""

    def done(error: MessagingError | None) -> None:
        assert error is None
        fired.append(number)

    return done


@contract()
async def test_completions_fire_in_the_order_asked_once_and_never_inside_the_call(
    seam: Seam, queue: Destination, session: Session
) -> None:
    fired: list[int] = []
    for number in range(20):
        if number % 3 == 0:
            session.send([text(queue, str(number), persistent=bool(number % 2))])
        session.completion(noting(fired, number))
        assert fired == [], "fired inside a call"
    await completed(session)
    assert fired == list(range(20))
    await seam.quiet()
    assert fired == list(range(20))


@contract()
async def test_a_completion_of_nothing_fires(client: Client) -> None:
    told = Told()
    client.session().completion(told)
    assert told.results == []
    assert await told.result() is None


@contract()
async def test_a_session_does_not_wait_for_another_sessions_consumers(
    queue: Destination, client: Client
) -> None:
    idle = await client.consumer(queue, credit=0)
    await client.send(queue, ["1"])
    await completed(client.session())
    assert idle.messages == []


@contract()
async def test_what_is_completed_outlives_the_connection(seam: Seam) -> None:
    client, queue = await seam.waiting(range(5))
    await client.leaves(queue, ["0", "1", "2", "3", "4"])


@contract()
async def test_acknowledgements_that_are_completed_outlive_the_connection(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(5))
    session = inbox.session
    inbox.consumer.acknowledge_through(3)
    await completed(session)
    await client.leaves(queue, ["3", "4"])


@contract()
async def test_a_completion_may_ask_for_another(
    seam: Seam, queue: Destination, session: Session
) -> None:
    fired: list[int] = []

    def again(error: MessagingError | None) -> None:
        assert error is None
        fired.append(len(fired))
        if len(fired) < 5:
            session.send(texts(queue, [str(len(fired))]))
            session.completion(again)

    session.completion(again)
    await until(lambda: len(fired) == 5)
    await seam.has_left(queue, ["1", "2", "3", "4"])


@contract("transacted")
async def test_commits_rollbacks_and_completions_are_told_in_the_order_asked(
    seam: Seam, queue: Destination, client: Client
) -> None:
    session = client.session(Mode.TRANSACTED)
    fired: list[int] = []
    session.send(texts(queue, ["1"]))
    session.commit(noting(fired, 0))
    session.completion(noting(fired, 1))
    session.send(texts(queue, ["2"]))
    session.rollback(noting(fired, 2))
    session.commit(noting(fired, 3))
    session.send(texts(queue, ["3"]))
    session.commit(noting(fired, 4))
    session.completion(noting(fired, 5))
    assert fired == [], "fired inside a call"
    await until(lambda: len(fired) == 6)
    assert fired == list(range(6))
    await seam.has_left(queue, ["1", "3"])


@contract(arranged=("restart",))
async def test_what_is_completed_outlives_the_broker(seam: Seam) -> None:
    queue, settled = seam.queue(), seam.queue()
    client = await seam.connect()
    session = client.session()
    inbox = await client.consumer(settled, session=session)
    await client.send(settled, range(4))
    sent = await client.send(queue, range(3))
    await inbox.count(4)
    inbox.consumer.acknowledge_through(2)
    await completed(session)
    await seam.restart()
    client = await seam.connect()
    again = await client.consumer(queue)
    assert await again.received(3) == ["0", "1", "2"]
    if seam.backend.same_ids:
        assert [message.message_id for message in again.messages] == [
            message.message_id for message in sent
        ]
    await seam.has_left(settled, ["2", "3"])


@contract("transacted", arranged=("restart",))
async def test_what_is_committed_outlives_the_broker_and_nothing_else_does(
    seam: Seam, client: Client
) -> None:
    queue, out = seam.queue(), seam.queue()
    await client.send(queue, range(4))
    session = client.session(Mode.TRANSACTED)
    inbox = await client.consumer(queue, session=session, count=4)
    inbox.consumer.acknowledge_through(2)
    session.send(texts(out, ["done"]))
    told = Told()
    session.commit(told)
    assert await told.result() is None
    inbox.consumer.acknowledge_through(4)
    session.send(texts(out, ["never"]))
    await seam.restart()
    await seam.has_left(out, ["done"])
    await seam.has_left(queue, ["2", "3"])
