"""XA sessions against ActiveMQ: what is true of it beyond the contract."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from bridge.providers.jms.connection import JMSConnection
from bridge.providers.jms.failures import NoXAFactory, XAFactoryOnly
from gateway.messaging.errors import MessagingError, NotSupported, ProviderUnavailable
from gateway.messaging.provider import ConsumerSpec, Flags, Mode, Vote, XAResource, Xid
from tests.bridge.providers.jms.branches import (
    Branch,
    branch,
    connect,
    left,
    nothing_left,
    provider_at,
    put,
    queue,
    refused,
    source_of,
    texts,
)
from tests.bridge.providers.jms.stubs import GUEST, not_lost, told
from tests.contract.backends.relay import Relay
from tests.contract.waiting import until
from tests.on_reactor import on_reactor
from tests.servers import ActiveMQ, activemq, started

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
    there, connection, source = await source_of(*range(5))
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
    there, connection, source = await source_of(*range(6))
    for attempt, prepare in ((1, False), (2, True), (3, False)):
        xid = await source.worked(4)
        assert (source.bodies, source.attempts) == (["0", "1", "2", "3"], [attempt] * 4)
        if prepare:
            await source.resource.prepare(xid)
        await source.resource.rollback(xid)
    assert await source.taken(6) == ["0", "1", "2", "3", "4", "5"]
    assert source.attempts == [4, 4, 4, 4, 1, 1]
    await nothing_left(connection, there)


@on_reactor
async def test_what_was_delivered_and_not_acknowledged_cannot_be_committed() -> None:
    there, connection, source = await source_of(*range(3))
    xid = branch()
    await source.resource.start(xid, Flags.NOFLAGS)
    await source.receive(3)
    source.consumer.acknowledge_through(2)
    ended, prepared = source.resource.end(xid, Flags.SUCCESS), source.resource.prepare(xid)
    said = "not everything that was delivered in the branch was acknowledged"
    await refused(-6, ended, prepared, source.resource.commit(xid, True), match=said)
    await source.resource.rollback(xid)
    assert await source.taken(3) == ["0", "1", "2"]
    assert source.attempts == [2, 2, 2]
    await nothing_left(connection, there)


@on_reactor
async def test_a_consumer_that_is_stopped_still_delivers_what_the_branch_has() -> None:
    there, connection, source = await source_of(*range(20))
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
    await nothing_left(connection, there)


@on_reactor
async def test_what_arrives_for_a_branch_that_is_ending_is_not_of_the_next() -> None:
    there, connection, source = await source_of(*range(20))
    one, other = branch(), branch()
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
    await nothing_left(connection, there)


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
        await refused(-4, source.resource.commit(xid, False))
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
    await refused(100, resource.prepare(xid), resource.commit(xid, True))
    await resource.rollback(xid)
    await nothing_left(connection, there)


@on_reactor
async def test_what_cannot_be_asked_now() -> None:
    connection, there = await connect(), queue()
    session = connection.xa_session()
    resource, one, other = session.resource(), branch(), branch()
    with pytest.raises(NotSupported, match="send outside of a branch"):
        session.send(texts(there, ["x"]))
    for ask in (session.commit, session.rollback):
        with pytest.raises(NotSupported):
            ask(lambda error: None)
    with pytest.raises(NotSupported):
        session.consumer(ConsumerSpec(there, browse=True), lambda *_: None, not_lost)
    session.recover()
    # ActiveMQ knows nothing of the branch and says the latter as XAER_RMFAIL, though it is there.
    await refused(-4, resource.commit(one, False), resource.rollback(one))
    await refused(-7, resource.prepare(one))
    await resource.start(one, Flags.NOFLAGS)
    await refused(-6, resource.start(other, Flags.NOFLAGS), resource.prepare(one))
    await refused(-6, resource.commit(one, True), resource.rollback(one))
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
    await refused(-6, resource.start(other, Flags.NOFLAGS), resource.end(other, Flags.SUCCESS))
    await refused(-6, resource.prepare(other))
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
    await (source.resource.commit(xid, True) if commit else source.resource.rollback(xid))
    await one.close()
    await other.close()
    await left(out, ["1"] if commit else [])
    await left(there, [] if commit else ["1"])


@pytest.mark.parametrize("first", ["commit", "rollback"])
@on_reactor
async def test_another_branch_before_the_first_is_decided(first: str) -> None:
    there, connection, source = await source_of(*range(6))
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
    await nothing_left(connection, there)


@on_reactor
async def test_a_branch_that_has_received_cannot_be_suspended() -> None:
    there, connection, source = await source_of("1")
    xid = branch()
    await source.resource.start(xid, Flags.NOFLAGS)
    await source.receive(1)
    await refused(-6, source.resource.end(xid, Flags.SUSPEND), match="cannot be suspended")
    source.acknowledge()
    await source.resource.end(xid, Flags.SUCCESS)
    await source.resource.commit(xid, True)
    await nothing_left(connection, there)


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


# --- when who started a branch goes: a session, a connection, a process


ROOT = Path(__file__).parents[4]


async def decided(resource: XAResource, decision: str, *branches: Xid) -> None:
    """Commit or roll back branches; then they are no longer listed."""
    assert set(branches) <= set(await resource.recover())
    for xid in branches:
        await (resource.commit(xid, False) if decision == "commit" else resource.rollback(xid))
    assert not set(branches) & set(await resource.recover())


@pytest.mark.parametrize("decision", ["commit", "rollback"])
@on_reactor
async def test_a_prepared_branch_outlives_its_connection(decision: str) -> None:
    there, out, one, other = queue(), queue(), branch(), branch()
    await put(there, range(3))
    connection = await connect()
    source, target = Branch(connection, there), connection.xa_session()
    await source.resource.start(one, Flags.NOFLAGS)
    await target.resource().start(other, Flags.NOFLAGS)
    target.send(texts(out, await source.receive(2)))
    source.acknowledge()
    for resource, xid in ((source.resource, one), (target.resource(), other)):
        await resource.end(xid, Flags.SUCCESS)
        await resource.prepare(xid)
    await connection.close()
    # What it has received is locked, what it has sent not to be seen.
    await left(there, ["2"])
    await left(out, [])
    again = (await connect()).xa_session().resource()
    await decided(again, decision, one, other)
    await left(out, ["0", "1"] if decision == "commit" else [])
    await left(there, [] if decision == "commit" else ["0", "1"])


@pytest.mark.parametrize("prepared", [True, False])
@on_reactor
async def test_a_connection_that_is_lost(prepared: bool) -> None:
    there, out, one, other = queue(), queue(), branch(), branch()
    await put(there, range(2))
    server = await deferToThread(activemq)
    relay = Relay(server.openwire_port)
    lost: Deferred[MessagingError] = Deferred()
    connection = await provider_at(relay.entrance).connect(GUEST, None, lost.callback)
    assert isinstance(connection, JMSConnection)
    source, target = Branch(connection, there), connection.xa_session()
    for resource, xid in ((source.resource, one), (target.resource(), other)):
        await resource.start(xid, Flags.NOFLAGS)
    target.send(texts(out, await source.receive(2)))
    source.acknowledge()
    for resource, xid in ((source.resource, one), (target.resource(), other)):
        await resource.end(xid, Flags.SUCCESS)
        if prepared:
            await resource.prepare(xid)
    relay.drop()
    assert isinstance(await lost, ProviderUnavailable)
    for call in (
        source.resource.commit(one, False),
        target.resource().rollback(other),
        target.resource().recover(),
    ):
        with pytest.raises(ProviderUnavailable):
            await call
    await connection.close()
    await relay.stop()
    again = (await connect()).xa_session().resource()
    assert ({one, other} <= set(await again.recover())) is prepared
    if prepared:
        await again.commit(one, False)
        await again.commit(other, False)
    assert not {one, other} & set(await again.recover())
    await left(there, [] if prepared else ["0", "1"])
    await left(out, ["0", "1"] if prepared else [])


PROGRAM = """
import sys
from twisted.internet import defer, reactor
from gateway.messaging.destination import Queue
from gateway.messaging.provider import Flags, XAResource, Xid
from tests.bridge.providers.jms.stubs import GUEST
from tests.bridge.providers.jms.branches import Branch, provider_at, texts

