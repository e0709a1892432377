"""A newer token for a session, sent to ``/session/token``."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from gateway.messaging.errors import AuthenticationFailed
from gateway.stomp.session.states import State
from tests.gateway.stomp.client import Server

_SEND = "SEND\ndestination:/session/token\nreceipt:t\n\nnewer"


def test_it_goes_to_the_provider_and_is_no_message(server: Server) -> None:
    client = server.connected()
    client.say("SEND\ndestination:/queue/a\n\none", _SEND, "SEND\ndestination:/queue/a\n\ntwo")
    assert server.provider.calls("renew") == [("renew", "", "newer")]
    assert [message.body for message in server.provider.sent] == [b"one", b"two"]
    [receipt] = client.heard()
    assert receipt.head.headers["receipt-id"] == "t"


def test_its_receipt_waits_until_it_holds_and_nothing_else_does(server: Server) -> None:
    client = server.connected()
    renewing = server.provider.connection.renewing = Deferred()
    client.say(_SEND, "SEND\ndestination:/queue/a\n\none")
    assert client.heard() == []
    assert [message.body for message in server.provider.sent] == [b"one"]
    renewing.callback(None)
    assert [frame.head.headers["receipt-id"] for frame in client.heard()] == ["t"]


def test_one_that_is_refused_ends_the_session(server: Server) -> None:
    client = server.connected()
    renewing = server.provider.connection.renewing = Deferred()
    client.say(_SEND)
    renewing.errback(AuthenticationFailed("guest", "the token has ended"))
    error = client.error()
    assert "the token has ended" in error.head.headers["message"]
    assert error.head.headers["receipt-id"] == "t"


@pytest.mark.parametrize("good", [True, False])
def test_a_session_that_is_gone_meanwhile_hears_nothing(server: Server, good: bool) -> None:
    client = server.connected()
    renewing = server.provider.connection.renewing = Deferred()
    client.say(_SEND)
    client.say("NONSENSE\n\n")
    client.error()
    if good:
        renewing.callback(None)
    else:
        renewing.errback(AuthenticationFailed("guest"))
    assert client.connection.session.state is State.CLOSED


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        ("BEGIN\ntransaction:t\n\n", ""),
        ("SEND\ndestination:/session/token\n\n", "without a token"),
        ("SEND\ndestination:/session/token\n\n\u00e9", "without a token"),
        (_SEND.replace("newer", "x" * 20_000), "at most 16384"),
        ("SEND\ndestination:/session/other\n\nx", "/session/other"),
        ("SEND\ndestination:/session/token,/queue/a\n\nx", "/session/token"),
        ("SUBSCRIBE\ndestination:/session/token\nid:s\n\n", "/session/token"),
    ],
)
def test_what_cannot_be_is_refused(server: Server, frame: str, told: str) -> None:
    client = server.connected()
    client.say(frame)
    if not told:
        client.say("SEND\ndestination:/session/token\ntransaction:t\n\nnewer")
        told = "cannot be in a transaction"
    assert told in client.error().head.headers["message"]
    assert server.provider.calls("renew") == []


def test_a_full_destination_does_not_hold_it_back(server: Server) -> None:
    client = server.connected()
    server.provider.connection.sessions[0].is_writable = False
    client.say("SEND\ndestination:/queue/a\n\none")
    client.say("SEND\ndestination:/queue/a\nreceipt:r\n\ntwo", _SEND)
    assert server.provider.calls("renew") == [("renew", "", "newer")]
    assert [message.body for message in server.provider.sent] == [b"one"]
    [receipt] = client.heard()
    assert receipt.head.headers["receipt-id"] == "t"
    server.provider.connection.sessions[0].drain()
    assert [message.body for message in server.provider.sent] == [b"one", b"two"]


def test_one_is_verified_at_a_time_and_none_for_a_session_that_is_gone(server: Server) -> None:
    client = server.connected()
    cancelled: list[object] = []
    server.provider.connection.renewing = Deferred(cancelled.append)
    client.say(_SEND)
    client.say(_SEND)
    assert "being verified" in client.error().head.headers["message"]
    assert len(cancelled) == 1
    assert len(server.provider.calls("renew")) == 1
