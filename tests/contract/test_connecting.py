"""Connections: who is let in, who is who, and how a connection ends (``Provider``,
``Connection``).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred

from gateway.messaging.destination import Destination, Kind
from gateway.messaging.errors import (
    AuthenticationFailed,
    ClientIdInUse,
    InvalidDestination,
    MessagingError,
    ProviderUnavailable,
)
from gateway.messaging.provider import Capabilities, ConsumerSpec, Credentials, Mode, Session
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, refused_consumer, texts
from tests.contract.waiting import Told, bounded, rolled_back


@contract()
async def test_a_provider_says_what_it_can_do_and_names_its_resource_manager(seam: Seam) -> None:
    assert isinstance(seam.provider.capabilities, Capabilities)
    assert seam.provider.resource
    assert seam.backend.provider().resource == seam.provider.resource, "the same resource manager"


@contract()
async def test_a_connection_is_open_when_it_is_there_and_is_not_lost_by_being_closed(
    seam: Seam, client: Client, queue: Destination
) -> None:
    await client.send(queue, ["1"])
    await client.close()
    await seam.quiet()
    assert client.losses == []
    await seam.has_left(queue, ["1"])


@contract()
async def test_a_connection_knows_its_client_identifier_and_what_it_is_connected_to(
    seam: Seam, mine: str
) -> None:
    assert (await seam.connect(mine)).connection.client_id == mine
    connection = (await seam.connect()).connection
    assert connection.client_id is None
    assert connection.product == seam.backend.product


@contract(arranged=("wrong",))
async def test_a_wrong_passcode_is_refused_and_never_shown(seam: Seam) -> None:
    wrong = seam.backend.wrong
    assert wrong is not None
    with pytest.raises(AuthenticationFailed) as refused:
        await seam.connect(credentials=wrong)
    assert wrong.passcode not in str(refused.value).split()
    assert (
        repr(Credentials("alice", "pa55code", "127.0.0.1")) == "Credentials('alice', '127.0.0.1')"
    )


@contract(arranged=("unreachable",))
async def test_a_broker_that_does_not_run_is_unavailable(seam: Seam) -> None:
    lost: list[MessagingError] = []
    with pytest.raises(ProviderUnavailable):
        await bounded(
            seam.backend.unreachable().connect(seam.backend.credentials, None, lost.append)
        )
    assert lost == [], "there was nothing to lose"


@contract()
async def test_a_client_identifier_has_one_connection_at_a_time(seam: Seam, mine: str) -> None:
    first = await seam.connect(mine)
    with pytest.raises(ClientIdInUse) as refused:
        await seam.connect(mine)
    assert refused.value.client_id == mine
    await seam.connect(seam.identifier())
    await first.close()
    await seam.connect(mine)


@contract()
async def test_connections_without_client_identifier_are_as_many_as_wanted(
    seam: Seam, queue: Destination
) -> None:
    for client in [await seam.connect() for _ in range(3)]:
        await client.send(queue, ["1"])
    await seam.has_left(queue, ["1"] * 3)


# --- the end


@contract()
async def test_every_call_on_a_closed_connection_is_refused(
    seam: Seam, client: Client, session: Session
) -> None:
    inbox = await client.consumer(seam.queue())
    await client.close()
    with pytest.raises(ProviderUnavailable):
        client.session()
    with pytest.raises(ProviderUnavailable):
        session.send(texts(seam.queue(), ["1"]))
    with pytest.raises(ProviderUnavailable):
        session.completion(Told())
    with pytest.raises(ProviderUnavailable):
        session.consumer(ConsumerSpec(seam.queue()), inbox.deliver, inbox.failures.append)
    inbox.consumer.close()
    await bounded(client.connection.close())


@contract()
async def test_closing_a_connection_gives_back_what_is_not_acknowledged(
    seam: Seam, queue: Destination
) -> None:
    taker, other = await seam.connect(), await seam.connect()
    taken = await taker.consumer(queue)
    await other.send(queue, range(4))
    await taken.count(4)
    taken.consumer.acknowledge_through(1)
    await taker.close()
    inbox = await other.consumer(queue, count=3)
    assert (inbox.texts, inbox.attempts) == (["1", "2", "3"], [2, 2, 2])


@contract("transacted")
async def test_closing_a_connection_rolls_open_transactions_back(seam: Seam) -> None:
    queue, out = seam.queue(), seam.queue()
    taker, other = await seam.connect(), await seam.connect()
    await other.send(queue, range(2))
    session = taker.session(Mode.TRANSACTED)
    taken = await taker.consumer(queue, session=session, count=2)
    taken.consumer.acknowledge_through(2)
    session.send(texts(out, ["never"]))
    await taker.close()
    inbox = await other.consumer(queue)
    assert await inbox.received(2) == ["0", "1"]
    await seam.has_left(out, [])


@contract()
async def test_nothing_is_delivered_after_a_close(seam: Seam, queue: Destination) -> None:
    taker, sender = await seam.connect(), await seam.connect()
    inbox = await taker.consumer(queue, credit=2)
    await sender.send(queue, range(10))
    await inbox.count(2)
    inbox.consumer.grant(8)
    closing = taker.end()
    count = len(inbox.messages)
    await bounded(closing)
    await sender.send(queue, ["more"])
    await seam.quiet()
    assert (len(inbox.messages), inbox.failures) == (count, [])


@contract()
async def test_what_was_asked_before_a_close_is_told_all_the_same(
    seam: Seam, queue: Destination, client: Client, session: Session
) -> None:
    session.send(texts(queue, range(3)))
    told = Told()
    session.completion(told)
    await client.close()
    if await told.result() is None:
        await seam.has_left(queue, ["0", "1", "2"])
    assert len(told.results) == 1


@contract("temporary")
async def test_temporary_destinations_go_with_the_connection(seam: Seam) -> None:
    creator, other = await seam.connect(), await seam.connect()
    temporary = creator.connection.temporary(Kind.QUEUE)
    inbox = await creator.consumer(temporary)
    await other.send(temporary, ["1"])
    await inbox.count(1)
    await creator.close()
    again = await seam.connect()
    with pytest.raises(InvalidDestination):
        await again.consumer(temporary)


@contract(arranged=("lose",))
async def test_a_lost_connection_is_told_once_and_refuses_every_call(
    seam: Seam, client: Client, session: Session
) -> None:
    inbox = await client.consumer(seam.queue())
    await seam.lose()
    assert len(client.losses) == 1
    assert isinstance(client.losses[0], MessagingError)
    calls: list[Callable[[], object]] = [
        client.session,
        lambda: session.send(texts(seam.queue(), ["1"])),
        lambda: session.completion(Told()),
        lambda: session.consumer(ConsumerSpec(seam.queue()), inbox.deliver, inbox.failures.append),
        session.recover,
    ]
    for call in calls:
        with pytest.raises(ProviderUnavailable):
            call()
    with pytest.raises(ProviderUnavailable):
        await bounded(client.connection.unsubscribe("d"))
    inbox.consumer.close()
    session.close()
    await seam.quiet()
    assert len(client.losses) == 1
    assert len(inbox.failures) <= 1
    assert all(isinstance(error, ProviderUnavailable) for error in inbox.failures)


@contract(arranged=("lose",))
async def test_a_lost_connection_can_be_closed_as_often_as_wanted_also_inside_lost(
    seam: Seam, client: Client
) -> None:
    closings: list[Deferred[None]] = []
    client.on_loss = lambda: closings.append(client.connection.close())
    await seam.lose()
    closings.append(client.connection.close())
    for closing in closings:
        assert await bounded(closing) is None
    assert len(closings) == 2
    with pytest.raises(ProviderUnavailable):
        client.session()


@contract("temporary", arranged=("lose",))
async def test_a_lost_connection_makes_no_temporary_destination(seam: Seam, client: Client) -> None:
    await seam.lose()
    with pytest.raises(ProviderUnavailable):
        client.connection.temporary(Kind.TOPIC)


@contract(arranged=("lose",))
async def test_a_completion_that_waits_when_the_connection_is_lost_is_told_once(
    seam: Seam, queue: Destination, session: Session
) -> None:
    told = [Told() for _ in range(5)]
    for number, one in enumerate(told):
        session.send(texts(queue, [str(number)]))
        session.completion(one)
    await seam.lose()
    results = [await one.result() for one in told]
    await seam.quiet()
    assert [len(one.results) for one in told] == [1] * 5
    well = [number for number, error in enumerate(results) if error is None]
    assert well == list(range(len(well))), "those that are durable come before those that failed"
    rest = await seam.rest(queue, len(well))
    assert rest[: len(well)] == [str(number) for number in well]


@contract(arranged=("lose",))
async def test_deliveries_of_a_lost_connection_go_back(seam: Seam) -> None:
    _, queue, _ = await seam.holding(range(3))
    await seam.lose()
    other = await seam.connect()
    inbox = await other.consumer(queue, count=3)
    assert (inbox.texts, inbox.attempts) == (["0", "1", "2"], [2, 2, 2])


@contract("transacted", arranged=("lose",))
async def test_a_transaction_of_a_lost_connection_is_rolled_back(
    seam: Seam, queue: Destination, client: Client
) -> None:
    session = client.session(Mode.TRANSACTED)
    session.send(texts(queue, ["never"]))
    await seam.lose()
    with pytest.raises(ProviderUnavailable):
        await rolled_back(session)
    await seam.has_left(queue, [])


# --- sessions


@contract()
async def test_closing_a_session_twice_is_closing_it(seam: Seam) -> None:
    client, queue, inbox = await seam.holding(range(2))
    session = inbox.session
    session.close()
    session.close()
    with pytest.raises(ProviderUnavailable):
        session.send(texts(queue, ["1"]))
    other = await client.consumer(queue, count=2)
    assert (other.texts, other.attempts) == (["0", "1"], [2, 2])


@contract()
async def test_a_closed_session_leaves_the_others_of_its_connection_alone(
    queue: Destination, client: Client
) -> None:
    gone, stays = client.session(), client.session()
    inbox = await client.consumer(queue, session=stays)
    gone.close()
    await client.send(queue, ["1"])
    await inbox.count(1)
    assert inbox.consumer.acknowledge_through(1) == 1


@contract()
async def test_what_was_asked_of_a_session_before_it_is_closed_is_told(
    seam: Seam, queue: Destination, session: Session
) -> None:
    session.send(texts(queue, range(3)))
    told = Told()
    session.completion(told)
    session.close()
    assert await told.result() is None
    await seam.has_left(queue, ["0", "1", "2"])


@contract(arranged=("denied",))
async def test_a_refused_consumer_leaves_its_session_usable(
    seam: Seam, client: Client, session: Session, queue: Destination
) -> None:
    assert seam.backend.denied is not None
    await refused_consumer(session, ConsumerSpec(seam.backend.denied))
    inbox = await client.consumer(queue, session=session)
    await client.send(queue, ["1"])
    await inbox.count(1)
