"""Heart-beats, time-outs and limits, on a clock that stands still."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from gateway.stomp.output import Output
from gateway.stomp.session.handshake import Heartbeat, heartbeat
from gateway.stomp.session.states import State
from gateway.stomp.settings import SessionOptions, TransportOptions
from gateway.stomp.transport.deadlines import TICK_MS, Wheel
from gateway.stomp.user_limits import UserLimit, UserLimits
from gateway.stomp.wire import Head
from tests.gateway.stomp.client import Client, Server
from tests.gateway.stomp.recording import message, unavailable
from tests.logged import logged


@pytest.mark.parametrize(
    ("asked", "send", "receive", "agreed"),
    [
        (None, 500, 500, (0, 0)),
        ("0,0", 500, 500, (0, 0)),
        ("1000,2000", 500, 500, (2000, 1000)),
        ("100,200", 500, 600, (500, 600)),
        ("0,10000", 500, 500, (10000, 0)),
        ("10000,0", 500, 500, (0, 10000)),
        ("1000,1000", 0, 500, (0, 1000)),
        ("1000,1000", 500, 0, (1000, 0)),
        (" 1000, 1000", 500, 500, (1000, 1000)),
    ],
)
def test_each_direction_is_the_slower_of_both_sides_and_none_where_one_has_none(
    asked: str | None, send: int, receive: int, agreed: tuple[int, int]
) -> None:
    head = Head("CONNECT", {} if asked is None else {"heart-beat": asked})
    assert heartbeat(head, send, receive) == Heartbeat(*agreed)


def test_beats_are_sent_at_half_the_promised_interval() -> None:
    client = Server().connected(headers="heart-beat:0,2000\n")
    before = len(client.transport.octets())
    client.advance(10)
    beats = client.transport.octets()[before:]
    assert set(beats) == {10}
    assert 9 <= len(beats) <= 10


def test_what_is_sent_anyway_counts_as_a_beat() -> None:
    client = Server().connected(headers="heart-beat:0,2000\n")
    before = len(client.transport.octets())
    for _ in range(20):
        client.say("SEND\ndestination:/queue/a\nreceipt:r\n\n")
        client.advance(0.5)
    assert b"\0\n\n" not in client.transport.octets()[before:], "a line end of its own is a beat"
    assert len(client.commands()) == 20


def test_a_silent_client_is_dropped_after_twice_its_promise(server: Server) -> None:
    client = server.connected(headers="heart-beat:1000,0\n")
    assert not client.dropped_after(1.9)
    client.advance(0.3)
    assert (client.transport.aborted, server.counters.dropped) == (True, 1)


def test_the_tolerance_is_a_setting() -> None:
    client = Server(transport=TransportOptions(heartbeat_tolerance=4.0)).connected(
        headers="heart-beat:1000,0\n"
    )
    assert not client.dropped_after(3.9)
    assert client.dropped_after(0.3)


def test_a_client_is_not_silent_while_the_gateway_does_not_run() -> None:
    client = Server().connected(headers="heart-beat:1000,0\n")
    client.advance(1.5)
    client.server.clock.advance(30)
    assert not client.transport.aborted, (
        "the client has had no time yet in which it would have been heard"
    )
    assert not client.dropped_after(0.3)
    client.advance(0.5)
    assert client.transport.aborted, "it has been silent for 2 s in which the gateway ran"


def test_what_has_come_by_a_deadline_is_read_before_the_client_is_judged() -> None:
    client = Server().connected(headers="heart-beat:1000,0\n")
    client.advance(1.95)
    client.server.clock.callLater(
        0.2, client.connection.dataReceived, b"\n"
    )  # read after the timers that are due
    client.server.clock.advance(0.2)
    assert not client.dropped_after(1.7)
    assert client.dropped_after(0.5)


def test_time_in_which_the_gateway_does_not_run_counts_for_no_connect() -> None:
    client = Server(transport=TransportOptions(connect_timeout_s=5)).client()
    client.advance(4)
    client.server.clock.advance(60)
    assert client.answers("CONNECT\nlogin:a\npasscode:b\n\n") == ["CONNECTED"]


def test_time_in_which_the_gateway_does_not_run_counts_for_no_reader() -> None:
    client = Server(transport=TransportOptions(output_timeout_s=5)).connected()
    client.say("SEND\ndestination:/queue/a\nreceipt:r\n\n")
    client.advance(4)
    client.server.clock.advance(60)
    assert not client.transport.aborted
    assert client.dropped_after(1.5)


def test_time_in_which_the_gateway_does_not_run_counts_for_no_frame() -> None:
    client = Server(transport=TransportOptions(input_timeout_s=5)).connected()
    client.connection.dataReceived(b"SEND\ndestination:/queue/a\n\nx")
    client.advance(4)
    client.server.clock.advance(60)
    assert client.commands() == []
    client.advance(1.5)
    assert client.commands() == ["ERROR"]


@pytest.mark.parametrize("octets", [b"\n", b"\r\n", b"S", b"\0"])
def test_any_octet_is_a_beat(octets: bytes) -> None:
    client = Server().connected(headers="heart-beat:1000,0\n")
    for _ in range(10):
        client.advance(1.8)
        client.connection.dataReceived(octets if octets != b"S" else b"\n")
    assert not client.transport.aborted


def test_a_client_that_is_not_read_is_not_called_silent() -> None:
    client = Server(SessionOptions(input_hold=1024)).connected(headers="heart-beat:1000,0\n")
    plain = client.server.provider.connection.sessions[0]
    plain.is_writable = False
    client.say("SEND\ndestination:/queue/a\n\nx")
    client.say("SEND\ndestination:/queue/a\n\n" + "x" * 2000)
    assert client.transport.producerState == "paused"
    assert not client.dropped_after(30)
    plain.drain()
    client.server.clock.advance(0)
    assert not client.dropped_after(1.5)
    assert client.dropped_after(1)


def test_a_client_that_does_not_read_is_dropped_in_time() -> None:
    server = Server(transport=TransportOptions(output_timeout_s=5))
    client = server.connected()
    assert not client.dropped_after(4)
    client.drain()
    assert not client.dropped_after(20)
    client.say("SEND\ndestination:/queue/a\nreceipt:r\n\n")
    assert client.dropped_after(6)


def test_a_reader_that_stops_is_dropped_a_quarter_of_the_time_out_late_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Server(transport=TransportOptions(output_timeout_s=8)).connected()
    client.drain()
    confirmed = 1000
    monkeypatch.setattr(Output, "taken", lambda _: confirmed)
    client.say("SEND\ndestination:/queue/a\nreceipt:r\n\n")
    confirmed = 2000  # its kernel takes more, until its own buffer is full
    assert not client.dropped_after(7.8)
    assert client.dropped_after(2.4)


def test_a_large_message_has_more_time() -> None:
    client = Server(transport=TransportOptions(output_timeout_s=5)).connected()
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n")
    client.consumer().push(message(b"x" * 16 * 1024 * 20))
    assert not client.dropped_after(20)
    assert client.dropped_after(10)


def test_output_beyond_the_limit_drops_the_client() -> None:
    client = Server(transport=TransportOptions(output_limit=100_000)).connected()
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n")
    client.consumer().push(message(b"x" * 99_000))
    assert not client.transport.aborted
    client.say("SUBSCRIBE\nid:t\ndestination:/queue/b\nreceipt:" + "r" * 2000 + "\n\n")
    assert client.transport.aborted


def test_connections_are_limited_in_all_by_address_and_by_user() -> None:
    server = Server(transport=TransportOptions(max_connections=4, max_connections_per_address=2))
    first = server.client("192.0.2.1")
    server.client("192.0.2.1")
    assert "192.0.2.1" in server.client("192.0.2.1").error().head.headers["message"]
    server.client("192.0.2.2")
    assert "4 is the limit" in server.client("192.0.2.3").error().head.headers["message"]
    for connection in server.factory.admission.connections:
        if connection is not first.connection:
            connection.connectionLost()
    server.client("192.0.2.1")
    assert (server.counters.connections, server.counters.connections_total) == (2, 6)


def test_one_user_has_so_many_connections() -> None:
    server = Server(transport=TransportOptions(user_limits=UserLimits(UserLimit(connections=1))))
    first = server.connected()
    second = server.client()
    assert "'guest'" in second.refusal("CONNECT\nlogin:guest\npasscode:secret\n\n")
    assert server.provider.connection.closed
    other = server.client()
    assert other.answers("CONNECT\nlogin:other\npasscode:secret\n\n") == ["CONNECTED"]
    first.lose()
    second.lose()
    server.connected()


class Thing:
    """Something on the wheel that wants to be looked at each so many milliseconds."""

    def __init__(self, clock: Clock, pause: int) -> None:
        self.due_tick = 0
        self.clock = clock
        self.pause = pause
        self.seen: list[float] = []

    def expire(self, now_ms: int) -> int:
        self.seen.append(self.clock.seconds())
        return now_ms + self.pause if self.pause else 0

    def was_away(self, late_ms: int, now_ms: int) -> None:
        """Of no concern here."""


@pytest.mark.parametrize("pause", [50, 120, 1000, 30_000, 200_000])
def test_the_wheel_is_never_early_and_at_most_a_tick_late_or_a_turn_early(
    pause: int, clock: Clock
) -> None:
    wheel = Wheel(clock)
    thing = Thing(clock, 0)
    wheel.arm(thing, pause)
    while not thing.seen:
        clock.advance(0.01)
    horizon = TICK_MS * 1023 / 1000
    assert (
        min(pause / 1000, horizon) - 1e-9
        <= thing.seen[0]
        <= min(pause / 1000, horizon) + 2 * TICK_MS / 1000
    )
    clock.advance(1)
    assert (len(wheel), clock.getDelayedCalls()) == (0, [])


def test_arming_earlier_moves_and_later_does_not(clock: Clock) -> None:
    wheel = Wheel(clock)
    thing = Thing(clock, 0)
    wheel.arm(thing, 5000)
    wheel.arm(thing, 1000)
    wheel.arm(thing, 9000)
    assert len(wheel) == 1
    for _ in range(200):
        clock.advance(0.05)
    assert len(thing.seen) == 1
    assert 1.0 <= thing.seen[0] <= 1.1


def test_one_timer_serves_them_all_and_a_defect_in_one_harms_no_other(clock: Clock) -> None:
    wheel = Wheel(clock)
    things = [Thing(clock, 200) for _ in range(1000)]

    def broken(now_ms: int) -> int:
        raise RuntimeError("defect")

    things[500].expire = broken  # type: ignore[method-assign]
    for thing in things:
        wheel.arm(thing, 100)
    assert len(clock.getDelayedCalls()) == 1
    for _ in range(40):
        clock.advance(0.05)
    assert all(len(thing.seen) >= 7 for thing in things if thing is not things[500])
    assert len(wheel) == 999
    wheel.stop()
    assert clock.getDelayedCalls() == []


def test_an_ending_that_hangs_is_hurried_and_closed(server: Server, client: Client) -> None:
    server.provider.holds_completions = True
    client.say("SEND\ndestination:/queue/a\nreceipt:never\n\nx", "NONSENSE\n\n")
    client.drain()
    assert client.heard() == []
    client.advance(5.2)
    assert client.commands() == ["ERROR"]
    client.drain()
    assert client.transport.half_closed
    client.advance(2.2)
    assert client.transport.disconnecting
    assert server.provider.connection.closed


def test_an_error_that_is_never_read_is_closed_over(client: Client) -> None:
    client.say("NONSENSE\n\n")
    assert client.dropped_after(9)


def test_a_provider_that_is_lost_ends_the_connection(server: Server, client: Client) -> None:
    server.provider.connection.lost(unavailable())
    server.clock.advance(0)
    assert "it is gone" in client.error().head.headers["message"]
    assert not server.provider.connection.closed


def test_a_lost_socket_closes_the_providers_connection_once(server: Server, client: Client) -> None:
    client.say("SUBSCRIBE\nid:s\ndestination:/queue/a\n\n")
    client.consumer().push(message())
    session = client.connection.session
    client.lose()
    assert server.provider.connection.closed
    assert (server.provider.calls("acknowledge through"), server.counters.connections) == ([], 0)
    assert session.state is State.CLOSED


def test_an_internal_error_has_an_incident_and_no_details(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    client = server.connected()

    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(server.provider.connection.sessions[0], "send", broken)
    with logged() as events:
        client.say("SEND\ndestination:/queue/a\n\nx")
    error = client.error()
    assert "internal error, incident" in error.head.headers["message"]
    assert b"secret detail" not in error.body
    incident = error.head.headers["message"].split()[-1]
    assert any(event.get("incident") == incident and "log_failure" in event for event in events)
