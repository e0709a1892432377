"""How long clients may be silent, by the settings of Artemis."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.instance.settings import SettingsError, read
from gateway.stomp.lifetime import Lifetime
from gateway.stomp.profiles import ARTEMIS
from gateway.stomp.settings import SETTINGS, SessionOptions, StompOptions
from tests.gateway.stomp.client import Client, Server


def _options(*lines: str) -> StompOptions:
    given = [f"imq.bridge.stomp.listener.{line}" for line in lines]
    return StompOptions.read(read(SETTINGS, None, given)[0], "1")


def _client(lifetime: Lifetime, headers: str = "") -> Client:
    profile = replace(ARTEMIS, lifetime=lifetime)
    return Server(SessionOptions(profile=profile)).connected(headers=headers)


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [
        ("0,0", "0,500"),
        ("1,0", "0,2500"),
        ("3000,0", "0,3000"),
        ("20000,0", "0,5000"),
        ("3000,700", "700,3000"),
    ],
)
def test_heart_beats_are_agreed_upon_by_the_bounds(asked: str, agreed: str) -> None:
    lifetime = Lifetime(1000, 5000, 10_000)
    client = Server(SessionOptions(profile=replace(ARTEMIS, lifetime=lifetime))).client()
    client.say(f"CONNECT\naccept-version:1.2\nlogin:a\npasscode:b\nheart-beat:{asked}\n\n")
    assert client.heard()[0].head.headers["heart-beat"] == agreed


@pytest.mark.parametrize("headers", ["", "heart-beat:0,0\n"])
def test_a_client_that_promises_nothing_is_ended_with_an_error(headers: str) -> None:
    client = _client(Lifetime(1000), headers)
    client.advance(0.9)
    assert client.commands() == []
    client.say("\n")
    client.advance(0.9)
    assert client.commands() == []
    client.advance(0.2)
    assert "connectionTtl" in client.error().head.headers["message"]


@pytest.mark.parametrize(
    ("lifetime", "interval", "least", "most"),
    [
        (Lifetime(), 1, 0.95, 1.1),
        (Lifetime(), 3000, 5.9, 6.1),
        (Lifetime(shortest=5000, longest=10_000), 1, 4.9, 5.1),
        (Lifetime(shortest=5000, longest=10_000), 20_000, 9.9, 10.1),
        (Lifetime(factor=1.0), 5000, 4.9, 5.1),
        (Lifetime(factor=1.5), 5000, 7.4, 7.6),
        # What is of those that promise nothing is not of this one.
        (Lifetime(unpromised=1000), 5000, 9.9, 10.1),
    ],
)
def test_a_client_that_has_promised_is_ended_by_its_promise_and_the_bounds(
    lifetime: Lifetime, interval: int, least: float, most: float
) -> None:
    client = _client(lifetime, f"heart-beat:{interval},0\n")
    client.advance(least)
    assert client.commands() == []
    client.advance(most - least)
    client.error()


def test_one_that_may_be_silent_for_ever_is_not_ended() -> None:
    client = _client(Lifetime(), "heart-beat:0,0\n")
    client.advance(50)
    assert client.commands() == []
    assert not client.transport.is_closed


def test_the_settings_are_those_of_a_listener() -> None:
    options = _options(
        "tcp.profile=artemis",
        "tcp.connectionTtl=1000",
        "a.port=1",
        "a.profile=artemis",
        "a.connectionTtlMin=5000",
        "a.connectionTtlMax=10000",
        "a.heartBeatToConnectionTtlModifier=1.5",
        "b.port=2",
        "b.profile=artemis",
        "b.disableStompServerHeader=true",
    )
    tcp, first, second = (one.profile for one in options.listeners)
    assert tcp.lifetime == Lifetime(1000, 1000, 0, 2.0)
    assert first.lifetime == Lifetime(0, 5000, 10_000, 1.5)
    assert second.lifetime is None
    assert (tcp.server[:16], second.server) == ("ActiveMQ-Artemis", "")


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["connectionTtl=1000"], r"profile=artemis, too"),
        (["disableStompServerHeader=true"], r"profile=artemis, too"),
        (["profile=artemis", "connectionTtlMax=999"], "at least connectionTtlMin, 1000 ms"),
        (["profile=artemis", "heartBeatToConnectionTtlModifier=0.5"], "1.0"),
    ],
)
def test_what_cannot_be_is_refused(lines: list[str], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        _options(*(f"tcp.{line}" for line in lines))
