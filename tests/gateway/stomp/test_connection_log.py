"""What the log is told of a connection: one line when it begins, one when it ends, and nothing that
a client could forge.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from OpenSSL import SSL
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.logger import LogEvent, LogLevel, formatEvent
from twisted.python.failure import Failure

from gateway.instance.logs import MOST_A_SECOND
from gateway.messaging.errors import AccessDenied, AuthenticationFailed
from gateway.stomp.connection_log import ConnectionLog, quoted
from gateway.stomp.settings import TransportOptions
from gateway.stomp.transport import tls
from tests.gateway.stomp.client import Client, Server
from tests.logged import logged

WHO = "at 192.0.2.1:40000"


@pytest.fixture(name="events")
def logged_events() -> Iterator[list[LogEvent]]:
    """What the log is told."""
    with logged() as events:
        yield events


def told(events: list[LogEvent], level: LogLevel = LogLevel.info) -> list[str]:
    """The lines about connections of that level and above, without the identifier of the session;
    forgotten here.
    """
    found = [
        re.sub(r"^[0-9]\S* ", "", formatEvent(event))
        for event in events
        if event["log_namespace"] == "gateway.stomp.connection" and event["log_level"] >= level
    ]
    events.clear()
    return found


@pytest.mark.parametrize("receipt", ["", "receipt:1\n"])
def test_a_disconnect_is_one_whoever_closes_first(
    events: list[LogEvent], receipt: str, client: Client
) -> None:
    assert told(events) == [f"{WHO} of user 'guest' is CONNECTED: STOMP 1.2 over TCP"]
    client.server.provider.holds_completions = True
    client.say(f"DISCONNECT\n{receipt}\n")
    assert told(events) == []
    if not receipt:
        client.lose()
        assert told(events) == [f"{WHO} of user 'guest' ends: DISCONNECT"]
        return
    client.server.provider.complete()
    client.drain()
    client.server.clock.advance(0)
    client.lose()
    assert told(events) == [f"{WHO} of user 'guest' ends: DISCONNECT"]


def test_an_error_is_the_end_whatever_follows(events: list[LogEvent], client: Client) -> None:
    told(events)
    client.say("NONSENSE\n\n")
    client.lose()
    assert told(events) == [f"{WHO} of user 'guest' ends with ERROR: unknown command 'NONSENSE'"]


def test_a_client_that_is_lost_while_its_credentials_are_checked_has_a_line(
    events: list[LogEvent], server: Server
) -> None:
    server.provider.undecided = []
    client = server.client()
    client.say("CONNECT\naccept-version:1.2\nlogin:guest\npasscode:x\n\n")
    client.lose()
    [line] = told(events)
    assert line.startswith(f"{WHO} of user 'guest' ends: ")


def test_a_refused_login_is_a_warning_with_who_tried(events: list[LogEvent]) -> None:
    for refusal in (AuthenticationFailed("guest"), AccessDenied("guest", "connect", "this broker")):
        server = Server()
        server.provider.refusal = refusal
        client = server.client()
        client.say("CONNECT\naccept-version:1.2\nlogin:guest\npasscode:x\n\n")
        [line] = told(events, LogLevel.warn)
        assert line.startswith(f"{WHO} of user 'guest' ends with ERROR: ")


def test_silent_connections_without_number_have_some_lines_and_their_number(
    events: list[LogEvent], server: Server
) -> None:
    clients = [server.client(f"192.0.2.{number % 5}") for number in range(200)]
    clients[0].advance(TransportOptions().connect_timeout_s + 1)
    assert len(told(events)) == MOST_A_SECOND
    clients[0].advance(61)
    kind = "connections that ended with an ERROR before they were CONNECTED"
    assert told(events) == [
        f"and {200 - MOST_A_SECOND} more from 5 addresses in the last minute: {kind}"
    ]


def test_clients_that_were_connected_have_all_their_lines(
    events: list[LogEvent], server: Server
) -> None:
    for _ in range(3 * MOST_A_SECOND):
        server.connected().say("NONSENSE\n\n")
    assert len([line for line in told(events) if "unknown command" in line]) == 3 * MOST_A_SECOND


def test_a_refusal_of_who_is_connected_is_no_warning(events: list[LogEvent]) -> None:
    log = ConnectionLog("s", "::1", 5)
    log.connected(Server().connected().connection.session.version, None)
    told(events)
    log.failed(AccessDenied("guest", "produce", "queue:q"), "no")
    assert [(event["log_level"], formatEvent(event)) for event in events] == [
        (LogLevel.info, "s at [::1]:5 ends with ERROR: no")
    ]


def test_one_connection_too_many_is_a_warning(events: list[LogEvent]) -> None:
    Server(transport=TransportOptions(max_connections=0)).client()
    assert told(events, LogLevel.warn) == [
        f"{WHO} ends with ERROR: too many connections: 0 is the limit"
    ]


def test_a_silent_client_is_dropped_with_one_line(events: list[LogEvent]) -> None:
    client = Server().connected(headers="heart-beat:1000,0\n")
    told(events)
    while not client.transport.aborted:
        client.advance(1)
    client.lose()
    [line] = told(events)
    assert line.startswith(f"{WHO} of user 'guest' is dropped: no octet for ")


def test_frames_are_told_of_where_somebody_reads_it(events: list[LogEvent], client: Client) -> None:
    told(events)
    client.say(
        "SUBSCRIBE\nid:1\ndestination:/queue/a\n\n",
        "SEND\ndestination:/queue/a\n\nx",
        f"BEGIN\ntransaction:{'t' * 900}\n\n",
    )
    subscribe, begin = told(events, LogLevel.debug)
    assert subscribe == f"{WHO} of user 'guest' asks SUBSCRIBE id:1 destination:/queue/a"
    assert begin.endswith("t...")
    assert len(begin) < 600


@given(st.text())
def test_what_a_client_chooses_cannot_end_its_quotes(text: str) -> None:
    inside = quoted(text)
    assert inside[0] == inside[-1] == "'"
    left = inside[1:-1].replace("\\\\", "").replace("\\'", "")
    assert "'" not in left
    assert not left.endswith("\\")
    assert len(inside) <= 2 * 104 + 2


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            SSL.Error([("SSL routines", "", "unsupported protocol")]),
            ("unsupported protocol", False),
        ),
        (
            SSL.Error([("SSL routines", "", "peer did not return a certificate")]),
            ("peer did not return a certificate", True),
        ),
        (SSL.Error([("a", "", "one"), ("b", "", "two")]), ("one, two", False)),
        (SSL.Error(), None),
        (SSL.Error([]), None),
        (SSL.SysCallError(-1, "Unexpected EOF"), None),
        (ConnectionDone(), None),
        (ConnectionLost(), None),
    ],
)
def test_why_a_handshake_failed(error: Exception, expected: tuple[str, bool] | None) -> None:
    assert tls.refusal(object(), Failure(error)) == expected  # type: ignore[no-untyped-call]
