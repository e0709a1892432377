"""STOMP 1.0 "CONNECT", "DISCONNECT"; 1.1 and 1.2 "Connecting", "Protocol Negotiation",
"Heart-beating", "DISCONNECT", "Connection Lingering".
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.conformance.client import Client
from tests.conformance.conftest import Connect
from tests.gateway_process import GatewayProcess

Dial = Callable[..., Client]


@pytest.mark.parametrize(
    ("accepted", "spoken"),
    [
        (None, "1.0"),
        ("1.0", "1.0"),
        ("1.1", "1.1"),
        ("1.2", "1.2"),
        ("1.0,1.1,1.2", "1.2"),
        ("1.2,1.1,1.0", "1.2"),
        ("1.1,1.0", "1.1"),
        ("1.0,1.1", "1.1"),
        ("1.1,1.2,1.0", "1.2"),
        ("2.1,1.1", "1.1"),
        ("1.0, 1.1", "1.1"),
        (" 1.0 , 1.1 ,2.0", "1.1"),
        ("2.0,1.0,nonsense", "1.0"),
    ],
)
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_the_highest_common_version_is_chosen_in_whatever_order(
    dial: Dial, command: str, accepted: str | None, spoken: str
) -> None:
    """1.1 and 1.2 "Protocol Negotiation": "the highest protocol version that it has in common with
    the client"; STOMP as CONNECT.
    """
    assert dial().connect(accepted, command)["version"] == spoken


def test_the_rules_of_the_chosen_version_hold(dial: Dial, queue: str) -> None:
    """Offered 1.0 and 1.2, what follows is 1.2: ``\\r`` is an escape and padding is text."""
    client = dial()
    client.connect("1.0,1.2")
    client.subscribe(queue)
    client.write(b"SEND\ndestination:%s\ncolour: a\\rb \n\n\0" % queue.encode())
    assert client.message()["colour"] == " a\rb "


def test_no_common_version_is_an_error_that_names_ours(dial: Dial) -> None:
    """1.1 and 1.2 "Protocol Negotiation"."""
    client = dial()
    client.send(
        "CONNECT", accept_version="3.0,2.0", host="localhost", login="guest", passcode="guest"
    )
    assert client.error()["version"] == "1.0,1.1,1.2"


def test_connected_has_what_the_specifications_name(connect: Connect, version: str) -> None:
    """1.0: ``session``. 1.1 and 1.2: ``version`` is required, ``session``, ``server`` and
    ``heart-beat`` are not.
    """
    connected = connect(version).connected
    assert connected is not None
    assert connected["version"] == version
    assert connected["session"]
    assert connected["server"].startswith("stomp-gateway/")
    assert connected["heart-beat"] == "0,0"
    assert connected.body == b""


def test_each_session_has_its_own_identifier(connect: Connect) -> None:
    sessions = {
        client.connected["session"]
        for client in [connect() for _ in range(5)]
        if client.connected is not None
    }
    assert len(sessions) == 5


@pytest.mark.parametrize("host", ["localhost", "/", "", "no.such.host.example"])
def test_any_host_is_accepted(dial: Dial, version: str, host: str) -> None:
    dial().connect(version, host=host)


def test_host_may_be_absent(dial: Dial, version: str) -> None:
    client = dial()
    client.send("CONNECT", accept_version=version, login="guest", passcode="guest")
    assert client.expect("CONNECTED")["version"] == version


def test_headers_of_connect_are_not_unescaped(dial: Dial) -> None:
    """1.2 "Value Encoding": CONNECT and CONNECTED do not escape, for 1.0's sake."""
    client = dial()
    client.write(
        b"CONNECT\naccept-version:1.2\nhost:h\nlogin:guest\npasscode:guest\nreceipt:a\\cb\\\\:c\n\n\0"
    )
    assert client.expect("CONNECTED")["receipt-id"] == "a\\cb\\\\:c"


def test_a_wrong_passcode_is_an_error(dial: Dial, version: str) -> None:
    client = dial()
    client.send("CONNECT", accept_version=version, host="h", login="guest", passcode="wrong")
    assert "wrong" not in client.error()["message"].replace("wrong passcode", "")


