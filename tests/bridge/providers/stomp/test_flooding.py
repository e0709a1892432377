"""Peers that send more than anybody takes, or frames that are larger than they may be: what they
can make us hold is bounded.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest

from bridge.providers.stomp.frames import FrameReader, MalformedFrames
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.provider import Mode, Subscription
from tests.bridge.providers.stomp.peer import QUEUE, WELL, Client, Peer, text, until
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

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
            Subscription(QUEUE), self.client.deliver, self.client.failures.append
        )
        self.consumer.grant(credit)
        self.consumer.start()
        self.session.completion(self.client.done)
        await until(lambda: self.client.told)

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
