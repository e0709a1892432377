"""The connection, with real brokers and without Spark: what it refuses, and how it says so."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.stomp.brokers import ACTIVEMQ, GATEWAY, RABBITMQ
from pipeline.datasource.batch_reader import StompBrowser
from pipeline.datasource.client import Client
from pipeline.datasource.errors import BrokerError, ConnectionLost, OptionError
from pipeline.datasource.options import Options, Use, parse
from tests.gateway_process import Certificates, GatewayProcess
from tests.pipeline.datasource.brokers import Broker
from tests.servers import activemq, rabbitmq

pytestmark = pytest.mark.brokers


def browse(options: dict[str, str]) -> list[bytes]:
    reader = StompBrowser(parse(options, Use.BROWSE))
    return [
        row
        for batch in reader.read(reader.partitions()[0])
        for row in batch.column("body").to_pylist()
    ]


def refused(options: dict[str, str]) -> BrokerError:
    with pytest.raises(BrokerError) as failed:
        browse(options)
    assert "\n" not in str(failed.value)
    return failed.value


@contextmanager
def served(*octets: bytes) -> Iterator[tuple[int, threading.Event]]:
    """A server that answers CONNECT with these, in a tenth of a second each.

    Gives its port, and what is set when all were sent.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        sent = threading.Event()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                for number, each in enumerate(octets):
                    time.sleep(0.1 if number else 0)
                    connection.sendall(each)
                sent.set()
                while connection.recv(1000):
                    pass

        threading.Thread(target=answer, daemon=True).start()
        yield server.getsockname()[1], sent


def test_it_knows_brokers_by_their_word(gateway: Broker) -> None:
    for options, dialect in (
        (parse(gateway.queue, Use.BROWSE), GATEWAY),
        (Options(port=activemq().port), ACTIVEMQ),
        (Options(port=activemq().port, broker="activemq"), ACTIVEMQ),
    ):
        with Client(options).open() as client:
            assert client.dialect is dialect
    with pytest.raises(
        OptionError, match=r"option broker: is 'gateway', and 127\.0\.0\.1:\d+ is activemq"
    ):
        Client(Options(port=activemq().port, broker="gateway")).open()


def test_nobody_listens(free_port: Callable[[], int]) -> None:
    port = free_port()
    error = refused({"port": str(port), "destination": "queue:a", "timeoutSeconds": "0.3"})
    assert isinstance(error, ConnectionLost)
    assert f"127.0.0.1:{port}" in str(error)
    assert "refused" in str(error)


