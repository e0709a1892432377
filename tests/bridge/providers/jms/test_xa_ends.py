"""What happens to branches in ActiveMQ when who started them goes: a session, a connection, a
process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

from bridge.providers.jms.connection import JMSConnection
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.provider import Flags, Xid
from tests.bridge.providers.jms.branches import (
    Branch,
    branch,
    connect,
    left,
    provider_at,
    put,
    queue,
    texts,
)
from tests.bridge.providers.jms.stubs import GUEST
from tests.contract.backends.relay import Relay
from tests.on_reactor import on_reactor
from tests.servers import activemq

pytestmark = pytest.mark.brokers

ROOT = Path(__file__).parents[4]


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
    assert {one, other} <= set(await again.recover())
    for xid in (one, other):
        await (again.commit(xid, False) if decision == "commit" else again.rollback(xid))
    assert not {one, other} & set(await again.recover())
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
from gateway.messaging.provider import Flags, Xid
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
    there, out, one, other = (
        queue(),
        queue(),
        Xid(0x5354, os.urandom(16), b"1"),
        Xid(0x5354, os.urandom(16), b"1"),
    )
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
    assert {one, other} <= set(await resource.recover())
    for xid in (one, other):
        await (resource.commit(xid, False) if decision == "commit" else resource.rollback(xid))
    assert not {one, other} & set(await resource.recover())
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
