"""CONNECT: versions, credentials, and the headers of CONNECTED.

STOMP 1.2 "Connecting"; Open MQ's Table 12-11.
"""

from __future__ import annotations

import logging

import pytest

from gateway.messaging.errors import AuthenticationFailed, ClientIdInUse
from gateway.stomp.session.peer import Subject
from gateway.stomp.session.states import State
from gateway.stomp.settings import SessionOptions, TransportOptions
from tests.gateway.stomp.client import Client, Server

LOGIN = "login:guest\npasscode:secret\n"


def test_no_common_version_is_an_error_that_lists_ours_and_closes() -> None:
    client = Server().client()
    client.say(f"CONNECT\naccept-version:2.0,3.0\n{LOGIN}\n")
    assert client.error().head.headers["version"] == "1.0,1.1,1.2"


def test_connected_tells_session_server_and_heart_beat(server: Server) -> None:
    client = server.client()
    client.say(f"CONNECT\naccept-version:1.2\n{LOGIN}host:whatever.example\nreceipt:r\n\n")
    [answer] = client.heard()
    assert answer.head.headers == {
        "version": "1.2",
        "session": client.connection.session.identifier,
        "server": "stomp-gateway/test",
        "heart-beat": "0,0",
        "receipt-id": "r",
    }
    other = server.connected()
    assert other.connection.session.identifier != client.connection.session.identifier


def test_credentials_and_client_id_reach_the_provider_and_no_log(
    caplog: pytest.LogCaptureFixture, server: Server
) -> None:
    with caplog.at_level(logging.DEBUG):
        server.connected(headers="client-id:me\n")
    assert server.provider.calls("connect") == [("connect", "guest", "secret", "me")]
    assert server.provider.credentials.address == "192.0.2.1"
    assert "secret" not in caplog.text


@pytest.mark.parametrize("refusal", [AuthenticationFailed("guest"), ClientIdInUse("me")])
def test_what_the_provider_refuses_is_an_error_and_closes(
    refusal: AuthenticationFailed | ClientIdInUse, server: Server
) -> None:
    server.provider.refusal = refusal
    client = server.client()
    client.say(f"CONNECT\n{LOGIN}receipt:r\n\n")
    error = client.error()
    assert (error.head.headers["message"], error.head.headers["receipt-id"]) == (str(refusal), "r")


def test_frames_sent_before_the_answer_wait_for_it(server: Server) -> None:
    server.provider.undecided = []
    client = server.client()
    client.say(
        f"CONNECT\naccept-version:1.2\n{LOGIN}\n", "SEND\ndestination:/queue/a\nreceipt:r\n\nx"
    )
    assert client.transport.producerState == "paused"
    assert client.heard() == []
    assert server.provider.sent == []
    server.provider.undecided[0].callback(server.provider.connection)
    server.clock.advance(0)
    assert client.commands() == ["CONNECTED", "RECEIPT"]
    assert [message.body for message in server.provider.sent] == [b"x"]
    assert client.transport.producerState == "producing"


def test_credentials_of_who_is_gone_are_not_checked_any_more(server: Server) -> None:
    server.provider.undecided = []
    client = server.client()
    client.say(f"CONNECT\n{LOGIN}\n")
    assert not server.provider.undecided[0].called
    client.lose()
    assert server.provider.undecided[0].called


def test_credentials_of_who_has_waited_too_long_are_not_checked_any_more(server: Server) -> None:
    server.provider.undecided = []
    client = server.client()
    client.say(f"CONNECT\n{LOGIN}\n")
    client.advance(TransportOptions().connect_timeout_s + 0.2)
    assert "not CONNECTED within" in client.error().head.headers["message"]
    assert server.provider.undecided[0].called


def test_nothing_is_carried_out_before_connect(server: Server) -> None:
    client = server.client()
    client.say(
        "SEND\ndestination:/queue/a\n\nx", f"CONNECT\n{LOGIN}\n", "SEND\ndestination:/queue/a\n\ny"
    )
    client.error()
    assert server.provider.log == []


def test_before_connected_a_frame_is_at_most_64_kib() -> None:
    client = Server().client()
    client.say(b"CONNECT\nlogin:" + b"x" * 70_000)
    client.error()
    big = Server().connected()
    assert big.answers(b"SEND\ndestination:/queue/a\n\n" + b"x" * 70_000) == []


def test_a_client_that_does_not_connect_in_time_is_told_and_closed(server: Server) -> None:
    client = server.client()
    client.advance(9.9)
    assert client.heard() == []
    client.advance(0.3)
    assert "10 seconds" in client.error().head.headers["message"]


def test_the_configured_time_holds() -> None:
    server = Server(transport=TransportOptions(connect_timeout_s=1))
    client = server.client()
    client.say(b"\n")
    client.advance(1.2)
    client.error()


def test_once_connected_there_is_no_such_limit(client: Client) -> None:
    client.advance(30)
    assert client.heard() == []
    assert client.connection.session.state is State.CONNECTED


def test_a_certificate_stands_in_only_where_the_operator_says_so() -> None:
    for allowed in (False, True):
        server = Server(SessionOptions(certificate_login=allowed))
        client = server.client()
        client.connection.__class__ = type(
            "WithCertificate",
            (type(client.connection),),
            {"certificate": Subject("alice", frozenset({"staff"}))},
        )
        client.say("CONNECT\naccept-version:1.2\n\n")
        if allowed:
            assert client.commands() == ["CONNECTED"]
            assert server.provider.credentials.certificate == "alice"
            assert server.provider.credentials.username == "alice"
            assert server.provider.credentials.certificate_groups is None
        else:
            client.error()


@pytest.mark.parametrize("value", ["1", "a,b", "-1,5", "1,2,3", "1,2x"])
def test_a_heart_beat_that_is_none_is_an_error(value: str) -> None:
    client = Server().client()
    assert "heart-beat" in client.refusal(
        f"CONNECT\naccept-version:1.2\n{LOGIN}heart-beat:{value}\n\n"
    )