def test_an_unknown_user_reads_the_same_as_a_wrong_passcode(dial: Dial) -> None:
    texts = []
    for login in ("guest", "nobody"):
        client = dial()
        client.send("CONNECT", accept_version="1.2", host="h", login=login, passcode="wrong")
        texts.append(client.error()["message"].replace(login, "USER"))
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    "frame",
    [
        "SEND\ndestination:/queue/q\n\n",
        "SUBSCRIBE\ndestination:/queue/q\nid:1\n\n",
        "UNSUBSCRIBE\nid:1\n\n",
        "ACK\nid:1\n\n",
        "NACK\nid:1\n\n",
        "BEGIN\ntransaction:t\n\n",
        "COMMIT\ntransaction:t\n\n",
        "ABORT\ntransaction:t\n\n",
        "DISCONNECT\n\n",
    ],
)
def test_the_first_frame_must_be_connect(dial: Dial, frame: str) -> None:
    client = dial()
    client.write(frame.encode() + b"\0")
    client.error("CONNECT")


def test_nothing_is_carried_out_before_connect_succeeds(
    dial: Dial, connect: Connect, queue: str
) -> None:
    client = dial()
    refused = b"CONNECT\naccept-version:1.2\nhost:h\nlogin:guest\npasscode:wrong\n\n\0"
    client.write(refused + b"SEND\ndestination:%s\n\nsmuggled\0" % queue.encode())
    client.error()
    consumer = connect()
    consumer.put(queue, "marker")
    consumer.subscribe(queue)
    assert consumer.message().body == b"marker"


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_a_second_connect_is_an_error(connect: Connect, version: str, command: str) -> None:
    client = connect(version)
    client.send(command, login="guest", passcode="guest", host="h", accept_version=version)
    client.error("already connected")


def test_a_client_id_is_one_connections_at_a_time(connect: Connect, dial: Dial, topic: str) -> None:
    first = connect(client_id=topic)
    second = dial()
    second.send(
        "CONNECT", accept_version="1.2", host="h", login="guest", passcode="guest", client_id=topic
    )
    second.error("client-id")
    first.disconnect()
    connect(client_id=topic)


# Disconnecting.


def test_the_receipt_of_disconnect_comes_last_and_the_connection_closes(
    connect: Connect, queue: str, version: str
) -> None:
    """1.1 and 1.2 "DISCONNECT": all frames sent before have been received and acknowledged by the
    server.
    """
    client, consumer = connect(version), connect(version)
    for number in range(50):
        client.send("SEND", {"destination": queue}, str(number), receipt=str(number))
    client.send("DISCONNECT", receipt="last")
    assert [frame["receipt-id"] for frame in client.rest()] == [*map(str, range(50)), "last"]
    consumer.subscribe(queue)
    assert [int(message.body) for message in consumer.messages(50)] == list(range(50))


def test_disconnect_without_receipt_closes(connect: Connect, version: str) -> None:
    client = connect(version)
    client.send("DISCONNECT")
    assert client.rest() == []


def test_what_follows_disconnect_is_not_carried_out(
    connect: Connect, queue: str, version: str
) -> None:
    """1.1 and 1.2: "Clients MUST NOT send any more frames after the DISCONNECT frame is sent"."""
    client, consumer = connect(version), connect(version)
    client.write(
        b"DISCONNECT\nreceipt:1\n\n\0SEND\ndestination:%s\nreceipt:2\n\ntoo late\0" % queue.encode()
    )
    assert [frame["receipt-id"] for frame in client.rest()] == ["1"]
    consumer.put(queue, "marker")
    consumer.subscribe(queue)
    assert consumer.message().body == b"marker"


