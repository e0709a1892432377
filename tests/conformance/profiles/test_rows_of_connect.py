"""What CONNECT is answered with: rows of ``docs/profiles.rst``."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tests.conformance.client import Client
from tests.conformance.profiles.conftest import Join
from tests.conformance.profiles.rows import row


@row(
    "``server`` of CONNECTED begins with",
    openmq="stomp-gateway/",
    standard="stomp-gateway/",
    activemq="ActiveMQ/",
    artemis="ActiveMQ-Artemis/",
    rabbitmq="RabbitMQ/",
)
def test_server(join: Join, profile: str, cell: str) -> None:
    connected = join(profile).connected
    assert connected is not None
    assert connected["server"].startswith(cell)
    assert "stomp-gateway/" in connected["server"]


@row(
    "``session`` of CONNECTED begins with",
    activemq="ID:",
    rabbitmq="session-",
    others="anything",
)
def test_session(join: Join, profile: str, cell: str) -> None:
    connected = join(profile).connected
    assert connected is not None
    assert connected["session"].startswith("" if cell == "anything" else cell)


@row("``version`` without ``accept-version``", artemis="none", others="1.0")
def test_version(dial: Callable[[str], Client], profile: str, cell: str) -> None:
    client = dial(profile)
    connected = client.connect(None)
    assert connected.headers.get("version", "none") == cell


@row("``heart-beat`` of CONNECTED without one of CONNECT", artemis="none", others="0,0")
def test_heart_beat(join: Join, profile: str, cell: str) -> None:
    connected = join(profile).connected
    assert connected is not None
    assert connected.headers.get("heart-beat", "none") == cell


@row("``heart-beat`` of CONNECTED to ``heart-beat:0,0``", artemis="0,30000", others="0,0")
def test_heart_beat_wanted(join: Join, profile: str, cell: str) -> None:
    client = join(profile, heart_beat="0,0")
    assert client.connected is not None
    assert client.connected["heart-beat"] == cell
    client.sync()


@row("``response-id`` of CONNECTED to ``receipt`` of CONNECT", activemq="is that", others="none")
def test_receipt(join: Join, profile: str, cell: str) -> None:
    connected = join(profile, receipt="7").connected
    assert connected is not None
    assert connected["receipt-id"] == "7"
    assert connected.headers.get("response-id", "none") == ("7" if cell == "is that" else "none")


@row("heart-beats go out after", activemq="nearly the interval", others="half the interval")
def test_heart_beats(join: Join, profile: str, cell: str) -> None:
    client = join(profile, heart_beat="0,800")
    beats = client.wait_for_beats(4)
    least = min(later - earlier for earlier, later in itertools.pairwise(beats))
    assert (least > 0.7) is (cell == "nearly the interval")


@row("a ``client-id`` that another connection has", artemis="is shared", others="ERROR")
def test_client_ids(join: Join, name: str, profile: str, cell: str) -> None:
    client = join(profile, client_id=name)
    if cell == "ERROR":
        with pytest.raises(AssertionError, match="in use by another connection"):
            join(profile, client_id=name)
        return
    other = join(profile, client_id=name)
    durable = {"id": "s", "durable-subscription-name": "d", "subscription-type": "MULTICAST"}
    durable |= {"destination": name, "ack": "client-individual", "activemq.prefetchSize": "1"}
    for each in (client, other):
        each.ask("SUBSCRIBE", durable)
    sent = {"destination": name, "destination-type": "MULTICAST", "persistent": "true"}
    for body in ("1", "2"):
        join(profile).ask("SEND", sent, body)
    assert {client.message().text, other.message().text} == {"1", "2"}
    for each in (client, other):
        each.disconnect()
    again = join(profile, client_id=name)
    again.ask("SUBSCRIBE", durable)
    first = again.message()
    again.ack(first)
    assert {first.text, again.message().text} == {"1", "2"}
    again.ask("UNSUBSCRIBE", {"durable-subscription-name": "d"})
    join(profile).ask("SEND", sent, "lost")
    again.ask("SUBSCRIBE", durable)
    again.send("SEND", sent, "later")
    assert again.message().text == "later"


@row("CONNECT without login", openmq="ERROR", standard="ERROR", others="is guest")
def test_login(dial: Callable[[str], Client], profile: str, cell: str) -> None:
    client = dial(profile)
    client.send("CONNECT", {"accept-version": "1.2"})
    assert client.frame().command == ("ERROR" if cell == "ERROR" else "CONNECTED")
