"""What connections count in the memory budget, and what becomes of them where it is short; on a
clock that stands still.
"""

from __future__ import annotations

import pytest

from gateway.instance.memory.budget import State
from gateway.stomp.profiles import STANDARD
from gateway.stomp.settings import SessionOptions, TransportOptions
from tests.gateway.stomp.client import Client, Server
from tests.gateway.stomp.recording import message

_MIB = 1024 * 1024


def begin(client: Client, octets: int, came: int = 100) -> None:
    """Send the beginning of a SEND whose body has so many octets."""
    client.connection.dataReceived(
        b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:%d\n\n" % octets + b"x" * came
    )


def finish(client: Client, octets: int, came: int = 100) -> None:
    """Send the rest of it."""
    client.connection.dataReceived(b"x" * (octets - came) + b"\0")
    client.server.clock.advance(0)


def is_read(client: Client) -> bool:
    return client.transport.producerState == "producing"


@pytest.fixture
def server() -> Server:
    """A gateway that may use 100 MiB."""
    return Server(memory=100 * _MIB)


def test_a_body_reserves_its_content_length_when_it_begins(server: Server, client: Client) -> None:
    begin(client, 50 * _MIB, came=10_000)
    assert 50 * _MIB < server.memory.used(State.RECEIVING) < 50 * _MIB + 200
    finish(client, 50 * _MIB, came=10_000)
    assert server.memory.used(State.RECEIVING) == 0
    assert client.commands() == ["RECEIPT"]


def test_what_is_small_is_not_counted(server: Server, client: Client) -> None:
    begin(client, 2_000)
    assert server.memory.used(State.RECEIVING) == 0


def test_a_body_without_room_is_not_read_until_there_is_some(server: Server) -> None:
    first, second, small = server.connected(), server.connected(), server.connected()
    begin(first, 60 * _MIB, came=10_000)
    begin(second, 50 * _MIB, came=10_000)
    assert is_read(first)
    assert not is_read(second)
    assert small.answers("SEND\ndestination:/queue/a\nreceipt:s\n\nx") == ["RECEIPT"]
    finish(first, 60 * _MIB, came=10_000)
    server.clock.advance(0.2)
    assert is_read(second)
    finish(second, 50 * _MIB, came=10_000)
    assert second.commands() == ["RECEIPT"]
    assert server.memory.used(State.RECEIVING) == 0


def test_a_body_that_never_fits_is_refused_at_once() -> None:
    server = Server(memory=40 * _MIB, percent={State.RECEIVING: 50})
    client = server.connected()
    begin(client, 30 * _MIB, came=10_000)
    assert "does not fit" in client.error().head.headers["message"]


def test_without_content_length_what_has_come_counts(server: Server, client: Client) -> None:
    client.connection.dataReceived(b"SEND\ndestination:/queue/a\n\n")
    for _ in range(10):
        client.connection.dataReceived(b"x" * _MIB)
    assert 10 * _MIB <= server.memory.used(State.RECEIVING) < 11 * _MIB


@pytest.mark.parametrize("ends", ["lost", "failed"])
def test_all_is_given_back_when_the_connection_ends(
    ends: str, server: Server, client: Client
) -> None:
    client.say(
        "BEGIN\ntransaction:t\n\n", "SEND\ndestination:/queue/a\ntransaction:t\n\n" + "x" * 5000
    )
    assert server.memory.used(State.TRANSACTIONS) > 5000
    begin(client, 50 * _MIB, came=10_000)
    if ends == "lost":
        client.lose()
    else:
        client.connection.end(RuntimeError("for the test"))
        server.clock.advance(0)
        client.drain()
        server.clock.advance(0)
    assert (server.memory.used(State.RECEIVING), server.memory.used(State.TRANSACTIONS)) == (0, 0)


@pytest.mark.parametrize("command", ["COMMIT", "ABORT"])
def test_a_transaction_counts_until_it_is_over(
    command: str, server: Server, client: Client
) -> None:
    client.say(
        "BEGIN\ntransaction:t\n\n",
        *["SEND\ndestination:/queue/a\ntransaction:t\n\n" + "x" * 1000] * 3,
    )
    assert 3000 <= server.memory.used(State.TRANSACTIONS) <= 6000
    client.say(f"{command}\ntransaction:t\n\n")
    assert server.memory.used(State.TRANSACTIONS) == 0


