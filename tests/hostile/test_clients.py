"""Clients that do not read, that come in crowds, or that speak TLS where they should not, or do not
where they should.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from contextlib import ExitStack

import pytest

from tests.crash.client import PATIENCE, Client, Gone, Refused, encode
from tests.crash.waiting import until, until_logged
from tests.gateway_process import Certificates, GatewayProcess
from tests.hostile.bystander import Bystander
from tests.hostile.memory import MIB, connections, resident

pytestmark = pytest.mark.usefixtures("bystander")


def trusting(certificates: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates.ca))


# Clients that do not read.


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
@pytest.mark.parametrize(
    ("octets", "count"), [(100, 100_000), (100_000, 2_000)], ids=["small", "large"]
)
def test_a_consumer_that_never_reads(
    ack: str, octets: int, count: int, gateway: GatewayProcess, bystander: Bystander
) -> None:
    """What is sent to its queue waits there, in memory up to a bound; others go on."""
    queue = f"/queue/hostile.{ack}.{octets}"
    before = resident(gateway.pid)
    with Client(gateway.port, receive_buffer=4096) as reader, Client(gateway.port) as producer:
        reader.write(encode("SUBSCRIBE", {"destination": queue, "id": "1", "ack": ack}))
        frame = encode("SEND", {"destination": queue}, b"x" * octets)
        run = max(1, min(1000, MIB // octets))
        for _ in range(count // run):
            producer.write(frame * run)
        producer.store(queue, b"the last", persistent="false")
        bystander.trips(5)
        grown = resident(gateway.pid) - before
        # Of a message that waits on disk its number stays in memory.
        assert grown < 160 * MIB + 16 * count, (
            f"{grown // MIB} MiB for {count} messages of {count * octets // MIB} MiB"
        )
    with Client(gateway.port) as consumer:
        consumer.ask("SUBSCRIBE", {"destination": queue, "id": "1", "ack": "auto"})
        while consumer.message().body != b"the last":
            pass


@pytest.mark.long
def test_a_consumer_that_never_reads_millions(
    gateway: GatewayProcess, bystander: Bystander
) -> None:
    test_a_consumer_that_never_reads("client", 100, 3_000_000, gateway, bystander)


def test_a_subscriber_of_a_topic_that_never_reads(
    gateway: GatewayProcess, bystander: Bystander
) -> None:
    before = resident(gateway.pid)
    topic = "/topic/hostile.unread"
    with (
        Client(gateway.port, receive_buffer=4096) as reader,
        Client(gateway.port) as other,
        Client(gateway.port) as producer,
    ):
        reader.ask("SUBSCRIBE", {"destination": topic, "id": "1"})
        other.ask("SUBSCRIBE", {"destination": topic, "id": "1"})
        frame = encode("SEND", {"destination": topic}, b"x" * 10_000)
        for _ in range(200):
            producer.write(frame * 100)
            for _ in range(100):
                assert len(other.message().body) == 10_000
        assert resident(gateway.pid) - before < 160 * MIB


def test_a_client_that_never_reads_its_receipts(
    gateway: GatewayProcess, bystander: Bystander
) -> None:
    """The gateway does not gather answers without bound for one who sends and sends and never
    reads.
    """
    before = resident(gateway.pid)
    with Client(gateway.port, receive_buffer=4096) as client:
        client.socket.settimeout(2)
        frames = b"".join(
            encode("SEND", {"destination": "/queue/hostile.receipts", "receipt": "r" * 9000}, b"")
            for _ in range(100)
        )
        try:
            for _ in range(400):
                client.write(frames)
        except (TimeoutError, Gone):
            pass  # no more is read from it, or it was dropped
        bystander.trips(5)
        assert resident(gateway.pid) - before < 320 * MIB


def test_a_client_that_never_reads_its_error(gateway: GatewayProcess, bystander: Bystander) -> None:
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(Client(gateway.port, receive_buffer=4096))
            client.write(b"NONSENSE\n\n\0" * 1000)
        bystander.trips(5)
    until(
        lambda: connections(gateway.port, gateway.tls_port) == 1,
        "connections with an ERROR that nobody reads stay",
    )


# Crowds.


def test_a_flood_of_connections(gateway: GatewayProcess, bystander: Bystander) -> None:
    """60 is the limit: who is one too many is told so, and when others go there is room."""
    with ExitStack() as stack:
        inside = [stack.enter_context(Client(gateway.port)) for _ in range(59)]
        for _ in range(100):
            with Client(gateway.port, connect=False) as late:
                assert "too many connections: 60" in late.error().headers["message"]
        bystander.trips(5)
        inside.pop().ask("DISCONNECT", {})
        until(lambda: can_connect(gateway), "there is no room again")
    until(lambda: connections(gateway.port, gateway.tls_port) == 1, "connections stay")


def can_connect(gateway: GatewayProcess) -> bool:
    try:
        Client(gateway.port).close()
    except (Refused, Gone):
        return False
    return True


def test_a_flood_that_says_nothing(gateway: GatewayProcess, bystander: Bystander) -> None:
    """Sockets opened and left alone take their place no longer than a client may take to
    connect.
    """
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(Client(gateway.port, connect=False))
        bystander.trips(5)
        until(lambda: can_connect(gateway), "silent connections keep their places")


def test_connections_that_come_and_go(gateway: GatewayProcess, bystander: Bystander) -> None:
    """Reset, closed half, closed at once: nothing of them stays."""
    before = resident(gateway.pid)
    for number in range(600):
        with Client(gateway.port, connect=False) as client:
            if number % 3 == 0:
                client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                client.write(b"CONNECT\n")
            elif number % 3 == 1:
                client.socket.shutdown(socket.SHUT_WR)
    until(lambda: connections(gateway.port, gateway.tls_port) == 1, "connections stay")
    bystander.trips(5)
    assert resident(gateway.pid) - before < 32 * MIB


def test_logins_that_fail_in_a_crowd(gateway: GatewayProcess, bystander: Bystander) -> None:
    """Checking a passcode is slow on purpose; it is not done where it holds up others."""
    failures = []

    def guess(number: int) -> None:
        try:
            Client(gateway.port, passcode=f"guess {number}").close()
        except Refused as refused:
            failures.append(refused)

    threads = [threading.Thread(target=guess, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    bystander.trips(20)
    for thread in threads:
        thread.join(PATIENCE)
    assert len(failures) == 20


# TLS.


def test_garbage_on_the_tls_port(gateway: GatewayProcess, bystander: Bystander) -> None:
    for number in range(30):
        octets = (b"\x16\x03\x01" if number % 2 else b"\x80\x2e") + os.urandom(500)
        with Client(gateway.tls_port, connect=False) as client:
            try:
                client.write(octets)
                client.socket.shutdown(socket.SHUT_WR)
                assert b"CONNECTED" not in b"".join(iter(lambda: client.socket.recv(4096), b""))
            except (Gone, ConnectionError):
                pass
    bystander.trips(3)


def test_stomp_on_the_tls_port_is_told(gateway: GatewayProcess) -> None:
    with Client(gateway.tls_port, connect=False) as client:
        client.write(
            encode("CONNECT", {"accept-version": "1.2", "login": "guest", "passcode": "guest"})
        )
        assert "TLS" in client.error().headers["message"]
    until_logged(gateway, "this port speaks TLS")


def test_tls_on_the_plain_port_is_told(gateway: GatewayProcess, certificates: Certificates) -> None:
    with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
        Client(gateway.port, tls=trusting(certificates))
    until_logged(gateway, "a TLS client came to the port for plain connections")


def test_a_handshake_that_never_ends(gateway: GatewayProcess, bystander: Bystander) -> None:
    """The time to be CONNECTED is that of the handshake, too."""
    with ExitStack() as stack:
        for octets in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"):
            client = stack.enter_context(Client(gateway.tls_port, connect=False))
            client.write(octets)
        until(
            lambda: connections(gateway.port, gateway.tls_port) == 1,
            "half a handshake keeps its connection",
        )


def test_a_tls_client_that_never_reads(
    gateway: GatewayProcess, certificates: Certificates, bystander: Bystander
) -> None:
    before = resident(gateway.pid)
    queue = "/queue/hostile.tls"
    with (
        Client(gateway.tls_port, tls=trusting(certificates), receive_buffer=4096) as reader,
        Client(gateway.port) as producer,
    ):
        reader.write(encode("SUBSCRIBE", {"destination": queue, "id": "1", "ack": "auto"}))
        frame = encode("SEND", {"destination": queue}, b"x" * 10_000)
        for _ in range(100):
            producer.write(frame * 100)
        producer.store(queue, b"the last", persistent="false")
        bystander.trips(5)
        assert resident(gateway.pid) - before < 160 * MIB


def test_an_endless_body_over_tls(
    gateway: GatewayProcess, certificates: Certificates, bystander: Bystander
) -> None:
    before = resident(gateway.pid)
    with Client(gateway.tls_port, tls=trusting(certificates)) as client:
        try:
            client.write(b"SEND\ndestination:/queue/hostile\n\n")
            for _ in range(50):
                client.write(b"x" * MIB)
        except Gone:
            pass
    assert resident(gateway.pid) - before < 48 * MIB


def test_a_tls_client_that_goes_without_goodbye(
    gateway: GatewayProcess, certificates: Certificates, bystander: Bystander
) -> None:
    for _ in range(10):
        with Client(gateway.tls_port, tls=trusting(certificates)) as client:
            client.store("/queue/hostile.goodbye", b"x")
            # What lies below TLS is closed, so that TLS says nothing.
            socket.socket(fileno=client.socket.detach()).close()
    until(lambda: connections(gateway.port, gateway.tls_port) == 1, "connections stay")
