"""What STOMP clients notice of a database that cannot be reached.

Nothing comes but heart-beats, until all of it comes.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred

from gateway.broker.security.users import Principal
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.messaging.destination import Queue
from gateway.messaging.provider import Credentials
from gateway.stomp.counters import Counters
from gateway.stomp.refusals import BridgeStopped
from gateway.stomp.service import StompFactory
from gateway.stomp.settings import SessionOptions, TransportOptions
from gateway.stomp.wire import Frame
from tests.gateway.broker.brokers import EveryoneIn
from tests.gateway.broker.stepped_broker import Stepped, texts
from tests.gateway.stomp.client import Client, Server

Q = Queue("q")
CONNECT = "CONNECT\naccept-version:1.2\nlogin:guest\npasscode:guest\n"
KIB = 1024


class Scene:
    """A STOMP bridge over a stepped broker."""

    def __init__(self, stepped: Stepped, transport: TransportOptions | None = None) -> None:
        self.stepped = stepped
        self.server = Server()
        self.server.clock, self.server.turn = stepped.clock, stepped.turn
        self.counters = Counters()
        self.server.factory = StompFactory(
            stepped.clock,
            stepped.turn,
            stepped.provider,
            SessionOptions(),
            transport or TransportOptions(),
            None,
            self.counters,
            lambda count: bytes(count),
        )

    def client(self, headers: str = "") -> Client:
        """A client that is CONNECTED."""
        client = Client(self.server)
        assert self.answers(client, f"{CONNECT}{headers}\n") == ["CONNECTED"]
        return client

    def answers(self, client: Client, *frames: str) -> list[str]:
        """Send these frames in one read, and return what comes."""
        client.say(*frames)
        self.stepped.run_until_idle()
        return heard(client)

    def lose_reach(self) -> None:
        self.stepped.store.lose_reach()
        self.stepped.run_until_idle()

    def reach(self) -> None:
        self.stepped.store.reach()
        self.stepped.run_until_idle()


def heard(client: Client) -> list[str]:
    """What has come."""
    return named(client.heard())


def named(frames: Sequence[Frame]) -> list[str]:
    """Receipts by their ids, messages by their bodies, others by commands."""
    return [
        frame.head.headers.get("receipt-id") or frame.body.decode() or frame.head.command
        for frame in frames
    ]


def send(receipt: str = "", body: str = "x", queue: str = "q", **headers: str) -> str:
    given = {
        "destination": f"/queue/{queue}",
        **headers,
        **({"receipt": receipt} if receipt else {}),
    }
    return "SEND\n" + "".join(f"{name}:{value}\n" for name, value in given.items()) + f"\n{body}"


class Verifying(EveryoneIn):
    """Lets everyone in when it is told."""

    def __init__(self, verified: Deferred[Principal]) -> None:
        super().__init__()
        self._verified = verified

    def authenticate(self, credentials: Credentials) -> Deferred[Principal]:
        return self._verified


@pytest.fixture
def scene(stepped: Stepped) -> Scene:
    return Scene(stepped)


def test_no_frame_is_answered_until_all_are_in_order(scene: Scene) -> None:
    client = scene.client()
    assert scene.answers(
        client, "SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\nreceipt:s\n\n"
    ) == ["s"]
    client.say(send("on its way", "1"))
    assert heard(client) == ["1"], "it is delivered before it is stored"
    scene.lose_reach()
    for frame in (
        send("persistent", "2"),
        send("transient", "3", persistent="false"),
        "SUBSCRIBE\nid:2\ndestination:/topic/t\nreceipt:subscribed\n\n",
        "BEGIN\ntransaction:t\nreceipt:begun\n\n",
        send("in transaction", "4", transaction="t"),
        "COMMIT\ntransaction:t\nreceipt:committed\n\n",
        "UNSUBSCRIBE\nid:2\nreceipt:unsubscribed\n\n",
    ):
        client.say(frame)
    client.advance(20)
    assert heard(client) == []
    scene.reach()
    found = heard(client)
    assert [each for each in found if each not in "234"] == [
        "on its way",
        "persistent",
        "transient",
        "subscribed",
        "begun",
        "in transaction",
        "committed",
        "unsubscribed",
    ]
    assert [each for each in found if each in "234"] == ["2", "3", "4"]


def test_a_receipt_for_what_was_read_just_before_is_not_sent_after_it(scene: Scene) -> None:
    client = scene.client()
    client.connection.dataReceived((send("r", persistent="false") + "\0").encode())
    scene.lose_reach()
    assert heard(client) == []
    scene.reach()
    assert heard(client) == ["r"]


def test_an_acknowledgement_that_is_not_read_yet_counts_then(scene: Scene) -> None:
    client = scene.client()
    scene.stepped.send(texts(Q, ["x"]))
    client.say("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client-individual\n\n")
    scene.stepped.run_until_idle()
    [message] = client.read()
    scene.lose_reach()
    client.say(f"ACK\nid:{message.head.headers['ack']}\nreceipt:taken\n\n")
    client.advance(60)
    assert (heard(client), scene.stepped.bodies) == ([], ["x"])
    scene.reach()
    assert (heard(client), scene.stepped.bodies) == (["taken"], [])


def test_an_acknowledgement_after_unsubscribe_is_in_time_however_long_it_lasts(
    scene: Scene,
) -> None:
    client = scene.client()
    scene.stepped.send(texts(Q, ["x"]))
    client.say("SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client-individual\n\n")
    scene.stepped.run_until_idle()
    [message] = client.read()
    assert scene.answers(client, "UNSUBSCRIBE\nid:1\nreceipt:u\n\n") == ["u"]
    client.drain()
    scene.lose_reach()
    client.say(f"ACK\nid:{message.head.headers['ack']}\nreceipt:taken\n\n")
    client.advance(SessionOptions().unsubscribe_grace_ms / 1000 + 10)
    scene.reach()
    assert (heard(client), scene.stepped.bodies) == (["taken"], [])


def test_heart_beats_go_on_both_ways_and_no_client_is_dropped(scene: Scene) -> None:
    beating = scene.client("heart-beat:1000,1000\n")
    reading = scene.client("heart-beat:1000,1000\n")
    scene.lose_reach()
    before = len(beating.transport.octets()), len(reading.transport.octets())
    reading.say(send("r"))
    for _ in range(40):
        beating.connection.dataReceived(b"\n")
        beating.advance(0.5)
    for client, start in zip((beating, reading), before, strict=True):
        beats = client.transport.octets()[start:]
        assert set(beats) == set(b"\n")
        assert len(beats) >= 19
        assert not client.transport.aborted
    assert reading.transport.producerState == "paused"
    scene.reach()
    assert heard(reading) == ["r"]
    assert scene.answers(beating, send("b")) == ["b"]
    beating.advance(1.9)
    assert not reading.transport.aborted, "its time begins when it is read again"


def test_a_client_that_is_read_and_silent_is_dropped_as_ever(scene: Scene) -> None:
    client = scene.client("heart-beat:1000,0\n")
    scene.lose_reach()
    assert client.dropped_after(2.3)


def test_a_flood_is_not_read(scene: Scene) -> None:
    client = scene.client()
    scene.lose_reach()
    client.say(*[send(str(number), "x" * KIB) for number in range(60)])
    assert client.transport.producerState == "paused"
    client.advance(10)
    assert (client.transport.producerState, heard(client)) == ("paused", [])
    assert scene.stepped.broker.waiting_octets() == 0, "nothing is accepted"
    scene.reach()
    assert client.transport.producerState == "producing"
    assert heard(client) == [str(number) for number in range(60)]
    assert len(scene.stepped.bodies) == 60


def test_half_a_frame_waits_without_being_too_slow(stepped: Stepped) -> None:
    scene = Scene(stepped, TransportOptions(input_timeout_s=5, input_rate=KIB))
    client = scene.client()
    frame = (send("r", "x" * 64 * KIB) + "\0").encode()
    client.connection.dataReceived(frame[:1000])
    scene.lose_reach()
    client.connection.dataReceived(frame[1000:2000])
    client.advance(60)
    assert heard(client) == []
    scene.reach()
    client.connection.dataReceived(frame[2000:])
    stepped.run_until_idle()
    assert heard(client) == ["r"]


def test_a_connect_waits_and_is_not_too_late(stepped: Stepped) -> None:
    scene = Scene(stepped, TransportOptions(connect_timeout_s=5))
    scene.lose_reach()
    client = Client(scene.server)
    client.say(f"{CONNECT}\n")
    client.advance(60)
    assert (heard(client), client.transport.is_closed) == ([], False)
    scene.reach()
    assert heard(client) == ["CONNECTED"]


def test_a_stranger_that_says_nothing_is_closed_as_ever(stepped: Stepped) -> None:
    scene = Scene(stepped, TransportOptions(connect_timeout_s=5))
    scene.lose_reach()
    client = Client(scene.server)
    client.advance(6)
    assert "not CONNECTED within 5 seconds" in client.error().head.headers["message"]


def test_a_disconnect_waits_for_its_receipt(scene: Scene) -> None:
    client = scene.client()
    client.say(send("r"), "DISCONNECT\nreceipt:bye\n\n")
    scene.lose_reach()
    client.advance(60)
    assert (heard(client), client.transport.is_closed) == ([], False)
    scene.reach()
    client.drain()
    assert (heard(client), scene.stepped.bodies) == (["r", "bye"], ["x"])
    client.drain()
    assert client.transport.is_closed


def test_a_client_that_goes_meanwhile_is_gone_and_its_messages_are_others(scene: Scene) -> None:
    client, other = scene.client(), scene.client()
    scene.stepped.send(texts(Q, ["x"]))
    subscribe = "SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client\n\n"
    assert scene.answers(client, subscribe) == ["x"]
    assert scene.answers(other, subscribe) == []
    scene.lose_reach()
    client.lose()
    scene.stepped.run_until_idle()
    assert scene.counters.connections == 1
    assert heard(other) == []
    scene.reach()
    assert heard(other) == ["x"]


def test_when_the_bridge_stops_meanwhile_clients_are_told_at_once_and_have_no_receipt(
    scene: Scene,
) -> None:
    client = scene.client()
    client.say(send("r"))
    scene.lose_reach()
    with scene.stepped.turn:
        client.connection.session.fail(BridgeStopped("the gateway stops"))
    client.advance(0.2)
    [frame] = client.heard()
    assert (frame.head.command, frame.head.headers["message"]) == ("ERROR", "the gateway stops")
    client.drain()
    assert client.transport.is_closed


def test_a_client_whose_passcode_is_verified_meanwhile_is_connected_and_no_more_is_read(
    scene: Scene,
) -> None:
    verified: Deferred[Principal] = Deferred()
    scene.stepped.provider = EmbeddedProvider(
        scene.stepped.broker, Verifying(verified), scene.stepped.access, bytes
    )
    scene = Scene(scene.stepped)
    client = Client(scene.server)
    client.say(f"{CONNECT}\n")
    scene.lose_reach()
    client.say(send("r"))
    assert client.transport.producerState == "paused"
    verified.callback(Principal("guest", frozenset()))
    client.advance(10)
    assert (heard(client), client.transport.producerState) == (["CONNECTED"], "paused")
    scene.reach()
    assert (heard(client), client.transport.producerState) == (["r"], "producing")


def test_it_may_come_and_go_often(scene: Scene) -> None:
    client = scene.client()
    for number in range(5):
        scene.lose_reach()
        client.say(send(f"{number}"))
        if number % 2:
            scene.reach()
            scene.lose_reach()
        client.advance(1)
        scene.reach()
        assert heard(client) == [f"{number}"]