def test_a_transaction_without_room_is_not_read_on_and_others_are() -> None:
    server = Server(memory=100 * _MIB, percent={State.TRANSACTIONS: 10})
    first, second, third = server.connected(), server.connected(), server.connected()
    for client in (first, second):
        client.say(
            "BEGIN\ntransaction:t\n\n",
            "SEND\ndestination:/queue/a\ntransaction:t\n\n" + "x" * 6 * _MIB,
        )
    assert is_read(first)
    assert not is_read(second)
    assert third.answers("SEND\ndestination:/queue/a\nreceipt:s\n\nx") == ["RECEIPT"]
    first.say("COMMIT\ntransaction:t\n\n")
    server.clock.advance(0.2)
    assert is_read(second)


def test_transactions_that_wait_for_each_other_end_with_the_biggest() -> None:
    server = Server(memory=100 * _MIB, percent={State.TRANSACTIONS: 10})
    clients = [server.connected() for _ in range(2)]
    for client, size in zip(clients, (6, 7), strict=True):
        client.say(
            "BEGIN\ntransaction:t\n\n",
            f"SEND\ndestination:/queue/a\ntransaction:t\n\n{'x' * size * _MIB}",
        )
    clients[0].advance(9)
    assert clients[1].commands() == []
    clients[0].advance(2)
    error = clients[1].error()
    assert "holds more of the gateway's memory than any other" in error.body.decode()
    held = int(error.body.decode().partition("transactions ")[2].partition(",")[0])
    assert 7 * _MIB + 512 <= held < 7 * _MIB + 1024
    clients[0].advance(0.2)
    assert 6 * _MIB + 512 <= server.memory.used(State.TRANSACTIONS) < 6 * _MIB + 1024
    assert clients[0].answers("COMMIT\ntransaction:t\nreceipt:c\n\n") == ["RECEIPT"]


def test_a_transaction_that_never_fits_is_refused_at_once() -> None:
    server = Server(memory=100 * _MIB, percent={State.TRANSACTIONS: 10})
    client = server.connected()
    assert "does not fit into the gateway's memory for transactions" in client.refusal(
        "BEGIN\ntransaction:t\n\n",
        "SEND\ndestination:/queue/a\ntransaction:t\n\n" + "x" * 11 * _MIB,
    )
    assert server.memory.used(State.TRANSACTIONS) == 0


def test_the_error_of_a_transaction_that_does_not_fit_names_its_send() -> None:
    server = Server(memory=100 * _MIB, percent={State.TRANSACTIONS: 10})
    client = server.connected()
    client.say(
        "BEGIN\ntransaction:t\n\n",
        "SEND\ndestination:/queue/a\ntransaction:t\nreceipt:r\n\n" + "x" * 11 * _MIB,
    )
    error = client.error()
    assert "does not fit into the gateway's memory for transactions" in error.body.decode()
    assert error.head.headers["receipt-id"] == "r"


@pytest.mark.parametrize("kind", ["joined", "cumulative", "transacted"])
@pytest.mark.parametrize("end", ["COMMIT", "ABORT"])
def test_what_is_acknowledged_in_a_transaction_counts_until_it_is_over(kind: str, end: str) -> None:
    server = Server(SessionOptions(profile=STANDARD), memory=100 * _MIB)
    client = server.connected()
    how = {
        "joined": "ack:client-individual",
        "cumulative": "ack:client",
        "transacted": "transaction:t\nack:client",
    }[kind]
    client.say("BEGIN\ntransaction:t\n\n", f"SUBSCRIBE\nid:s\ndestination:/queue/a\n{how}\n\n")
    client.consumer().push(
        *[message(b"x" * _MIB, identifier=f"ID-{number}") for number in range(3)]
    )
    assert server.memory.used(State.TRANSACTIONS) == 0
    client.say("ACK\nid:1-1\ntransaction:t\n\n")
    assert _MIB + 512 <= server.memory.used(State.TRANSACTIONS) < _MIB + 2048
    client.say(
        *[
            f"ACK\nid:1-{number}\ntransaction:t\n\n"
            for number in ([2, 3] if kind == "joined" else [3])
        ]
    )
    assert 3 * (_MIB + 512) <= server.memory.used(State.TRANSACTIONS) < 3 * (_MIB + 2048)
    client.say(f"{end}\ntransaction:t\n\n")
    assert server.memory.used(State.TRANSACTIONS) == 0


def test_acknowledgements_without_room_are_refused() -> None:
    server = Server(
        SessionOptions(profile=STANDARD),
        memory=100 * _MIB,
        percent={State.TRANSACTIONS: 2},
    )
    client = server.connected()
    client.say("BEGIN\ntransaction:t\n\n", "SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client\n\n")
    client.consumer().push(
        *[message(b"x" * _MIB, identifier=f"ID-{number}") for number in range(3)]
    )
    assert "does not fit into the gateway's memory for transactions" in client.refusal(
        "ACK\nid:1-3\ntransaction:t\n\n"
    )
    assert server.memory.used(State.TRANSACTIONS) == 0


