"""Finding the admin service and asking it, against sockets that behave well, badly, or not at
all.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gateway.admin.cli.client import (
    Address,
    AdminClient,
    AdminError,
    Entry,
    broker_address,
    find,
    port_mapper_entries,
)

pytestmark = pytest.mark.process

HOST = "127.0.0.1"


@contextmanager
def server(behave: Callable[[socket.socket], None], times: int = 1) -> Iterator[int]:
    """Accepts so many connections, and does that with each; gives its port."""
    with socket.create_server((HOST, 0)) as listening:

        def serve() -> None:
            for _ in range(times):
                connection, _ = listening.accept()
                with connection:
                    behave(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)


def telling(table: bytes) -> Callable[[socket.socket], None]:
    def tell(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(table)

    return tell


TABLE = b"""\
101 imqbroker 0.1.0
portmapper tcp PORTMAPPER 7676 [imqvarhome=/var/a=b,sessionid=1]
stomp[bridge] stomp[TCP] stomp[bridge] 7672
what is this
bridge_admin tcp ADMIN 7680 [hostname=127.0.0.1]
.
"""


def test_the_port_mapper_s_table_is_read() -> None:
    with server(telling(TABLE)) as port:
        assert port_mapper_entries(HOST, port) == [
            Entry(
                "portmapper",
                "tcp",
                "PORTMAPPER",
                7676,
                {"imqvarhome": "/var/a=b", "sessionid": "1"},
            ),
            Entry("stomp[bridge]", "stomp[TCP]", "stomp[bridge]", 7672, {}),
            Entry("bridge_admin", "tcp", "ADMIN", 7680, {"hostname": "127.0.0.1"}),
        ]


def test_the_service_is_found_on_the_loopback() -> None:
    with server(telling(TABLE), 2) as port:
        assert find(HOST, port) == Address("127.0.0.1", 7680, False, HOST)
        assert find("localhost", port) == Address("127.0.0.1", 7680, False, "localhost")


def test_a_service_with_tls_is_where_the_broker_is() -> None:
    with server(telling(TABLE.replace(b"bridge_admin tcp", b"bridge_admin tls")), 2) as port:
        assert find(HOST, port) == find(HOST, port, secure=True) == Address(HOST, 7680, True, HOST)


def test_secure_is_never_in_the_clear() -> None:
    with server(telling(TABLE)) as port, pytest.raises(AdminError, match="does not speak TLS"):
        find(HOST, port, secure=True)


def test_a_password_is_not_sent_in_the_clear_to_another_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = socket.create_connection
    with server(telling(TABLE)) as port:
        # An address of the network for documentation: nobody has it.
        monkeypatch.setattr(
            socket, "create_connection", lambda address, timeout: connect((HOST, port), timeout)
        )
        with pytest.raises(AdminError, match="listens on that machine's loopback only"):
            find("192.0.2.1", 7676)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"101 imqbroker 1\n.\n", "has no admin service"),
        (b"", "is no port mapper"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is no port mapper"),
        (b"\xff\x00" * 100, "is no port mapper"),
        (b"101 imqbroker 1\nbridge_admin tcp ADMIN 7680000\n", "has no admin service"),
    ],
)
def test_what_is_no_port_mapper_or_has_no_service_is_told(answer: bytes, text: str) -> None:
    with server(telling(answer)) as port, pytest.raises(AdminError, match=text):
        find(HOST, port)


def test_no_broker(free_port: Callable[[], int]) -> None:
    port = free_port()
    with pytest.raises(
        AdminError,
        match=f"no broker answers at 127.0.0.1:{port}: Connection refused. Is it running",
    ):
        find(HOST, port)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ("localhost", 7676)),
        ("myhost", ("myhost", 7676)),
        (":8886", ("localhost", 8886)),
        ("myhost:8886", ("myhost", 8886)),
        ("mq://myhost:8886/", ("myhost", 8886)),
        ("[::1]:7676", ("::1", 7676)),
        ("[::1]", ("::1", 7676)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert broker_address(text) == address


@pytest.mark.parametrize(
    "text", ["a:b", "host:", "host:0", "host:65536", "::1", "[::1", "a:1:2", "host:7676:x"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(AdminError, match=r"is no broker; expected HOST:PORT"):
        broker_address(text)


ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'


def test_an_answer_that_comes_late_is_waited_for_and_nothing_is_asked_twice() -> None:
    asked: list[bytes] = []
    told: list[tuple[int, int, float]] = []
    go_on = threading.Event()

    def late(connection: socket.socket) -> None:
        asked.append(connection.recv(65536))
        go_on.wait(10)
        connection.sendall(ANSWER)

    def retrying(attempt: int, attempts: int, wait_s: float) -> None:
        told.append((attempt, attempts, wait_s))
        if attempt == 2:
            go_on.set()

    with server(late) as port:
        client = AdminClient(
            Address(HOST, port, False, HOST),
            "a",
            "b",
            timeout_s=0.05,
            retries=100,
            retrying=retrying,
        )
        assert client.ask("POST", "/v1/x", {"y": 1}) == {"a": 1}
    assert (len(asked), told[:2]) == (1, [(1, 100, 0.1), (2, 100, pytest.approx(0.15))])


def test_an_answer_that_never_comes_is_given_up() -> None:
    end = threading.Event()

    def silent(connection: socket.socket) -> None:
        connection.recv(65536)
        end.wait(10)

    with server(silent) as port:
        client = AdminClient(Address(HOST, port, False, HOST), "a", "b", timeout_s=0.05, retries=1)
        with pytest.raises(
            AdminError, match="does not answer: no answer in time; what was asked may still be done"
        ):
            client.get("/v1")
        end.set()


@pytest.mark.parametrize(
    ("answer", "text", "code"),
    [
        (
            b'HTTP/1.1 409 Conflict\r\nContent-Length: 49\r\n\r\n{"error": {"text": "not now", "code": "BB4006"}}\n',
            "not now",
            "BB4006",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "is no admin service: no JSON came, with status 200",
            "",
        ),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n[]", "refused with status 500", ""),
        (
            b'HTTP/1.1 302 Found\r\nLocation: /v1/\r\nContent-Length: 8\r\n\r\n{"a": 1}',
            "refused with status 302",
            "",
        ),
        (b"", "does not answer", "unreachable"),
        (b"SSH-2.0-x\r\n", "does not answer", "unreachable"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "does not answer", "unreachable"),
    ],
)
def test_what_is_no_answer_is_told(answer: bytes, text: str, code: str) -> None:
    with server(telling(answer)) as port:
        client = AdminClient(Address(HOST, port, False, HOST), "a", "b", timeout_s=5)
        with pytest.raises(AdminError, match=text) as caught:
            client.get("/v1")
    assert caught.value.code == code


def test_a_server_that_is_gone(free_port: Callable[[], int]) -> None:
    client = AdminClient(Address(HOST, free_port(), False, HOST), "a", "b", timeout_s=5)
    with pytest.raises(AdminError, match="does not answer: Connection refused"):
        client.get("/v1")
