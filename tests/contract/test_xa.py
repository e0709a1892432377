"""XA sessions, where a provider has them (``XASession``, ``XAResource``).

Written as whoever uses the seam must behave to suit every provider: a branch is started first, then
credit is granted, all that was delivered is acknowledged, and only then the branch ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

import pytest
from twisted.internet.defer import Deferred

from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError, XAError
from gateway.messaging.provider import Flags, Vote, XAConsumer, XAResource, XASession, Xid
from tests.contract.contracts import contract
from tests.contract.driving import Client, Seam, texts
from tests.contract.waiting import Inbox, bounded, completed

_NOTA = -4


def branch() -> Xid:
    """A branch that nobody has used."""
    return Xid(0x5354, os.urandom(16), b"\x01")


async def sent(
    client: Client, queue: Destination, bodies: Sequence[str] | range
) -> tuple[XAResource, Xid]:
    """Send in a new branch, whose association has ended.

    :returns: the session's resource, and the branch.
    """
    session, xid = client.connection.xa_session(), branch()
    resource = session.resource()
    await bounded(resource.start(xid, Flags.NOFLAGS))
    session.send(texts(queue, bodies))
    await bounded(resource.end(xid, Flags.SUCCESS))
    return resource, xid


async def inbox_of(client: Client, session: XASession, queue: Destination) -> Inbox:
    """A consumer of an XA session, stopped and without credit."""
    return await client.consumer(queue, session=session, credit=0, start=False)


def xa_consumer(inbox: Inbox) -> XAConsumer:
    """The consumer of an XA session that has this inbox."""
    return cast(XAConsumer, inbox.consumer)


async def receive(inbox: Inbox, count: int) -> None:
    """Receive so many messages more in the branch that is associated, and acknowledge them."""
    before = len(inbox.messages)
    inbox.consumer.grant(count)
    inbox.consumer.start()
    await inbox.count(before + count)
    inbox.consumer.stop()
    inbox.consumer.acknowledge_through(inbox.numbers[-1])


async def received(client: Client, queue: Destination, count: int) -> tuple[XASession, Inbox, Xid]:
    """Receive and acknowledge in a new branch, whose association has ended."""
    session, xid = client.connection.xa_session(), branch()
    inbox = await inbox_of(client, session, queue)
    await bounded(session.resource().start(xid, Flags.NOFLAGS))
    await receive(inbox, count)
    await bounded(session.resource().end(xid, Flags.SUCCESS))
    return session, inbox, xid


async def take_again(session: XASession, inbox: Inbox, count: int) -> list[str]:
    """Receive in another branch of the same session, and commit it.

    :returns: what came.
    """
    resource, xid, before = session.resource(), branch(), len(inbox.messages)
    await bounded(resource.start(xid, Flags.NOFLAGS))
    await receive(inbox, count)
    await bounded(resource.end(xid, Flags.SUCCESS))
    await bounded(resource.commit(xid, True))
    return inbox.texts[before:]


@contract("xa")
async def test_a_branch_is_seen_after_its_commit_only(
    seam: Seam, queue: Destination, client: Client
) -> None:
    resource, xid = await sent(client, queue, range(2))
    assert await bounded(resource.prepare(xid)) is Vote.OK
    assert xid in await bounded(resource.recover())
    inbox = await client.consumer(queue)
    await seam.quiet()
    assert inbox.messages == []
    await bounded(resource.commit(xid, False))
    assert await inbox.received(2) == ["0", "1"]
    assert xid not in await bounded(resource.recover())


@contract("xa")
async def test_sessions_of_one_broker_know_that_they_have_one(seam: Seam) -> None:
    one = (await seam.connect()).connection.xa_session()
    other = (await seam.connect()).connection.xa_session()
    await bounded(one.resource().recover())
    assert await bounded(other.resource().is_same_rm(one.resource())) is True
    one.close()
    with suppress(MessagingError):
        assert await bounded(other.resource().is_same_rm(cast(XAResource, object()))) is False


@contract("xa")
async def test_a_branch_that_is_rolled_back_never_was(
    seam: Seam, queue: Destination, client: Client
) -> None:
    resource, xid = await sent(client, queue, range(2))
    await bounded(resource.rollback(xid))
    await seam.has_left(queue, [])


@contract("xa")
async def test_a_prepared_branch_outlives_its_connection(
    seam: Seam, queue: Destination, client: Client
) -> None:
    resource, xid = await sent(client, queue, ["prepared"])
    await bounded(resource.prepare(xid))
    await client.close()
    again = (await seam.connect()).connection.xa_session().resource()
    assert xid in await bounded(again.recover())
    await bounded(again.commit(xid, False))
    await seam.has_left(queue, ["prepared"])


@contract("xa")
async def test_a_branch_that_nobody_knows_can_be_neither_committed_nor_rolled_back(
    seam: Seam,
) -> None:
    resource = (await seam.connect()).connection.xa_session().resource()
    unknown: tuple[Callable[[], Deferred[None]], ...] = (
        lambda: resource.commit(branch(), False),
        lambda: resource.rollback(branch()),
    )
    for asked in unknown:
        with pytest.raises(XAError) as caught:
            await bounded(asked())
        assert caught.value.code == _NOTA


@contract("xa")
async def test_what_is_acknowledged_in_a_branch_is_gone_with_its_commit(seam: Seam) -> None:
    client, queue = await seam.waiting(range(3))
    session, inbox, xid = await received(client, queue, 3)
    assert inbox.texts == ["0", "1", "2"]
    assert await bounded(session.resource().prepare(xid)) is Vote.OK
    await bounded(session.resource().commit(xid, False))
    await client.leaves(queue, [])


@contract("xa")
async def test_what_is_acknowledged_in_a_branch_comes_again_in_order_after_its_rollback(
    seam: Seam,
) -> None:
    client, queue = await seam.waiting(range(5))
    session, inbox, xid = await received(client, queue, 3)
    await bounded(session.resource().rollback(xid))
    assert await take_again(session, inbox, 5) == ["0", "1", "2", "3", "4"]
    assert inbox.attempts[3:] == seam.counted(2, 2, 2, 1, 1)
    await client.leaves(queue, [])


@contract("xa")
async def test_what_a_prepared_branch_acknowledged_comes_again_in_order_after_its_rollback(
    seam: Seam,
) -> None:
    client, queue = await seam.waiting(range(3))
    session, inbox, xid = await received(client, queue, 3)
    assert await bounded(session.resource().prepare(xid)) is Vote.OK
    await bounded(session.resource().rollback(xid))
    assert xid not in await bounded(session.resource().recover())
    assert await take_again(session, inbox, 3) == ["0", "1", "2"]
    assert inbox.attempts[3:] == seam.counted(2, 2, 2)


@contract("xa")
@pytest.mark.parametrize("prepared", [False, True])
async def test_a_consumer_of_a_topic_has_again_what_was_rolled_back_before_what_came_meanwhile(
    seam: Seam, prepared: bool
) -> None:
    client, topic = await seam.connect(), seam.topic()
    session, xid = client.connection.xa_session(), branch()
    inbox = await inbox_of(client, session, topic)
    await client.send(topic, range(5))
    await bounded(session.resource().start(xid, Flags.NOFLAGS))
    await receive(inbox, 3)
    await bounded(session.resource().end(xid, Flags.SUCCESS))
    await client.send(topic, range(5, 8))
    if prepared:
        assert await bounded(session.resource().prepare(xid)) is Vote.OK
    await bounded(session.resource().rollback(xid))
    assert await take_again(session, inbox, 8) == [str(number) for number in range(8)]


@contract("xa")
async def test_credit_that_was_withdrawn_is_used_by_nothing(seam: Seam) -> None:
    client, queue = await seam.waiting(range(2))
    session, xid = client.connection.xa_session(), branch()
    inbox = await inbox_of(client, session, queue)
    consumer = xa_consumer(inbox)
    await bounded(session.resource().start(xid, Flags.NOFLAGS))
    consumer.grant(10)
    consumer.start()
    await inbox.count(2)
    consumer.stop()
    await completed(session)
    consumer.withdraw()
    consumer.acknowledge_through(inbox.numbers[-1])
    await bounded(session.resource().end(xid, Flags.SUCCESS))
    await bounded(session.resource().rollback(xid))
    await client.send(queue, range(2, 4))
    again = branch()
    await bounded(session.resource().start(again, Flags.NOFLAGS))
    consumer.start()
    await seam.quiet()
    assert len(inbox.messages) == 2
    consumer.grant(1)
    assert await seam.everything(inbox, 3) == ["0", "1", "0"]
    consumer.acknowledge_through(inbox.numbers[-1])
    await bounded(session.resource().end(again, Flags.SUCCESS))
    await bounded(session.resource().commit(again, True))
    await client.leaves(queue, ["1", "2", "3"])


@contract("xa")
async def test_what_a_prepared_branch_acknowledged_is_nobodys_until_it_ends(seam: Seam) -> None:
    client, queue = await seam.waiting(range(2))
    session, _, xid = await received(client, queue, 2)
    assert await bounded(session.resource().prepare(xid)) is Vote.OK
    await client.close()
    await seam.has_left(queue, [])
    resource = (await seam.connect()).connection.xa_session().resource()
    assert xid in await bounded(resource.recover())
    await bounded(resource.rollback(xid))
    await seam.has_left(queue, ["0", "1"])


@contract("xa")
async def test_in_one_phase_sends_and_acknowledgements_take_effect_together(seam: Seam) -> None:
    client, queue = await seam.waiting(["in"])
    target = seam.queue()
    session, xid = client.connection.xa_session(), branch()
    inbox = await inbox_of(client, session, queue)
    await bounded(session.resource().start(xid, Flags.NOFLAGS))
    await receive(inbox, 1)
    session.send(texts(target, ["out"]))
    await bounded(session.resource().end(xid, Flags.SUCCESS))
    await bounded(session.resource().commit(xid, True))
    await client.leaves(queue, [])
    await seam.has_left(target, ["out"])


@contract("xa")
async def test_branches_of_one_session_follow_one_another(seam: Seam) -> None:
    client, queue = await seam.waiting(range(4))
    session, inbox, first = await received(client, queue, 2)
    resource = session.resource()
    assert await bounded(resource.prepare(first)) is Vote.OK
    second = branch()
    await bounded(resource.start(second, Flags.NOFLAGS))
    await receive(inbox, 2)
    await bounded(resource.end(second, Flags.SUCCESS))
    await bounded(resource.commit(second, True))
    await bounded(resource.rollback(first))
    assert inbox.texts == ["0", "1", "2", "3"]
    await client.leaves(queue, ["0", "1"])


@pytest.mark.parametrize("commits", [True, False])
@contract("xa")
async def test_two_connections_join_in_one_branch(seam: Seam, commits: bool) -> None:
    source, queue = await seam.waiting(range(2))
    target, other = await seam.connect(), seam.queue()
    receiving, sending, xid = (
        source.connection.xa_session(),
        target.connection.xa_session(),
        branch(),
    )
    inbox = await inbox_of(source, receiving, queue)
    await bounded(receiving.resource().start(xid, Flags.NOFLAGS))
    await bounded(sending.resource().start(xid, Flags.JOIN))
    await receive(inbox, 2)
    sending.send(texts(other, inbox.texts))
    await bounded(sending.resource().end(xid, Flags.SUCCESS))
    await bounded(receiving.resource().end(xid, Flags.SUCCESS))
    resource = receiving.resource()
    await bounded(resource.commit(xid, True) if commits else resource.rollback(xid))
    await target.close()
    await source.leaves(queue, [] if commits else ["0", "1"])
    await seam.has_left(other, ["0", "1"] if commits else [])


@contract("xa")
async def test_a_branch_is_suspended_and_resumed(seam: Seam, queue: Destination) -> None:
    session, xid = (await seam.connect()).connection.xa_session(), branch()
    resource = session.resource()
    await bounded(resource.start(xid, Flags.NOFLAGS))
    session.send(texts(queue, ["before"]))
    await bounded(resource.end(xid, Flags.SUSPEND))
    await bounded(resource.start(xid, Flags.RESUME))
    session.send(texts(queue, ["after"]))
    await bounded(resource.end(xid, Flags.SUCCESS))
    await bounded(resource.commit(xid, True))
    await seam.has_left(queue, ["before", "after"])


@contract("xa")
async def test_a_branch_that_failed_is_not_committed(seam: Seam, queue: Destination) -> None:
    session, xid = (await seam.connect()).connection.xa_session(), branch()
    resource = session.resource()
    await bounded(resource.start(xid, Flags.NOFLAGS))
    session.send(texts(queue, ["never"]))
    # A provider may roll it back at once, and say so.
    ends: tuple[Callable[[], Deferred[None]], ...] = (
        lambda: resource.end(xid, Flags.FAIL),
        lambda: resource.rollback(xid),
    )
    for asked in ends:
        with suppress(XAError):
            await bounded(asked())
    await seam.has_left(queue, [])


@contract("xa")
async def test_an_empty_branch_is_nothing_to_recover(seam: Seam) -> None:
    session, xid = (await seam.connect()).connection.xa_session(), branch()
    resource = session.resource()
    await bounded(resource.start(xid, Flags.NOFLAGS))
    await bounded(resource.end(xid, Flags.SUCCESS))
    if await bounded(resource.prepare(xid)) is Vote.OK:
        # Not every provider knows that it is empty.
        await bounded(resource.commit(xid, False))
    assert xid not in await bounded(resource.recover())


@contract("xa")
async def test_nothing_is_sent_outside_of_a_branch(seam: Seam, queue: Destination) -> None:
    session, xid = (await seam.connect()).connection.xa_session(), branch()
    with pytest.raises(MessagingError):
        session.send(texts(queue, ["before"]))
    await bounded(session.resource().start(xid, Flags.NOFLAGS))
    session.send(texts(queue, ["in"]))
    await bounded(session.resource().end(xid, Flags.SUCCESS))
    with pytest.raises(MessagingError):
        session.send(texts(queue, ["after"]))
    await bounded(session.resource().commit(xid, True))
    await seam.has_left(queue, ["in"])


@contract("xa")
async def test_a_branch_that_was_not_prepared_ends_with_its_connection(seam: Seam) -> None:
    client, queue = await seam.waiting(range(2))
    session, _, xid = await received(client, queue, 2)
    second = branch()
    await bounded(session.resource().start(second, Flags.NOFLAGS))
    session.send(texts(queue, ["never"]))
    await client.close()
    resource = (await seam.connect()).connection.xa_session().resource()
    assert not {xid, second}.intersection(await bounded(resource.recover()))
    await seam.has_left(queue, ["0", "1"])


@contract("xa")
async def test_a_branch_that_is_in_use_is_not_begun_again(
    seam: Seam, queue: Destination, client: Client
) -> None:
    resource, xid = await sent(client, queue, ["once"])
    assert await bounded(resource.prepare(xid)) is Vote.OK
    other = (await seam.connect()).connection.xa_session().resource()
    with pytest.raises(XAError):
        await bounded(other.start(xid, Flags.NOFLAGS))
    await bounded(other.commit(xid, False))
    await seam.has_left(queue, ["once"])


@contract("xa", arranged=("restart",))
async def test_prepared_branches_outlive_the_broker(seam: Seam) -> None:
    client, queue = await seam.waiting(range(2))
    target = seam.queue()
    session, xid = client.connection.xa_session(), branch()
    inbox = await inbox_of(client, session, queue)
    await bounded(session.resource().start(xid, Flags.NOFLAGS))
    await receive(inbox, 2)
    session.send(texts(target, inbox.texts))
    await bounded(session.resource().end(xid, Flags.SUCCESS))
    assert await bounded(session.resource().prepare(xid)) is Vote.OK
    resource, other = await sent(client, target, ["rolled back"])
    assert await bounded(resource.prepare(other)) is Vote.OK
    await seam.restart()
    await seam.has_left(queue, [])
    resource = (await seam.connect()).connection.xa_session().resource()
    assert {xid, other} <= set(await bounded(resource.recover()))
    await bounded(resource.commit(xid, False))
    await bounded(resource.rollback(other))
    assert not {xid, other}.intersection(await bounded(resource.recover()))
    await seam.has_left(queue, [])
    await seam.has_left(target, ["0", "1"])
