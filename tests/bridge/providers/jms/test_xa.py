"""XA sessions against ActiveMQ: what is true of it beyond the contract."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from bridge.providers.jms.failures import NoXAFactory, XAFactoryOnly
from gateway.messaging.errors import NotSupported, XAError
from gateway.messaging.provider import Flags, Mode, Subscription, Vote
from tests.bridge.providers.jms.branches import (
    Branch,
    branch,
    connect,
    left,
    not_lost,
    provider_at,
    put,
    queue,
    texts,
)
from tests.bridge.providers.jms.stubs import GUEST, told
from tests.contract.waiting import until
from tests.on_reactor import on_reactor
from tests.servers import ActiveMQ, started

pytestmark = pytest.mark.brokers


class Another(ActiveMQ):
    """A broker with a store of its own."""


@on_reactor
async def test_what_is_sent_in_a_branch_is_there_after_its_commit() -> None:
    connection, there = await connect(), queue()
    session, xid = connection.xa_session(), branch()
    resource = session.resource()
    # Nothing is waited for: all of it is done in the order asked.
    started = resource.start(xid, Flags.NOFLAGS)
    messages = texts(there, range(3))
    session.send(messages)
    ended, prepared = resource.end(xid, Flags.SUCCESS), resource.prepare(xid)
    await started
    await ended
    assert await prepared is Vote.OK
    assert all(message.message_id and message.timestamp for message in messages)
    assert xid in await resource.recover()
    await left(there, [])
    await resource.commit(xid, False)
    assert xid not in await resource.recover()
    await connection.close()
    await left(there, ["0", "1", "2"])


@on_reactor
async def test_what_is_another_resource_manager_is_asked_of_the_provider() -> None:
    one, other = (await connect()).xa_session(), (await connect()).xa_session()
    # Nobody has opened it yet.
    assert await one.resource().is_same_rm(other.resource()) is False
    assert await other.resource().is_same_rm(one.resource()) is True
    another = await deferToThread(started, Another)
    elsewhere: Any = await provider_at(another.openwire_port).connect(GUEST, None, not_lost)
    assert await elsewhere.xa_session().resource().is_same_rm(one.resource()) is False


@on_reactor
async def test_what_is_received_in_a_branch_is_gone_after_its_commit() -> None:
    there = queue()
    await put(there, range(5))
    connection = await connect()
    source = Branch(connection, there)
    xid = await source.worked(3)
    assert source.bodies == ["0", "1", "2"]
    assert await source.resource.prepare(xid) is Vote.OK
    await source.resource.commit(xid, False)
    await connection.close()
    await left(there, ["3", "4"])


@on_reactor
async def test_several_branches_one_after_the_other_on_one_session() -> None:
    there, out = queue(), queue()
    await put(there, range(30))
    connection = await connect()
    source, target = Branch(connection, there), connection.xa_session()
    for number in range(10):
        one, other = branch(), branch()
        started = (
            source.resource.start(one, Flags.NOFLAGS),
            target.resource().start(other, Flags.NOFLAGS),
        )
        found = await source.receive(3)
        source.acknowledge()
        target.send(texts(out, found))
        ended = source.resource.end(one, Flags.SUCCESS), target.resource().end(other, Flags.SUCCESS)
        assert await source.resource.prepare(one) is Vote.OK
        assert await target.resource().prepare(other) is Vote.OK
        done = source.resource.commit(one, False), target.resource().commit(other, False)
        for each in (*started, *ended, *done):
            await each
        assert source.attempts == [1, 1, 1], number
    await connection.close()
    await left(out, [str(number) for number in range(30)])
    await left(there, [])


@on_reactor
async def test_a_rollback_gives_back_what_was_received_in_order_and_redelivered() -> None:
    there = queue()
    await put(there, range(6))
    connection = await connect()
    source = Branch(connection, there)
    for attempt, prepare in ((1, False), (2, True), (3, False)):
        xid = await source.worked(4)
        assert source.bodies == ["0", "1", "2", "3"]
        assert source.attempts == [attempt] * 4
        if prepare:
            await source.resource.prepare(xid)
        await source.resource.rollback(xid)
    assert await source.taken(6) == ["0", "1", "2", "3", "4", "5"]
    assert source.attempts == [4, 4, 4, 4, 1, 1]
    await connection.close()
    await left(there, [])


@on_reactor
async def test_what_was_delivered_and_not_acknowledged_cannot_be_committed() -> None:
    there = queue()
    await put(there, range(3))
    connection = await connect()
    source, xid = Branch(connection, there), branch()
    await source.resource.start(xid, Flags.NOFLAGS)
    await source.receive(3)
    source.consumer.acknowledge_through(2)
    ended, prepared = source.resource.end(xid, Flags.SUCCESS), source.resource.prepare(xid)
    for call in (ended, prepared, source.resource.commit(xid, True)):
        with pytest.raises(
            XAError, match="not everything that was delivered in the branch was acknowledged"
        ) as refused:
            await call
        assert refused.value.code == -6
    await source.resource.rollback(xid)
    assert await source.taken(3) == ["0", "1", "2"]
    assert source.attempts == [2, 2, 2]
    await connection.close()
    await left(there, [])


@on_reactor
async def test_a_consumer_that_is_stopped_still_delivers_what_the_branch_has() -> None:
    there = queue()
    await put(there, range(20))
    connection = await connect()
    source = Branch(connection, there)
    taken: list[str] = []
    while len(taken) < 20:
        xid = branch()
        await source.resource.start(xid, Flags.NOFLAGS)
        # More than is waited for, so that some are on their way when the consumer is stopped.
        await source.receive(1, credit=20)
        source.consumer.stop()
        assert await told(source.session.completion) is None
        taken += source.bodies
        source.acknowledge()
        await source.resource.end(xid, Flags.SUCCESS)
        await source.resource.commit(xid, True)
        source.consumer.start()
    assert taken == [str(number) for number in range(20)]
    await connection.close()
    await left(there, [])


@on_reactor
async def test_what_arrives_for_a_branch_that_is_ending_is_not_of_the_next() -> None:
    there = queue()
    await put(there, range(20))
    connection = await connect()
    source, one, other = Branch(connection, there), branch(), branch()
    await source.resource.start(one, Flags.NOFLAGS)
    await source.receive(1, credit=20)
    source.acknowledge()
    # Some of it may be on its way.
    ended, rolled_back = source.resource.end(one, Flags.FAIL), source.resource.rollback(one)
    source.messages, source.attempts = [], []
    await source.resource.start(other, Flags.NOFLAGS)
    await ended
    await rolled_back
    source.consumer.grant(20)
    await until(lambda: len(source.messages) == 20)
    assert source.bodies == [str(number) for number in range(20)]
    source.acknowledge()
    await source.resource.end(other, Flags.SUCCESS)
    await source.resource.commit(other, True)
    await connection.close()
    await left(there, [])


@on_reactor
async def test_a_branch_ends_at_once_though_its_consumer_waits() -> None:
    connection, there = await connect(), queue()
    source = Branch(connection, there)
    source.consumer.grant(10)
    for _ in range(20):
        xid = branch()
        await source.resource.start(xid, Flags.NOFLAGS)
        await source.resource.end(xid, Flags.SUCCESS)
        assert await source.resource.prepare(xid) is Vote.READ_ONLY
        with pytest.raises(XAError) as unknown:
            await source.resource.commit(xid, False)
        assert unknown.value.code == -4
    # Between branches nothing is received.
    await put(there, ["later"])
    assert source.messages == []
    await connection.close()
    await left(there, ["later"])


@on_reactor
async def test_a_branch_that_failed_is_rolled_back_only() -> None:
    connection, there = await connect(), queue()
    session, xid = connection.xa_session(), branch()
    resource = session.resource()
    await resource.start(xid, Flags.NOFLAGS)
    session.send(texts(there, ["never"]))
    await resource.end(xid, Flags.FAIL)
    for call in (resource.prepare(xid), resource.commit(xid, True)):
        with pytest.raises(XAError) as doomed:
            await call
        assert doomed.value.code == 100
    await resource.rollback(xid)
    await connection.close()
    await left(there, [])


@on_reactor
async def test_what_cannot_be_asked_now() -> None:
    connection, there = await connect(), queue()
    session = connection.xa_session()
    resource, one, other = session.resource(), branch(), branch()
    with pytest.raises(NotSupported, match="send outside of a branch"):
        session.send(texts(there, ["x"]))
    with pytest.raises(NotSupported):
        session.commit(lambda error: None)
    with pytest.raises(NotSupported):
        session.rollback(lambda error: None)
    with pytest.raises(NotSupported):
        session.consumer(Subscription(there, browse=True), lambda *_: None, not_lost)
    session.recover()
    # ActiveMQ knows nothing of the branch and says the latter as XAER_RMFAIL, though it is there.
    for unknown, code in (
        (resource.commit(one, False), -4),
        (resource.rollback(one), -4),
        (resource.prepare(one), -7),
    ):
        with pytest.raises(XAError) as error:
            await unknown
        assert error.value.code == code
    await resource.start(one, Flags.NOFLAGS)
    for early in (
        resource.start(other, Flags.NOFLAGS),
        resource.prepare(one),
        resource.commit(one, True),
        resource.rollback(one),
    ):
        with pytest.raises(XAError) as error:
            await early
        assert error.value.code == -6
    with pytest.raises(NotSupported):
        session.recover()
    session.send(texts(there, ["sent"]))
    await resource.end(one, Flags.SUCCESS)
    with pytest.raises(NotSupported, match="send outside of a branch"):
        session.send(texts(there, ["x"]))
    await resource.commit(one, True)
    await connection.close()
    await left(there, ["sent"])


@on_reactor
async def test_what_is_asked_of_a_branch_that_was_not_started_fails() -> None:
    connection = await connect()
    resource, one, other = connection.xa_session().resource(), branch(), branch()
    await resource.start(one, Flags.NOFLAGS)
    calls: list[Deferred[Any]] = [
        resource.start(other, Flags.NOFLAGS),
        resource.end(other, Flags.SUCCESS),
        resource.prepare(other),
    ]
    for call in calls:
        with pytest.raises(XAError) as error:
            await call
        assert error.value.code == -6
    await resource.end(one, Flags.SUCCESS)
    await resource.rollback(one)
    await connection.close()


@on_reactor
async def test_a_branch_that_was_suspended_goes_on() -> None:
    connection, there = await connect(), queue()
    session, xid = connection.xa_session(), branch()
    resource = session.resource()
    await resource.start(xid, Flags.NOFLAGS)
    session.send(texts(there, ["before"]))
    await resource.end(xid, Flags.SUSPEND)
    with pytest.raises(NotSupported):
        session.send(texts(there, ["x"]))
    await resource.start(xid, Flags.RESUME)
    session.send(texts(there, ["behind"]))
    await resource.end(xid, Flags.SUCCESS)
    await resource.prepare(xid)
    await resource.commit(xid, False)
    await connection.close()
    await left(there, ["before", "behind"])


@pytest.mark.parametrize("commit", [True, False])
@on_reactor
async def test_two_connections_join_in_one_branch(commit: bool) -> None:
    there, out, xid = queue(), queue(), branch()
    await put(there, ["1"])
    one, other = await connect(), await connect()
    source, target = Branch(one, there), other.xa_session()
    await source.resource.start(xid, Flags.NOFLAGS)
    await target.resource().start(xid, Flags.JOIN)
    target.send(texts(out, await source.receive(1)))
    source.acknowledge()
    await target.resource().end(xid, Flags.SUCCESS)
    await source.resource.end(xid, Flags.SUCCESS)
    if commit:
        await source.resource.commit(xid, True)
    else:
        await source.resource.rollback(xid)
    await one.close()
    await other.close()
    await left(out, ["1"] if commit else [])
    await left(there, [] if commit else ["1"])


@pytest.mark.parametrize("first", ["commit", "rollback"])
@on_reactor
async def test_another_branch_before_the_first_is_decided(first: str) -> None:
    there = queue()
    await put(there, range(6))
    connection = await connect()
    source = Branch(connection, there)
    one, other = await source.worked(2), await source.worked(2)
    if first == "commit":
        await source.resource.commit(one, True)
        await source.resource.rollback(other)
    else:
        await source.resource.rollback(one)
        await source.resource.commit(other, True)
    assert await source.taken(4) == (
        ["2", "3", "4", "5"] if first == "commit" else ["0", "1", "4", "5"]
    )
    assert source.attempts == [2, 2, 1, 1]
    await connection.close()
    await left(there, [])


@on_reactor
async def test_a_branch_that_has_received_cannot_be_suspended() -> None:
    there = queue()
    await put(there, ["1"])
    connection = await connect()
    source, xid = Branch(connection, there), branch()
    await source.resource.start(xid, Flags.NOFLAGS)
    await source.receive(1)
    with pytest.raises(XAError, match="cannot be suspended") as error:
        await source.resource.end(xid, Flags.SUSPEND)
    assert error.value.code == -6
    source.acknowledge()
    await source.resource.end(xid, Flags.SUCCESS)
    await source.resource.commit(xid, True)
    await connection.close()
    await left(there, [])


@on_reactor
async def test_a_factory_is_for_xa_or_it_is_not() -> None:
    plain, xa = await connect("ConnectionFactory"), await connect()
    with pytest.raises(
        NoXAFactory,
        match=r"'ConnectionFactory' is a org\.apache\.activemq\.ActiveMQConnectionFactory, not the",
    ):
        plain.xa_session()
    with pytest.raises(
        XAFactoryOnly,
        match=r"'XAConnectionFactory' is a org\.apache\.activemq\.ActiveMQXAConnectionFactory, an",
    ):
        xa.session(Mode.TRANSACTED)
    await plain.close()
    await xa.close()
