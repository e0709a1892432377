"""Consumers against a scripted peer: what is subscribed to, settled, delivered again and given back;
and that peers which send more than is taken make us hold a bounded amount.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest
from stompest.protocol import StompFrame

from bridge.providers.stomp.frames import FrameReader, MalformedFrames
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Topic
from gateway.messaging.errors import (
    InvalidSelector,
    MessagingError,
    NotSupported,
    ProviderUnavailable,
)
from gateway.messaging.provider import (
    Connection,
    Consumer,
    ConsumerSpec,
    Credentials,
    Mode,
    Session,
)
from gateway.messaging.redelivery import RedeliveryChanges
from tests.bridge.providers.stomp.peer import QUEUE, WELL, Client, Meet, Peer, text, until
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process


async def consuming(
    peer: Peer, client: Client, mode: Mode = Mode.CLIENT, credit: int = 10, **spec: object
) -> tuple[Connection, Session, Consumer]:
    """A started consumer of the queue, subscribed."""
    connection = await client.connect()
    session = connection.session(mode)
    consumer = session.consumer(ConsumerSpec(QUEUE, **spec), client.deliver, client.failures.append)  # type: ignore[arg-type]
    consumer.grant(credit)
    consumer.start()
    await peer.heard("SUBSCRIBE")
    return connection, session, consumer


def bodies(client: Client) -> list[str]:
    return [body for _, run, _ in client.runs for body in run]


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (
            "ActiveMQ/5.17",
            {"activemq.prefetchSize": "7", "selector": "n > 2.0", "ack": "client-individual"},
        ),
        (
            "stomp-gateway/1.0",
            {"prefetch-count": "1000", "selector": "n > 2", "ack": "client-individual"},
        ),
        (
            "ActiveMQ-Artemis/2.30",
            {"destination": "q", "subscription-type": "ANYCAST", "selector": "n > 2"},
        ),
        ("Open Message Queue 5.1", {"destination": "/queue/q", "selector": "n > 2"}),
    ],
)
@on_reactor
async def test_a_queue_is_subscribed_to_in_the_dialect_once_there_is_credit(
    server: str, expected: dict[str, str], meet: Meet
) -> None:
    peer, client = meet(server)
    session = (await client.connect()).session(Mode.CLIENT)
    consumer = session.consumer(
        ConsumerSpec(QUEUE, selector="n > 2"), client.deliver, client.failures.append
    )
    consumer.start()
    await client.answered(session.completion)
    assert peer.of("SUBSCRIBE") == []
    consumer.grant(3)
    consumer.grant(4)
    headers = (await peer.heard("SUBSCRIBE"))[0].headers
    assert expected.items() <= headers.items()


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (
            "ActiveMQ/5.17",
            {
                "destination": "/topic/t.*.>",
                "activemq.subscriptionName": "d",
                "activemq.noLocal": "true",
            },
        ),
        (
            "RabbitMQ/3.10",
            {"destination": "/topic/t.*.*.#", "x-queue-name": "durable.m_2ee.d", "durable": "true"},
        ),
        (
            "stomp-gateway/1.0",
            {"destination": "/topic/t.*.>", "durable-subscriber-name": "d", "no-local": "true"},
        ),
        (
            "ActiveMQ-Artemis/2.30",
            {
                "destination": "t.*.*.#",
                "durable-subscription-name": "d",
                "subscription-type": "MULTICAST",
            },
        ),
    ],
)
@on_reactor
async def test_a_topic_is_subscribed_to_in_the_dialect_at_once(
    server: str, expected: dict[str, str], meet: Meet
) -> None:
    peer, client = meet(server)
    session = (await client.connect("m.e")).session(Mode.CLIENT)
    spec = ConsumerSpec(Topic("t.*.>"), durable_name="d", no_local=True)
    session.consumer(spec, client.deliver, client.failures.append)
    await client.answered(session.completion)
    assert expected.items() <= peer.of("SUBSCRIBE")[0].headers.items()


@pytest.mark.parametrize(
    "server", ["ActiveMQ-Artemis/2.30", "RabbitMQ/3.10", "Open Message Queue 5.1", "who knows"]
)
@on_reactor
async def test_what_a_dialect_cannot_do_is_not_supported(server: str, meet: Meet) -> None:
    _, client = meet(server)
    connection = await client.connect("me")
    capabilities = client.provider.capabilities
    session = connection.session(Mode.CLIENT)

    def consumer(spec: ConsumerSpec) -> Consumer:
        return session.consumer(spec, client.deliver, client.failures.append)

    asked = {
        "transacted": lambda: connection.session(Mode.TRANSACTED),
        "individual": lambda: connection.session(Mode.INDIVIDUAL),
        "selectors": lambda: consumer(ConsumerSpec(QUEUE, selector="a = 1")),
        "browse": lambda: consumer(ConsumerSpec(QUEUE, browse=True)),
        "durable": lambda: consumer(ConsumerSpec(Topic("t"), durable_name="d")),
        "xa": connection.xa_session,
    }
    denied = [name for name in asked if not getattr(capabilities, name)]
    assert denied
    for name in denied:
        with pytest.raises(NotSupported):
            asked[name]()


@on_reactor
async def test_an_invalid_selector_never_reaches_the_broker(meet: Meet) -> None:
    _, client = meet()
    session = (await client.connect()).session(Mode.CLIENT)
    with pytest.raises(InvalidSelector):
        session.consumer(
            ConsumerSpec(QUEUE, selector="n >"), client.deliver, client.failures.append
        )


@on_reactor
async def test_a_refused_subscription_fails_its_consumer_and_the_connection_goes_on(
    meet: Meet,
) -> None:
    peer, client = meet()
    peer.on["SUBSCRIBE"] = lambda frame: peer.refuse(frame, "not authorized")
    _, session, consumer = await consuming(peer, client)
    await until(lambda: client.failures)
    await client.answered(session.completion)
    assert isinstance(client.told[0], MessagingError), "the completion behind it says so, too"
    await client.answered(session.completion)
    assert (client.told[1], client.losses) == (WELL, [])
    consumer.grant(1)
    consumer.close()


@on_reactor
async def test_acknowledgements_are_single_on_the_wire_and_a_commit_confirms_them(
    meet: Meet,
) -> None:
    peer, client = meet()
    _, session, consumer = await consuming(peer, client)
    for number in range(1, 5):
        peer.message(number)
    await until(lambda: len(bodies(client)) == 4)
    assert consumer.acknowledge_through(3) == 3
    await client.answered(session.completion)
    acks = peer.of("ACK")
    assert [frame.headers["id"] for frame in acks] == ["a1", "a2", "a3"]
    assert not any({"receipt", "transaction"} & set(frame.headers) for frame in acks)
    last = peer.frames[-1]
    assert (last.command, "receipt" in last.headers) == ("COMMIT", True)


@on_reactor
async def test_credit_beyond_what_is_subscribed_to_is_another_subscription(meet: Meet) -> None:
    peer, client = meet()
    _, _, consumer = await consuming(peer, client, credit=2)
    for number in (1, 2):
        peer.message(number)
    await until(lambda: len(bodies(client)) == 2)
    consumer.grant(3)
    both = await peer.heard("SUBSCRIBE", 2)
    assert [frame.headers["activemq.prefetchSize"] for frame in both] == ["2", "3"]
    peer.message(3)
    await until(lambda: len(bodies(client)) == 3)
    consumer.acknowledge_through(3)
    consumer.grant(2)
    acks = await peer.heard("ACK", 3)
    assert [frame.headers["subscription"] for frame in acks] == [both[0].headers["id"]] * 2 + [
        both[1].headers["id"]
    ]
    assert len(peer.of("SUBSCRIBE")) == 2


@on_reactor
async def test_what_is_rejected_comes_again_and_is_buried_when_the_policy_says_so(
    meet: Meet,
) -> None:
    peer, client = meet()
    changes = RedeliveryChanges(
        maximum_redeliveries=2,
        initial_redelivery_delay=1,
        redelivery_delay=1,
        use_exponential_back_off=False,
    )
    _, _, consumer = await consuming(peer, client, Mode.INDIVIDUAL, redelivery=changes)
    peer.message(1)
    for number in (1, 2, 3):
        await until(lambda number=number: len(client.runs) == number)  # type: ignore[misc]
        consumer.reject([number])
    nack = (await peer.heard("NACK"))[0]
    assert nack.headers["id"] == "a1"
    assert [attempts for _, _, attempts in client.runs] == [None, [2], [2]], (
        "how often before is not known, so no count is told"
    )


@on_reactor
async def test_rabbitmq_is_told_of_a_death_only_if_the_user_says_so(meet: Meet) -> None:
    peer, client = meet("RabbitMQ/3.10")
    changes = RedeliveryChanges(maximum_redeliveries=0)
    _, _, consumer = await consuming(peer, client, Mode.INDIVIDUAL, redelivery=changes)
    peer.message(1)
    peer.message(2)
    await until(lambda: len(bodies(client)) == 2)
    consumer.reject([1])
    consumer.reject([2], dead=DeadReason.ERROR)
    nack = (await peer.heard("NACK"))[0]
    assert (nack.headers["id"], nack.headers["requeue"]) == ("a2", "false")
    assert len(peer.of("NACK")) == 1


@on_reactor
async def test_what_nobody_can_take_goes_back_to_the_queue(meet: Meet) -> None:
    peer, client = meet()
    _, session, consumer = await consuming(peer, client, credit=1)
    peer.message(1)
    await until(lambda: client.runs)
    session.recover()
    await peer.heard("UNSUBSCRIBE")
    consumer.grant(1)
    again = (await peer.heard("SUBSCRIBE", 2))[1]
    peer.message(1, subscription=again.headers["id"], redelivered="true")
    await until(lambda: len(client.runs) == 2)
    assert client.runs[1] == (2, ["x"], [2])


@on_reactor
async def test_rabbitmq_is_given_back_each_message_also_one_that_comes_late(meet: Meet) -> None:
    peer, client = meet("RabbitMQ/3.10", receipts=False)
    _, _, consumer = await consuming(peer, client)
    subscription = peer.of("SUBSCRIBE")[0].headers["id"]
    for number in (1, 2, 3):
        peer.message(number)
    await until(lambda: len(bodies(client)) == 3)
    consumer.acknowledge_through(1)
    consumer.close()
    await peer.heard("NACK", 2)
    late = peer.of("UNSUBSCRIBE")[0]
    at = peer.frames.index(late)
    assert peer.frames[at + 1].command == "SUBSCRIBE", "an ACK needs a subscription of that name"
    assert peer.frames[at + 1].headers["id"] == subscription
    peer.receipt(late)
    quiet = (await peer.heard("BEGIN"))[0]
    peer.message(4)
    peer.receipt(quiet)
    await peer.heard("UNSUBSCRIBE", 2)
    assert [frame.headers["id"] for frame in peer.of("NACK")] == ["a2", "a3", "a4"]
    assert {frame.headers["requeue"] for frame in peer.of("NACK")} == {"true"}
    assert len(bodies(client)) == 3


@on_reactor
async def test_a_stopped_consumer_keeps_nothing_from_others(meet: Meet) -> None:
    peer, client = meet()
    _, _, consumer = await consuming(peer, client)
    consumer.stop()
    peer.message(1)
    await peer.heard("UNSUBSCRIBE")
    assert client.runs == []
    consumer.start()
    await peer.heard("SUBSCRIBE", 2)


async def _a_clients_consumer(client: Client) -> tuple[Session, Consumer]:
    """One that has credit and is not started."""
    clients = Credentials("guest", "secret", for_clients=True)
    connection = await client.provider.connect(clients, None, client.losses.append)
    session = connection.session(Mode.CLIENT)
    consumer = session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append)
    consumer.grant(10)
    return session, consumer


@on_reactor
async def test_a_completion_tells_a_client_that_its_subscription_is_refused(meet: Meet) -> None:
    """Before it starts, which it does when it has its RECEIPT."""
    peer, client = meet()
    peer.on["SUBSCRIBE"] = lambda frame: peer.refuse(frame, "User is not authorized")
    session, _ = await _a_clients_consumer(client)
    await client.answered(session.completion)
    [error] = client.failures
    assert client.told == [error]


@on_reactor
async def test_what_comes_before_a_client_has_its_receipt_waits(meet: Meet) -> None:
    peer, client = meet()

    def subscribed(frame: StompFrame) -> None:
        peer.message(1)
        peer.receipt(frame)

    peer.on["SUBSCRIBE"] = subscribed
    session, consumer = await _a_clients_consumer(client)
    await client.answered(session.completion)
    assert client.runs == []
    consumer.start()
    await until(lambda: client.runs == [(1, ["x"], None)])
    assert "UNSUBSCRIBE" not in peer.commands()


@on_reactor
async def test_what_came_for_a_client_that_is_held_goes_to_others(meet: Meet) -> None:
    peer, client = meet()
    session, consumer = await _a_clients_consumer(client)
    await client.answered(session.completion)
    peer.message(1)
    consumer.stop()
    await peer.heard("UNSUBSCRIBE")
    assert client.runs == []


@on_reactor
async def test_an_auto_delivery_is_acknowledged_once_it_has_returned(meet: Meet) -> None:
    peer, client = meet()
    await consuming(peer, client, Mode.AUTO)
    peer.message(1)
    assert (await peer.heard("ACK"))[0].headers["id"] == "a1"


@on_reactor
async def test_a_deliver_that_raises_harms_nobody(meet: Meet) -> None:
    peer, client = meet()
    session = (await client.connect()).session(Mode.AUTO)

    def broken(*delivery: object) -> None:
        client.runs.append((0, [], None))
        raise RuntimeError("broken")

    consumer = session.consumer(ConsumerSpec(QUEUE), broken, client.failures.append)
    consumer.grant(2)
    consumer.start()
    await peer.heard("SUBSCRIBE")
    peer.message(1)
    await until(lambda: client.runs)
    await client.answered(session.completion)
    assert (client.losses, peer.of("ACK")) == ([], [])


@on_reactor
async def test_messages_of_no_subscription_are_passed_over(meet: Meet) -> None:
    peer, client = meet()
    await consuming(peer, client)
    peer.message(1, subscription="nobody")
    peer.octets(b"MESSAGE\n\n\0")
    peer.message(2)
    await until(lambda: client.runs)
    assert client.runs == [(1, ["x"], None)]


@on_reactor
async def test_a_socket_is_not_read_while_too_much_waits_for_credit_unless_a_receipt_is_awaited(
    meet: Meet,
) -> None:
    peer, client = meet("who knows", max_buffer=100_000)
    connection, session, consumer = await consuming(peer, client, credit=1)
    sent = 0
    while peer.sockets[-1].transport is not None and sent < 400:
        peer.message(sent, b"x" * 100_000)
        sent += 1
    await until(lambda: bodies(client))
    buffered = connection.state.buffered  # type: ignore[attr-defined]
    assert buffered < 20_000_000, "what is in the kernel's buffers stays there"
    session.send([text("x")])
    await client.answered(session.completion)
    assert client.told == [WELL], "the RECEIPT came through"
    consumer.grant(1000)
    await until(lambda: len(bodies(client)) == sent)


@on_reactor
async def test_calls_on_what_is_closed(meet: Meet) -> None:
    peer, client = meet()
    connection, session, consumer = await consuming(peer, client)
    session.close()
    for call in (
        lambda: session.send([text("x")]),
        lambda: session.completion(client.done),
        session.recover,
        lambda: session.consumer(ConsumerSpec(QUEUE), client.deliver, client.failures.append),
    ):
        with pytest.raises(ProviderUnavailable):
            call()
    consumer.grant(1)
    consumer.start()
    consumer.stop()
    consumer.close()
    await connection.close()


# --- more than is taken, and frames that are larger than they may be


#: What one read from a socket brings at most, and what a message counts at least besides its
#: octets.
_READ = 65_536
_OBJECTS = 500 + 4 * 100


class Flooded:
    """A consumer of a peer, with credit for one message."""

    def __init__(self, peer: Peer, **options: Any) -> None:
        self.peer = peer
        self.client = Client(peer, **options)

    async def connect(self, credit: int = 1) -> None:
        self.connection: Any = await self.client.connect()
        self.session = self.connection.session(Mode.CLIENT)
        self.consumer: Any = self.session.consumer(
            ConsumerSpec(QUEUE), self.client.deliver, self.client.failures.append
        )
        self.consumer.grant(credit)
        self.consumer.start()
        await self.client.answered(self.session.completion)

    @property
    def reading(self) -> bool:
        return bool(self.connection.state.wire._reading)

    @property
    def delivered(self) -> int:
        return sum(len(run) for _, run, _ in self.client.runs)

    def frame(self, body: bytes = b"", more: str = "") -> bytes:
        subscription = self.peer.of("SUBSCRIBE")[-1].headers["id"]
        head = f"MESSAGE\nsubscription:{subscription}\nmessage-id:m\nack:a\ndestination:/queue/q\n{more}\n"
        return head.encode() + body + b"\0"


@pytest.mark.parametrize("body", [b"", b"hello"])
@on_reactor
async def test_headers_and_objects_count_and_reading_goes_on_when_messages_are_taken(
    body: bytes,
) -> None:
    peer = Peer("who knows")
    flooded = Flooded(peer, max_buffer=200_000)
    await flooded.connect()
    frame, count = flooded.frame(body), 20_000
    peer.octets(frame * count)
    await until(lambda: not flooded.reading or len(flooded.consumer._buffer) == count - 1)
    one = len(frame) + _OBJECTS
    waiting = len(flooded.consumer._buffer)
    assert waiting * _OBJECTS < 200_000 + (_READ // len(frame) + 1) * one, (
        f"{waiting} messages wait"
    )
    flooded.consumer.grant(2 * count)
    await until(lambda: flooded.delivered == count)
    assert (flooded.client.losses, flooded.connection.state.buffered) == ([], 0)
    await peer.close()


@on_reactor
async def test_a_receipt_that_never_comes_does_not_have_a_flood_read_without_end() -> None:
    peer = Peer("who knows")
    flooded = Flooded(peer, max_buffer=100_000, max_frame=400_000, receipt_timeout=3)
    await flooded.connect()
    peer.receipts = False
    peer.message(1)
    await until(lambda: flooded.delivered == 1)
    flooded.consumer.acknowledge_through(1)
    flooded.session.completion(flooded.client.done)
    frame, count = flooded.frame(b"hello"), 20_000
    peer.octets(frame * count)
    most = 0

    def ended() -> bool:
        nonlocal most
        most = max(most, len(flooded.consumer._buffer))
        return bool(flooded.client.losses)

    await until(ended)
    assert most * _OBJECTS < 500_000 + (_READ // len(frame) + 1) * (len(frame) + _OBJECTS), (
        f"{most} messages waited"
    )
    said = str(flooded.client.losses[0])
    assert "a RECEIPT did not come" in said
    assert "more than 500000 bytes of them wait here" in said
    assert "stomp.max-buffer" in said
    await peer.close()


@on_reactor
async def test_what_was_asked_for_is_read_for_the_sake_of_a_receipt_behind_it() -> None:
    peer = Peer("RabbitMQ/3.10")
    flooded = Flooded(peer, max_buffer=100_000, max_frame=400_000, receipt_timeout=10)
    await flooded.connect(0)
    flooded.consumer.grant(20, 20 * 65_536)
    await until(
        lambda: sum(int(frame.headers["prefetch-count"]) for frame in peer.of("SUBSCRIBE")) >= 20
    )
    peer.message(1)
    await until(lambda: flooded.delivered == 1)
    peer.receipts = False
    told = len(flooded.client.told)
    flooded.consumer.acknowledge_through(1)
    flooded.session.completion(flooded.client.done)
    await until(lambda: "receipt" in peer.frames[-1].headers and peer.of("ACK"))
    # The credit in octets is used up by the first few. The others wait here, more than max-buffer
    # and max-frame together.
    peer.octets(flooded.frame(bytes(200_000), "content-length:200000\n") * 19)
    peer.receipt(peer.of("ACK")[0])
    await until(lambda: len(flooded.client.told) > told)
    assert flooded.client.losses == []
    await peer.close()


@on_reactor
async def test_a_peer_that_reads_none_of_the_answers_it_provokes() -> None:
    peer = Peer("who knows")
    flooded = Flooded(peer, max_buffer=200_000, receipt_timeout=5)
    await flooded.connect()
    theirs: Any = peer.sockets[-1].transport
    theirs.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    theirs.pauseProducing()
    ours = flooded.connection.state.wire.transport
    ours.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    # Each that has expired is acknowledged, without credit.
    frame = flooded.frame(more="expires:1\n")
    most = 0

    def ended() -> bool:
        nonlocal most
        most = max(most, ours._tempDataLen + len(ours.dataBuffer))
        if theirs.connected and theirs._tempDataLen + len(theirs.dataBuffer) < 1_000_000:
            peer.octets(frame * 10_000)
        return bool(flooded.client.losses)

    await until(ended)
    assert most < 600_000, f"{most} octets waited to be written"
    assert "the broker does not read the" in str(flooded.client.losses[0])
    await peer.close()


@on_reactor
async def test_what_was_not_written_is_let_go_when_the_connection_is_lost() -> None:
    peer = Peer("who knows")
    client = Client(peer)
    connection: Any = await client.connect()
    theirs: Any = peer.sockets[-1].transport
    theirs.pauseProducing()
    ours = connection.state.wire.transport
    connection.session(Mode.AUTO).send([text("x" * 10_000_000)])
    await until(lambda: ours._tempDataLen + len(ours.dataBuffer) > 1_000_000)
    peer.drop()
    await until(lambda: client.losses)
    await until(lambda: not ours.connected)
    assert ours._tempDataLen + len(ours.dataBuffer) == 0
    await peer.close()


@on_reactor
async def test_frames_that_are_for_nobody_are_not_kept() -> None:
    peer = Peer("who knows")
    flooded = Flooded(peer, max_buffer=1000, max_frame=100_000)
    await flooded.connect(10)
    for nobodys in (
        b"\n",
        b"RECEIPT\nreceipt-id:bogus\n\n\0",
        b"MESSAGE\nsubscription:nope\n\nhello\0",
        b"MESSAGE\n\n\0",
    ):
        peer.octets(nobodys * (1_000_000 // len(nobodys)))
    peer.message(1)
    await until(lambda: flooded.delivered == 1)
    assert (flooded.client.losses, flooded.connection.state.buffered) == ([], 0)
    assert flooded.connection.state.wire._reader._parser.waiting == 0
    await peer.close()


@on_reactor
async def test_what_comes_while_the_connection_closes_is_not_kept() -> None:
    peer = Peer("who knows")
    flooded = Flooded(peer, max_buffer=100_000)
    await flooded.connect()
    peer.octets(flooded.frame() * 5000)
    await until(lambda: not flooded.reading)
    peer.receipts = False
    closing = flooded.connection.close()
    disconnect = (await peer.heard("DISCONNECT"))[0]
    assert flooded.connection.state.buffered == 0
    peer.octets(flooded.frame() * 5000)
    peer.receipt(disconnect)
    peer.octets(flooded.frame() * 5000)
    await closing
    assert (flooded.connection.state.buffered, len(flooded.consumer._buffer)) == (0, 0)
    assert flooded.client.told == [WELL]
    await peer.close()


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (
            b"MESSAGE\nsubscription:b1\ncontent-length:99999999999999\n\n",
            "content-length is 99999999999999, and stomp.max-frame is 104857600 octets with the headers",
        ),
        (b"MESSAGE\ncontent-length:-5\n\n", "content-length is -5"),
        (
            b"MESSAGE\nx:" + b"y" * 1_100_000,
            "octets of headers so far, and the headers of a frame may have 1048576",
        ),
        (b"MESSAGE\n" + b"x:y\n" * 1001 + b"\n\0", "1001 headers, and a frame may have 1000"),
        (b"X" * 1000, "is not a command"),
    ],
)
@on_reactor
async def test_a_frame_that_is_too_large_is_refused_as_soon_as_that_is_known(
    octets: bytes, said: str
) -> None:
    peer = Peer()
    client = Client(peer)
    await client.connect()
    peer.octets(octets)
    await until(lambda: client.losses)
    assert isinstance(client.losses[0], ProviderUnavailable)
    assert said in str(client.losses[0])
    await peer.close()


def test_headers_that_come_octet_by_octet_are_looked_at_once() -> None:
    reader = FrameReader(10_000_000)
    frame = b"MESSAGE\nx:" + b"y" * 200_000 + b"\n\nbody\0"
    found = [received for at in range(len(frame)) for received in reader.read(frame[at : at + 1])]
    assert [(received.headers["x"], received.body, received.head) for received in found] == [
        ("y" * 200_000, b"body", 200_012)
    ]


def test_a_frame_may_have_as_much_as_it_may() -> None:
    body = b"x" * 970
    whole = b"MESSAGE\ncontent-length:970\n\n" + body + b"\0"
    assert [
        received.body for received in FrameReader(len(whole)).read(b"\n\n" + whole + whole)
    ] == [body, body]
    with pytest.raises(MalformedFrames, match=r"stomp\.max-frame"):
        list(FrameReader(len(whole) - 1).read(whole))
