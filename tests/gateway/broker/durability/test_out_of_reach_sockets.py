"""A database that cannot be reached, over real sockets.

What clients are sent, and how much is read of those that send on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import reactor
from twisted.internet.endpoints import (
    HostnameEndpoint,
    TCP4ClientEndpoint,
    connectProtocol,
    wrapClientTLS,
)
from twisted.internet.task import deferLater

from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.recovery import open_broker
from gateway.broker.security.access import DEFAULT_RULES, AccessRules
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.broker.store.interface import StoreError
from gateway.reactor.turn import Turn
from gateway.stomp.service import StompService
from gateway.stomp.settings import SessionOptions, StompOptions, TransportOptions
from tests.gateway.broker.brokers import EveryoneIn
from tests.gateway.broker.durability.test_out_of_reach_stomp import named
from tests.gateway.broker.step_store import Disk, StepStore
from tests.gateway.stomp.test_service import CERTIFICATES, CONNECT, SocketClient
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

clock: Any = reactor
MIB = 1024 * 1024
#: Of one read, at most, and of what was read and not yet looked at.
SLICE = 512 * 1024
SUBSCRIBE = b"SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n\0"


class Gateway:
    """A STOMP bridge over a broker whose disk commits while a test waits."""

    def __init__(self, folder: Path) -> None:
        self.store = StepStore(Disk())
        self.turn = Turn(clock)
        self.failures: list[StoreError] = []
        self.broker = open_broker(
            clock, self.turn, self.store, BrokerOptions(reap_time=0), self.failures.append
        )
        rules = AccessRules(folder / "accesscontrol.properties")
        rules.path.write_text(DEFAULT_RULES)
        rules.load()
        self.stomp = StompService(
            clock,
            self.turn,
            EmbeddedProvider(self.broker, EveryoneIn(), rules, bytes),
            StompOptions(
                hostname="127.0.0.1",
                tcp_port=0,
                tls_port=0,
                tls_enabled=True,
                session=SessionOptions(heartbeat_send_ms=50, heartbeat_receive_ms=50),
                transport=TransportOptions(connect_timeout_s=3),
            ),
            lambda _: CERTIFICATES.server(),
        )

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition; the disk does what it is asked meanwhile."""
        while not condition():
            while self.store.busy:
                self.store.step()
            await deferLater(clock, 0.005, lambda: None)

    async def pass_time(self, seconds: float) -> None:
        """Let so much time pass."""
        end = clock.seconds() + seconds
        await self.until(lambda: clock.seconds() >= end)

    async def client(self, tls: bool = False, heartbeat: str = "") -> SocketClient:
        """A client that has asked for CONNECTED."""
        if tls:
            endpoint: Any = wrapClientTLS(
                CERTIFICATES.client(),
                HostnameEndpoint(clock, "127.0.0.1", self.stomp.ports["tls"]),
            )
        else:
            endpoint = TCP4ClientEndpoint(clock, "127.0.0.1", self.stomp.ports["tcp"])
        client: SocketClient = await connectProtocol(endpoint, SocketClient())  # type: ignore[no-untyped-call]
        client.say(CONNECT.replace(b"\n\n", f"\n{heartbeat}\n".encode()))
        return client

    async def connected(self, tls: bool = False, heartbeat: str = "") -> SocketClient:
        client = await self.client(tls, heartbeat)
        await self.until(lambda: client.frames)
        assert heard(client) == ["CONNECTED"]
        return client


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Gateway]:
    gateway = Gateway(folder)
    await gateway.stomp.start()
    try:
        yield gateway
    finally:
        await gateway.stomp.stop()


def heard(client: SocketClient) -> list[str]:
    """What has come since the last call."""
    frames, client.frames = client.frames, []
    return named(frames)


def send(number: int, persistent: bool = True, body: str = "") -> bytes:
    told = "true" if persistent else "false"
    text = f"SEND\ndestination:/queue/q\npersistent:{told}\nreceipt:r{number}\n\n{body or number}\0"
    return text.encode()