def test_a_login_is_refused(gateway: Broker, tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("not the passcode")
    error = refused(gateway.reads(passcodeFile=tmp_path / "wrong"))
    assert f"127.0.0.1:{gateway.port} refused the login guest" in str(error)
    assert "not the passcode" not in str(error)
    assert "login" in str(refused({"port": str(gateway.port), "destination": "queue:a"}))


def test_access_is_denied(gateway: Broker) -> None:
    error = refused(gateway.reads(destination="queue:secret"))
    assert f"127.0.0.1:{gateway.port}" in str(error)
    assert "queue:secret" in str(error)
    assert "guest" in str(error)


def test_a_selector_is_wrong(gateway: Broker) -> None:
    assert gateway.name in str(refused(gateway.reads(selector="priority >")))


def test_a_broker_that_says_nothing(free_port: Callable[[], int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        error = refused(
            {"port": str(mute.getsockname()[1]), "destination": "queue:a", "timeoutSeconds": "0.5"}
        )
    assert "did not answer CONNECT within 0.5 s" in str(error)


def test_a_broker_that_speaks_something_else() -> None:
    with served(b"HTTP/1.1 400 Bad Request\r\n\r\n\0") as (port, _):
        error = refused({"port": str(port), "destination": "queue:a", "timeoutSeconds": "5"})
    assert "sent what is no STOMP" in str(error)


def test_tls_with_a_client_certificate(
    gateway: Broker, gateway_process: GatewayProcess, certificates: Certificates
) -> None:
    gateway.fill(["over TLS"])
    tls = gateway.reads(port=gateway_process.tls_port, tls="true", caFile=certificates.ca)
    own = {
        "certFile": str(certificates.client_certificate),
        "keyFile": str(certificates.client_key),
    }
    assert browse({**tls, **own}) == [b"over TLS"]
    without = refused({**tls, "timeoutSeconds": "1"})
    assert f"127.0.0.1:{gateway_process.tls_port}" in str(without)
    stranger = refused({name: value for name, value in {**tls, **own}.items() if name != "caFile"})
    assert "certificate verify failed" in str(stranger).lower().replace("_", " ")
    with pytest.raises(OptionError, match="option certFile"):
        browse({**tls, "certFile": str(certificates.ca) + "x"})
    with pytest.raises(OptionError, match="option caFile"):
        browse({**tls, **own, "caFile": "/nowhere/ca.pem"})


@pytest.mark.parametrize("server", [None, activemq])
def test_browsing_consumes_nothing(server: Callable[[], object] | None, gateway: Broker) -> None:
    broker = gateway if server is None else Broker(activemq().port, {})
    bodies = [f"m{number}" for number in range(1200)]
    broker.fill(bodies)
    expected = [body.encode() for body in bodies]
    assert browse(broker.queue) == expected
    assert browse(broker.reads(selector="number = 'm7' OR number = 'm11'")) == [b"m7", b"m11"]
    assert browse(broker.reads(maxMessages=10)) == expected[:10]
    assert browse(broker.queue) == expected
    assert browse(broker.reads(destination=f"queue:{broker.name}-empty")) == []


@pytest.mark.parametrize("server", [None, activemq])
def test_a_message_does_not_pass_for_the_end(
    server: Callable[[], object] | None, gateway: Broker
) -> None:
    broker = gateway if server is None else Broker(activemq().port, {})
    broker.fill(["a"], browser="end")
    # So large that the first is read by itself.
    large = b"b" * (1 << 20)
    with broker.client() as client:
        client.ask("SEND", {"destination": f"/queue/{broker.name}"}, large)
    assert browse(broker.queue) == [b"a", large]


def test_browsing_is_refused_where_the_broker_cannot(tmp_path: Path) -> None:
    server = rabbitmq()
    (tmp_path / "passcode").write_text("guest")
    options = {
        "port": str(server.port),
        "login": "guest",
        "passcodeFile": str(tmp_path / "passcode"),
        "destination": "queue:a",
    }
    with pytest.raises(
        OptionError,
        match=r"option browse: the broker at 127\.0\.0\.1:\d+ is rabbitmq, which cannot browse",
    ):
        browse(options)
    with Client(parse(options, Use.BROWSE)).open() as client:
        assert client.dialect is RABBITMQ


def test_a_rate_is_kept(gateway: Broker) -> None:
    gateway.fill([str(number) for number in range(30)])
    began = time.monotonic()
    assert len(browse(gateway.reads(ratePerSecond=100))) == 30
    assert time.monotonic() - began >= 0.29


def test_a_pause_of_ours_is_no_silence_of_the_broker() -> None:
    """Spark may leave a connection alone for longer than the broker may be silent; what came
    meanwhile is there.
    """
    connected = b"CONNECTED\nversion:1.2\nheart-beat:100,0\n\n\0"
    message = b"MESSAGE\nmessage-id:1\nsubscription:1\ndestination:/queue/a\n\n\0"
    with (
        served(connected, *[b"\n"] * 10, message) as (port, sent),
        Client(Options(port=port, heart_beat=0.1)).open() as client,
    ):
        assert sent.wait(60)
        found = client.receive(time.monotonic() + 60)
        assert [frame.head.headers["message-id"] for frame in found] == ["1"]
        client.close()


def test_a_long_message_may_take_longer_than_an_answer() -> None:
    """A browse waits for as long as some of it comes."""
    body, pieces = b"x" * 1000, 40
    head = b"MESSAGE\nmessage-id:1\nsubscription:1\ndestination:/queue/a\ntimestamp:1\n"
    agreed = b"CONNECTED\nversion:1.2\nserver:stomp-gateway/1\n\n\0RECEIPT\nreceipt-id:1\n\n\0"
    end = b"MESSAGE\nmessage-id:2\nsubscription:1\ndestination:/queue/a\nbrowser:end\n\n\0"
    start = head + f"content-length:{len(body) * pieces}\n\n".encode()
    with served(agreed + start, *[body] * pieces, b"\0" + end) as (port, _):
        options = {"port": str(port), "destination": "queue:a", "timeoutSeconds": "3"}
        assert browse(options) == [body * pieces]


def test_a_broker_may_take_long_for_what_is_sent() -> None:
    """One that takes it bit by bit does not take nothing."""
    octets, patience, pause = 24 << 20, 3.0, 0.05
    taken = 0

    def take(server: socket.socket) -> None:
        nonlocal taken
        connection, _ = server.accept()
        with connection:
            connection.recv(1000)
            connection.sendall(b"CONNECTED\nversion:1.2\n\n\0")
            while data := connection.recv(1 << 18):
                taken += len(data)
                time.sleep(pause)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        thread = threading.Thread(target=take, args=(server,))
        thread.start()
        with Client(Options(port=server.getsockname()[1], timeout=patience)).open() as client:
            began = time.monotonic()
            client.send(b"\n" * octets)
            assert time.monotonic() - began > patience
            client.close()
        thread.join()
    assert taken == octets


def test_silence_ends_a_connection() -> None:
    """A broker that promises heart-beats and sends none is taken for dead."""
    with (
        served(b"CONNECTED\nversion:1.2\nheart-beat:100,100\n\n\0") as (port, _),
        Client(Options(port=port, heart_beat=0.1)).open() as client,
    ):
        with pytest.raises(ConnectionLost, match="has been silent"):
            client.receive(time.monotonic() + 60)
        client.close()