def test_what_was_not_acknowledged_goes_back_at_disconnect(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    held = client.hold(queue, "1", "2", ack="client")
    client.ack(held[0])
    client.disconnect()
    other = connect(version)
    other.subscribe(queue)
    again = other.message()
    assert (again.body, again["redelivered"]) == (b"2", "true")


def test_what_was_not_acknowledged_goes_back_when_the_socket_is_lost(
    connect: Connect, queue: str, version: str
) -> None:
    client = connect(version)
    held = client.hold(queue, "1", "2", "3", ack="client-individual")
    client.ack(held[1])
    assert client.sync() == []
    client.close()
    other = connect(version)
    other.subscribe(queue)
    again = other.messages(2)
    assert [message.body for message in again] == [b"1", b"3"]
    assert [message["redelivered"] for message in again] == ["true", "true"]
    assert [message["message-id"] for message in again] == [
        held[0]["message-id"],
        held[2]["message-id"],
    ]


# Heart-beating.


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (None, "0,0"),
        ("0,0", "0,0"),
        ("0,2000", "2000,0"),
        ("0,100", "500,0"),
        ("2000,0", "0,2000"),
        ("100,0", "0,500"),
        ("7000,9000", "9000,7000"),
    ],
)
def test_both_sides_intervals_are_agreed(dial: Dial, client: str | None, server: str) -> None:
    """1.1 and 1.2 "Heart-beating": MAX of what one side can and the other wants, none where either
    says 0.

    The gateway can and wants 500 ms. ``sx`` and ``sy`` are given as agreed, so that MAX(cx,sy) and
    MAX(sx,cy) are those.
    """
    headers = {} if client is None else {"heart-beat": client}
    assert dial().connect("1.2", **headers)["heart-beat"] == server


@pytest.mark.parametrize("value", ["", "1", "1,", ",1", "-1,0", "a,b", "1,2,3"])
def test_a_heart_beat_that_is_not_two_numbers_is_an_error(dial: Dial, value: str) -> None:
    client = dial()
    client.send(
        "CONNECT", accept_version="1.2", host="h", login="guest", passcode="guest", heart_beat=value
    )
    client.error("heart-beat")


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_the_gateway_beats_of_itself(connect: Connect, version: str) -> None:
    """At half the interval, as ``tests/gateway/stomp/test_timing.py`` shows on a clock that stands
    still.
    """
    start = time.monotonic()
    client = connect(version, heart_beat="0,600")
    beats = client.wait_for_beats(6)
    assert beats[-1] - start > 1, "it beats more often than it promised"


def test_a_silent_client_is_dropped_and_not_at_once(
    dial: Dial, connect: Connect, queue: str
) -> None:
    """After twice the interval by default (``imq.bridge.stomp.heartbeat.tolerance``); its messages
    go back.
    """
    connect().put(queue, "1")
    client = dial()
    client.version = "1.2"
    start = time.monotonic()
    # In one piece: a busy machine might keep its client from speaking for longer than that.
    client.write(
        b"CONNECT\naccept-version:1.2\nhost:h\nlogin:guest\npasscode:guest\nheart-beat:500,0\n\n\0"
        b"SUBSCRIBE\ndestination:%s\nid:s\nack:client\n\n\0" % queue.encode()
    )
    assert [frame.command for frame in client.rest()] == ["CONNECTED", "MESSAGE"]
    assert time.monotonic() - start > 0.9
    other = connect()
    other.subscribe(queue)
    assert other.message()["redelivered"] == "true"


@pytest.mark.parametrize("octets", [b"\n", b"\r\n"])
def test_end_of_lines_keep_a_client_alive(connect: Connect, octets: bytes) -> None:
    client = connect("1.2", heart_beat="2000,500")
    # The gateway's beats are the clock, one each 250 ms: for five seconds, of which four without an
    # octet would have been too many.
    for count in range(1, 21):
        client.wait_for_beats(count)
        client.write(octets)
    assert client.sync() == []


def test_any_octets_keep_a_client_alive(connect: Connect, queue: str) -> None:
    """1.2 "Heart-beating": "any new data"; here a frame of five seconds."""
    client = connect("1.2", heart_beat="2000,500")
    client.subscribe(queue)
    start = len(client.beats)
    frame = b"SEND\ndestination:%s\n\nslow\0" % queue.encode()
    for count in range(1, 21):
        client.wait_for_beats(start + count)
        client.write(frame[count - 1 : count])
    client.write(frame[20:])
    assert client.message().body == b"slow"


def test_a_client_that_promises_nothing_may_be_silent(connect: Connect) -> None:
    client = connect("1.2", heart_beat="0,500")
    client.wait_for_beats(6)
    assert client.sync() == []


def test_a_silent_socket_is_closed_with_an_error_that_says_why(
    start_gateway: Callable[..., GatewayProcess],
) -> None:
    """``imq.bridge.stomp.connect.timeout``: who does not CONNECT is not kept."""
    impatient = start_gateway(settings={"imq.bridge.stomp.connect.timeout": "1"})
    client = Client(impatient.port)
    client.error("CONNECTED")
    client.close()
