"""The limit of a whole frame, and what it goes before."""

from __future__ import annotations

import pytest

from gateway.stomp.profiles import ACTIVEMQ, OPENMQ, Profile
from gateway.stomp.settings import SessionOptions, TransportOptions
from tests.gateway.stomp.client import Client, Server

_SEND = "SEND\ndestination:/queue/a\n"
_HEADERS = "".join(f"key{number}:value\n" for number in range(600))


def _client(profile: Profile, frame: int = -1) -> Client:
    transport = TransportOptions(frame=frame)
    return Server(SessionOptions(profile=profile), transport).connected("1.1")


@pytest.mark.parametrize(
    ("frame", "sent"),
    [
        (64 * 1024, f"{_SEND}\n" + "a" * 65_636),
        (64 * 1024, f"{_SEND}\n" + "a" * 65_530),
        (64 * 1024, f"{_SEND}content-length:65530\n\n" + "a" * 65_530),
        (5 * 1024, f"{_SEND}{_HEADERS}\nbody"),
        (512, "A" * 612 + "\ndestination:/queue/a\n\nbody"),
    ],
)
def test_a_larger_frame_is_refused_whatever_makes_it_large(frame: int, sent: str) -> None:
    assert _client(ACTIVEMQ, frame).refusal(sent) == "The maximum frame size was exceeded"
    if sent.startswith(_SEND):
        assert f"{frame} octets" in _client(OPENMQ, frame).refusal(sent)


def test_connect_is_no_larger_either() -> None:
    client = Server(SessionOptions(profile=OPENMQ), TransportOptions(frame=512)).client()
    assert "512 octets" in client.refusal(f"CONNECT\naccept-version:1.2\nlogin:{'a' * 512}\n\n")


@pytest.mark.parametrize("profile", [ACTIVEMQ, OPENMQ])
def test_a_frame_may_be_as_large_as_the_limit(profile: Profile) -> None:
    frame = f"{_SEND}receipt:1\n\n"
    body = "a" * (512 - len(frame) - 1)
    assert _client(profile, 512).answers(frame + body) == ["RECEIPT"]
    assert "512" in _client(OPENMQ, 512).refusal(frame + body + "a")


def test_without_it_headers_and_body_have_their_own_limits() -> None:
    client = _client(ACTIVEMQ)
    assert client.answers(f"{_SEND}receipt:1\n{_HEADERS}\n" + "a" * 200_000) == ["RECEIPT"]


def test_a_long_command_is_unknown_to_activemq_and_too_long_elsewhere() -> None:
    client = _client(ACTIVEMQ)
    client.say("A" * 1024 + "\n\n")
    [error] = client.heard()
    assert error.head.headers["message"].startswith("Unknown STOMP action: AAAA")
    assert client.refusal("A" * 1025 + "\n\n") == "The maximum command length was exceeded"
    assert "longer than 32 octets" in _client(OPENMQ).refusal("A" * 33 + "\n\n")