async def main(port, source, target, one, other):
    connection = await provider_at(int(port)).connect(GUEST, None, print)
    receiving, sending = Branch(connection, Queue(source)), connection.xa_session()
    one, other = (Xid(0x5354, bytes.fromhex(part), b"1") for part in (one, other))
    await receiving.resource.start(one, Flags.NOFLAGS)
    await sending.resource().start(other, Flags.NOFLAGS)
    sending.send(texts(Queue(target), await receiving.receive(3)))
    receiving.acknowledge()
    for resource, xid in ((receiving.resource, one), (sending.resource(), other)):
        await resource.end(xid, Flags.SUCCESS)
        await resource.prepare(xid)
    print("prepared", flush=True)

reactor.callWhenRunning(lambda: defer.ensureDeferred(main(*sys.argv[1:])))
reactor.run()
"""


@pytest.mark.parametrize("decision", ["commit", "rollback"])
@on_reactor
async def test_a_process_that_is_killed_leaves_what_it_prepared(decision: str) -> None:
    there, out = queue(), queue()
    one, other = (Xid(0x5354, os.urandom(16), b"1") for _ in range(2))
    await put(there, range(4))
    port = (await deferToThread(activemq)).openwire_port
    arguments = [str(port), there.name, out.name, one.gtrid.hex(), other.gtrid.hex()]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = await deferToThread(process.stdout.readline)
        process.kill()
    assert said == "prepared\n"
    await left(there, ["3"])
    resource = (await connect()).xa_session().resource()
    await decided(resource, decision, one, other)
    await left(out, ["0", "1", "2"] if decision == "commit" else [])
    await left(there, [] if decision == "commit" else ["0", "1", "2"])


@pytest.mark.parametrize("ended", [True, False])
@on_reactor
async def test_a_session_that_is_closed_rolls_back_what_it_has_not_prepared(ended: bool) -> None:
    there, out, xid = queue(), queue(), branch()
    await put(there, range(3))
    connection = await connect()
    source = Branch(connection, there)
    await source.resource.start(xid, Flags.NOFLAGS)
    source.session.send(texts(out, await source.receive(2)))
    source.acknowledge()
    if ended:
        await source.resource.end(xid, Flags.SUCCESS)
    source.session.close()
    # The session's thread has done so when another session of the connection can do the same.
    await source.session.channel.ended
    await left(there, ["0", "1", "2"])
    await left(out, [])
    await connection.close()