def test_who_acknowledges_nothing_is_ended_when_others_wait_for_memory(server: Server) -> None:
    idle, sender = server.connected(), server.connected()
    idle.say("SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client\n\n")
    large = message(b"x" * 60 * _MIB)
    server.provider.connections[0].consumers[0].push(large)
    idle.drain()
    assert idle.commands() == ["MESSAGE"]
    server.memory.unacknowledged_messages = lambda: 60 * _MIB
    begin(sender, 50 * _MIB, came=10_000)
    assert not is_read(sender)
    sender.advance(11)
    assert f"unacknowledged {large.weight}" in idle.error().body.decode()


def test_output_that_is_not_read_counts_until_it_is(server: Server, client: Client) -> None:
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n")
    client.consumer().push(message(b"x" * 200_000))
    assert server.memory.used(State.OUTPUT) > 200_000
    client.drain()
    assert server.memory.used(State.OUTPUT) == 0


def test_who_does_not_read_is_dropped_when_others_wait_for_memory(server: Server) -> None:
    reader, sender = server.connected(), server.connected()
    reader.say("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n")
    server.provider.connections[0].consumers[0].push(message(b"x" * 60 * _MIB))
    begin(sender, 50 * _MIB, came=10_000)
    assert not is_read(sender)
    sender.advance(11)
    assert reader.transport.aborted
    reader.lose()
    server.clock.advance(0.2)
    assert is_read(sender)


def test_frames_that_are_held_back_count() -> None:
    server = Server(SessionOptions(input_hold=1024), memory=100 * _MIB)
    client = server.connected()
    plain = server.provider.connection.sessions[0]
    plain.is_writable = False
    client.say("SEND\ndestination:/queue/a\n\nx")
    client.say("SEND\ndestination:/queue/a\n\n" + "x" * 20_000)
    assert server.memory.used(State.RECEIVING) > 20_000
    plain.drain()
    server.clock.advance(0)
    assert server.memory.used(State.RECEIVING) == 0


# A frame that has begun must go on.


def test_a_frame_that_stands_still_ends_with_an_error() -> None:
    client = Server(transport=TransportOptions(input_timeout_s=10)).connected()
    begin(client, 1000)
    client.advance(9)
    assert client.commands() == []
    client.advance(2)
    assert "does not go on" in client.error().head.headers["message"]


def test_a_frame_that_goes_on_slowly_enough_to_be_a_threat_ends() -> None:
    client = Server(transport=TransportOptions(input_timeout_s=10, input_rate=100)).connected()
    begin(client, 100_000)
    for _ in range(22):
        client.connection.dataReceived(b"x" * 40)
        client.advance(0.5)
    assert "does not go on" in client.error().body.decode()


def test_a_frame_that_goes_on_at_the_rate_may_take_as_long_as_it_likes() -> None:
    client = Server(transport=TransportOptions(input_timeout_s=10, input_rate=100)).connected()
    begin(client, 10_100)
    for _ in range(100):
        client.connection.dataReceived(b"x" * 100)
        client.advance(0.9)
    assert client.commands() == []
    client.connection.dataReceived(b"\0")
    client.advance(0.1)
    assert client.commands() == ["RECEIPT"]


def test_frames_one_after_the_other_are_no_frame_that_stands_still() -> None:
    client = Server(transport=TransportOptions(input_timeout_s=10)).connected()
    client.connection.dataReceived(b"SEND\ndestination:/queue/a\nreceipt:r\n\n")
    for _ in range(20):
        client.advance(1)
        client.connection.dataReceived(b"x\0SEND\ndestination:/queue/a\nreceipt:r\n\n")
    client.advance(0.1)
    assert client.commands() == ["RECEIPT"] * 20


def test_a_client_that_says_nothing_has_begun_nothing() -> None:
    client = Server(transport=TransportOptions(input_timeout_s=10)).connected()
    client.connection.dataReceived(b"\n\n")
    client.advance(60)
    assert client.commands() == []
    assert not client.transport.aborted


def test_time_in_which_the_gateway_does_not_read_does_not_count() -> None:
    server = Server(transport=TransportOptions(input_timeout_s=3), memory=100 * _MIB)
    first, second = server.connected(), server.connected()
    begin(first, 60 * _MIB, came=10_000)
    begin(second, 50 * _MIB, came=10_000)
    for _ in range(8):
        first.advance(1)
        first.connection.dataReceived(b"x" * 10_000)
    assert not is_read(second)
    assert second.commands() == []
    finish(first, 60 * _MIB, came=90_000)
    server.clock.advance(0.2)
    assert is_read(second)
    second.advance(2)
    assert second.commands() == []
    second.advance(2)
    assert second.commands() == ["ERROR"]
