"""What one user may take: its rates, on a clock that stands still, and what the settings say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from gateway.instance.settings import SettingsError, read
from gateway.stomp.settings import TransportOptions
from gateway.stomp.user_limits import (
    SETTINGS,
    Allowance,
    UserLimit,
    UserLimits,
)
from tests.gateway.stomp.client import START, Client, Server
from tests.gateway.stomp.recording import RecordingConsumer, message
from tests.logged import logged_lines

SEND = "SEND\ndestination:/queue/a\n\nx"


def limited(default: UserLimit, **own: UserLimit) -> Server:
    return Server(transport=TransportOptions(user_limits=UserLimits(default, own)))


def login(server: Server, user: str) -> Client:
    client = server.client()
    assert client.answers(f"CONNECT\nlogin:{user}\npasscode:secret\n\n") == ["CONNECTED"]
    return client


def is_read(client: Client) -> bool:
    return client.transport.producerState == "producing"


def test_messages_beyond_the_rate_are_read_later_and_none_is_lost() -> None:
    server = limited(UserLimit(messages=10))
    client = server.connected()
    client.say(*[SEND] * 40)
    taken = [server.counters.messages_in]
    assert not is_read(client)
    for _ in range(3):
        client.advance(1.01)
        taken.append(server.counters.messages_in)
    assert taken == [20, 30, 40, 40], "a second's worth at once, and as much on account"
    assert is_read(client)
    assert server.counters.rate_waits == 3


def test_other_frames_are_no_messages() -> None:
    server = limited(UserLimit(messages=1))
    client = server.connected()
    client.say(*[f"SUBSCRIBE\nid:{number}\ndestination:/queue/a\n\n" for number in range(20)])
    assert is_read(client)
    assert len(server.provider.connection.consumers) == 20


def test_octets_of_an_unfinished_frame_count() -> None:
    server = limited(UserLimit(octets=100_000))
    client = server.connected()
    client.connection.dataReceived(
        b"SEND\ndestination:/queue/a\ncontent-length:380000\nreceipt:r\n\n"
    )
    client.connection.dataReceived(b"x" * 80_000)
    assert is_read(client)
    for _ in range(3):
        client.connection.dataReceived(b"x" * 100_000)
        assert not is_read(client)
        client.advance(1.05)
        assert is_read(client)
    assert client.answers(b"") == ["RECEIPT"]


def test_connections_of_a_user_share_its_rate_and_others_are_not_touched() -> None:
    server = limited(UserLimit(), alice=UserLimit(messages=10))
    first, second, other = (login(server, user) for user in ("alice", "alice", "bob"))
    for each in (first, second, other):
        each.say(*[SEND] * 20)
    assert server.counters.messages_in == 20 + 10 + 20
    assert [is_read(each) for each in (first, second, other)] == [False, False, True]
    first.advance(5)
    assert server.counters.messages_in == 60


def test_to_connect_anew_pays_nothing() -> None:
    server = limited(UserLimit(messages=10))
    for _ in range(3):
        client = server.connected()
        client.say(*[SEND] * 10)
        client.lose()
    again = server.connected()
    again.say(*[SEND] * 10)
    assert not is_read(again)
    assert server.counters.messages_in == 20
    again.advance(4)
    assert is_read(again)
    assert server.counters.messages_in == 30


def test_a_user_who_left_and_has_paid_is_forgotten() -> None:
    server = limited(UserLimit(messages=10))
    client = server.connected()
    client.say(SEND)
    client.advance(2)
    client.lose()
    assert not server.factory.admission._allowances


def test_users_who_left_before_they_had_paid_are_forgotten_as_others_leave() -> None:
    server = limited(UserLimit(messages=10))
    kept = server.factory.admission._allowances
    for number in range(100):
        client = login(server, f"user{number}")
        client.say(SEND)
        client.lose()
        assert f"user{number}" in kept
    assert len(kept) == 100
    client = login(server, "user1")
    client.advance(60)
    for _ in range(60):
        login(server, "last").lose()
    # Who is here again stays, and what is sent then counts.
    assert set(kept) == {"user1"}
    client.say(SEND)
    assert not kept["user1"].is_fresh


def test_a_client_that_is_not_read_for_its_rate_is_not_too_slow() -> None:
    server = limited(UserLimit(messages=1))
    client = server.client()
    client.say(
        "CONNECT\naccept-version:1.2\nheart-beat:1000,0\nlogin:guest\npasscode:secret\n\n",
        *[SEND] * 9,
    )
    client.advance(7)
    assert not client.transport.aborted
    assert client.commands() == ["CONNECTED"]


def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind() -> None:
    server = limited(UserLimit(messages=1))
    client = server.connected()
    client.say(*[SEND] * 30)
    client.lose()
    assert not [call for call in server.clock.getDelayedCalls() if call.getTime() > 1e12]
    client.advance(40)
    assert server.counters.messages_in == 2
    assert server.counters.connections == 0


def test_limits_change_while_clients_are_connected() -> None:
    server = limited(UserLimit())
    client = server.connected()
    client.say(*[SEND] * 30)
    assert is_read(client)
    server.factory.change_limits(UserLimits(UserLimit(messages=5)))
    client.say(*[SEND] * 30)
    assert not is_read(client)
    server.factory.change_limits(UserLimits())
    client.advance(2)
    assert is_read(client)
    assert server.counters.messages_in == 60


def test_the_log_tells_of_a_user_once_in_a_while() -> None:
    server = limited(UserLimit(messages=10))
    with logged_lines() as lines:
        client = server.connected()
        for _ in range(5):
            client.say(*[SEND] * 20)
            client.advance(3)
    told = [line for line in lines if "sends more" in line]
    assert told == [
        "user 'guest' sends more than its 10 messages a second: its clients are read later"
    ]


@given(
    messages=st.integers(1, 50),
    octets=st.integers(16_384, 10**6),
    spent=st.lists(
        st.tuples(st.integers(0, 64), st.integers(0, 300_000), st.floats(0, 3)), max_size=40
    ),
)
def test_a_user_that_waits_as_it_is_told_keeps_its_rates(
    messages: int, octets: int, spent: list[tuple[int, int, float]]
) -> None:
    clock = Clock()
    rate = Allowance("alice", UserLimit(-1, messages, octets), clock.seconds).sent
    came_messages = came_octets = 0
    for more_messages, more_octets, idle in spent:
        clock.advance(idle)
        # A second's worth, and what has come with the time, was not passed before this.
        assert came_messages <= messages * (clock.seconds() + 1) + 1e-6
        assert came_octets <= octets * (clock.seconds() + 1) + 1e-3
        came_messages += more_messages
        came_octets += more_octets
        clock.advance(rate.spend(more_messages, more_octets))
        assert rate.wait() < 1e-6


def test_settings_of_one_user_win_and_the_others_hold_for_the_rest() -> None:
    lines = (
        "limit.messagesPerSecondPerUser=100",
        "limit.connectionsPerUser=7",
        "user.alice.messagesPerSecond=5",
        "user.bob.smith.bytesPerSecond=64k",
        "user.alice.connections=-1",
        "limit.deliveredMessagesPerSecondPerUser=50",
        "user.alice.deliveredBytesPerSecond=1m",
    )
    settings, _ = read(SETTINGS, None, [f"imq.bridge.stomp.{line}" for line in lines])
    limits = UserLimits.read(settings)
    assert limits.of("carol") == UserLimit(7, 100, -1, 50, -1)
    assert limits.of("alice") == UserLimit(-1, 5, -1, 50, 1_048_576)
    assert limits.of("bob.smith") == UserLimit(7, 100, 65_536, 50, -1)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("limit.messagesPerSecondPerUser=0", "expected a whole number from 1, or -1"),
        ("user.alice.messagesPerSecond=0", "expected a whole number from 1, or -1"),
        (
            "limit.deliveredMessagesPerSecondPerUser=0",
            "expected a whole number from 1, or -1",
        ),
        ("user.alice.deliveredBytesPerSecond=1k", "expected a size of at least 16k"),
        ("user.alice.bytesPerSecond=1k", "expected a size of at least 16k"),
    ],
)
def test_a_rate_at_which_nothing_comes_is_refused(line: str, told: str) -> None:
    settings, _ = read(SETTINGS, None, [f"imq.bridge.stomp.{line}"])
    with pytest.raises(SettingsError) as raised:
        UserLimits.read(settings)
    assert told in str(raised.value)
    assert line.partition("=")[0] in str(raised.value)


def subscribed(client: Client, headers: str = "", id: int = 1) -> RecordingConsumer:
    """The consumer of a new subscription."""
    client.say(f"SUBSCRIBE\nid:{id}\ndestination:/queue/a\n{headers}\n")
    return client.consumer()


def pushed(client: Client, consumer: RecordingConsumer) -> int:
    """Deliver all that may be, to a client that reads; return how many."""
    count = consumer.credit if consumer.running and consumer.octets > 0 else 0
    if count:
        consumer.push(*[message()] * count)
        client.drain()
    return count


def test_a_user_gets_no_more_than_its_rate_and_the_rest_later() -> None:
    server = limited(UserLimit(delivered_messages=10))
    client = server.connected()
    consumer = subscribed(client)
    seconds = 20
    got = 0
    for _ in range(seconds * 10):
        got += pushed(client, consumer)
        client.advance(0.1)
        assert got <= 10 * (server.clock.seconds() - START + 2)
    assert 10 * (seconds - 1) <= got
    assert len([frame for frame in client.heard() if frame.head.command == "MESSAGE"]) == got
    assert server.counters.delivery_waits > 1
    assert client.answers(SEND.replace("\n\n", "\nreceipt:s\n\n")) == ["RECEIPT"], "it may send"


def test_a_client_that_acknowledges_a_hundred_at_once_gets_a_hundred() -> None:
    server = limited(UserLimit(delivered_messages=10))
    client = server.connected()
    consumer = subscribed(client, "ack:client\n")
    got = 0
    while got < 100:
        got += pushed(client, consumer)
        client.advance(1.01)
        assert server.clock.seconds() < START + 60
    last = [frame for frame in client.heard() if frame.head.command == "MESSAGE"][-1]
    client.say(f"ACK\nid:{last.head.headers['ack']}\n\n")
    assert not consumer.outstanding


def test_octets_that_go_out_are_limited() -> None:
    server = limited(UserLimit(delivered_octets=100_000))
    client = server.connected()
    consumer = subscribed(client)
    got = 0
    for _ in range(100):
        while consumer.running and consumer.credit and consumer.octets > 0:
            consumer.push(message(b"x" * 50_000))
            client.drain()
            got += 50_000
        client.advance(0.1)
        assert got <= 100_000 * (server.clock.seconds() - START + 2)
    assert got >= 900_000


def test_connections_of_a_user_share_what_it_gets() -> None:
    server = limited(UserLimit(), alice=UserLimit(delivered_messages=10))
    mine = [(client, subscribed(client)) for client in (login(server, "alice") for _ in range(2))]
    other = login(server, "bob")
    assert pushed(other, subscribed(other)) == 1000
    got = 0
    for _ in range(100):
        got += sum(pushed(client, consumer) for client, consumer in mine)
        other.advance(0.1)
    assert 90 <= got <= 130


def test_what_a_user_gets_changes_while_it_is_connected() -> None:
    server = limited(UserLimit())
    client = server.connected()
    consumer = subscribed(client)
    assert pushed(client, consumer) == 1000
    server.factory.change_limits(UserLimits(UserLimit(delivered_messages=5)))
    pushed(client, consumer)
    assert not consumer.running, "what was on its way went out, and is paid for now"
    late = subscribed(client, id=2)
    assert not late.running
    assert late.credit == 5
    server.factory.change_limits(UserLimits())
    assert consumer.running
    assert late.running
    assert late.credit == 1000


def test_a_client_that_leaves_while_nothing_is_delivered_leaves_nothing_behind() -> None:
    server = limited(UserLimit(delivered_messages=1))
    client = server.connected()
    consumer = subscribed(client)
    for _ in range(4):
        pushed(client, consumer)
    assert not consumer.running
    client.lose()
    assert not [call for call in server.clock.getDelayedCalls() if call.getTime() > 1e12]
    client.advance(40)
    assert server.counters.connections == 0