@pytest.mark.parametrize("tls", [False, True])
@on_reactor
async def test_nothing_but_heart_beats_comes_until_all_comes_in_order(
    tls: bool, tmp_path: Path
) -> None:
    async with running(tmp_path) as gateway:
        # Silent for twice a second, a client is dropped while it can be read.
        beats = "heart-beat:1000,100\n"
        sender, receiver = await gateway.connected(tls, beats), await gateway.connected(tls, beats)
        octets = {sender: 0, receiver: 0}
        for client in octets:

            def counted(data: bytes, client: SocketClient = client) -> None:
                octets[client] += len(data)
                SocketClient.dataReceived(client, data)

            client.dataReceived = counted  # type: ignore[method-assign]
        receiver.say(SUBSCRIBE)
        sender.say(send(1))
        await gateway.until(lambda: receiver.frames and sender.frames)
        assert (heard(sender), heard(receiver)) == (["r1"], ["1"])
        gateway.store.lose_reach()
        before, lost = dict(octets), clock.seconds()
        for number in range(2, 12):
            sender.say(send(number, persistent=bool(number % 3)))
        # A starved machine makes fewer heart-beats a second, so they are counted, not timed.
        while (
            any(octets[client] - before[client] < 9 for client in octets)
            or clock.seconds() - lost < 2.5
        ):
            receiver.say(b"\n")
            await gateway.pass_time(0.1)
        for client in octets:
            assert (client.frames, client.is_lost) == ([], False)
        gateway.store.reach()
        await gateway.until(lambda: len(sender.frames) >= 10 and len(receiver.frames) >= 10)
        numbers = range(2, 12)
        assert heard(sender) == [f"r{number}" for number in numbers]
        assert heard(receiver) == [f"{number}" for number in numbers]


@pytest.mark.parametrize("tls", [False, True])
@on_reactor
async def test_of_clients_that_flood_no_more_is_read_than_a_slice_each(
    tls: bool, tmp_path: Path
) -> None:
    async with running(tmp_path) as gateway:
        clients = [await gateway.connected(tls) for _ in range(3)]
        gateway.store.lose_reach()
        before = gateway.stomp.counters.octets_in
        count = 100
        frames = b"".join([send(number, body="x" * 64 * 1024) for number in range(count)])
        for client in clients:
            client.say(frames)
        read = 0
        while not read or read != gateway.stomp.counters.octets_in - before:
            read = gateway.stomp.counters.octets_in - before
            await gateway.pass_time(0.5)
        assert read <= len(clients) * SLICE
        assert gateway.broker.waiting_octets() == 0, "none of it is accepted"
        gateway.store.reach()
        await gateway.until(lambda: all(len(client.frames) >= count for client in clients))
        for client in clients:
            assert heard(client) == [f"r{number}" for number in range(count)]
        assert len(gateway.store.disk.rows) == len(clients) * count


@pytest.mark.parametrize("tls", [False, True])
@on_reactor
async def test_a_new_client_is_connected_when_the_database_is_reached(
    tls: bool, tmp_path: Path
) -> None:
    async with running(tmp_path) as gateway:
        gateway.store.lose_reach()
        client = await gateway.client(tls)
        await gateway.pass_time(3.5)
        assert (client.frames, client.is_lost) == ([], False)
        gateway.store.reach()
        await gateway.until(lambda: client.frames)
        assert heard(client) == ["CONNECTED"]


@on_reactor
async def test_what_a_client_sends_before_it_goes_is_taken_then(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        client = await gateway.connected()
        gateway.store.lose_reach()
        client.say(send(1), send(2))
        assert client.transport is not None
        client.transport.loseConnection()
        await gateway.pass_time(0.2)
        assert gateway.store.disk.rows == {}
        gateway.store.reach()
        await gateway.until(lambda: len(gateway.store.disk.rows) == 2)


@on_reactor
async def test_the_bridge_and_the_store_stop_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway:
        client, idle = await gateway.connected(), await gateway.connected()
        client.say(send(1))
        while not gateway.store.busy:
            await deferLater(clock, 0.005, lambda: None)
        gateway.store.lose_reach()
        client.say(send(2))
        began = clock.seconds()
        await gateway.stomp.stop("the gateway stops")
        assert clock.seconds() - began < 5
        for each in (client, idle):
            await each.lost
            assert [frame.head.command for frame in each.frames] == ["ERROR"]
        closed: list[int] = []
        gateway.broker.close(lambda: closed.append(1))
        assert (closed, gateway.failures) == ([1], [])
