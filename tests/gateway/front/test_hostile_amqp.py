"""An AMQP broker that hangs, lies or floods, and what clients see.

The gateway is a process of its own in front of it; the peer is on a real socket. After each of them
the broker is well again, and so must be what a client then asks.
"""

from __future__ import annotations

import struct
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple

import proton
import psutil
import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet.threads import deferToThread

from tests.bridge.providers.amqp.peer import Peer, clock, until
from tests.conformance.client import Client
from tests.gateway.front import behind
from tests.gateway_process import HOST, GatewayProcess, free_port
from tests.on_reactor import on_reactor

pytestmark = pytest.mark.process

#: Seconds of each limit of the connection factory, and within which a client is told at the latest.
_LIMIT: Final = 0.5
_TOLD: Final = 10.0
#: Bytes that the gateway may grow by, whatever comes.
_GROWTH: Final = 64 << 20
QUEUE: Final = "/queue/q"
#: Frames that the gateway takes at a time.
_WINDOW: Final = 128


class Front(NamedTuple):
    """The gateway, and the port where its broker is expected."""

    gateway: GatewayProcess
    broker: int
    tls: int


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    limits = {f"amqp.{name}-timeout": str(_LIMIT) for name in ("connect", "answer", "close")}
    options = {"amqp.peer": "artemis", "amqp.idle-timeout": "1", "amqp.max-message": "1000000"}
    broker, tls = free_port(), free_port()
    there = behind.Factory("there", f"amqp://{HOST}:{broker}", properties=limits | options)
    safe = behind.Factory("safe", f"amqps://{HOST}:{tls}", properties=limits | options)
    with behind.in_front_of(
        tmp_path_factory.mktemp("hostile"), there, safe, safe__destinations="/queue/tls.>"
    ) as gateway:
        yield Front(gateway, broker, tls)


@pytest_twisted.async_yield_fixture
async def peer(front: Front) -> AsyncIterator[Peer]:
    made = Peer(port=front.broker)
    yield made
    await made.close()


class Seen(NamedTuple):
    """What a client got: the words of its ERROR, and after how many seconds."""

    error: str
    seconds: float


def _told(client: Client, began: float) -> Seen:
    frame = client.frame()
    while frame.command != "ERROR":
        frame = client.frame()
    return Seen(frame["message"], time.monotonic() - began)


def _connecting(port: int) -> Seen:
    with closing(Client(port)) as client:
        began = time.monotonic()
        client.send("CONNECT", {"accept-version": "1.2", "login": "guest", "passcode": "guest"})
        return _told(client, began)


def _sending(port: int, queue: str = QUEUE) -> Seen:
    with closing(Client(port)) as client:
        client.connect()
        began = time.monotonic()
        client.send("SEND", {"destination": queue, "receipt": "1"}, "a")
        return _told(client, began)


def _receiving(port: int, acknowledges: bool = False) -> Seen:
    with closing(Client(port)) as client:
        client.connect()
        began = time.monotonic()
        client.send("SUBSCRIBE", {"destination": QUEUE, "id": "s", "ack": "client"})
        if acknowledges:
            client.send("ACK", {"id": client.message()["ack"], "receipt": "1"})
        return _told(client, began)


def _acknowledging(port: int) -> Seen:
    return _receiving(port, acknowledges=True)


def _well(port: int) -> None:
    with closing(Client(port)) as client:
        client.connect()
        client.put(QUEUE, "well")
        client.disconnect()


# --- what the peer does


def _silent(peer: Peer) -> None:
    peer.deaf = True


def _opens_nothing(peer: Peer) -> None:
    peer.product = None


def _ignores(kind: Any) -> Callable[[Peer], None]:
    def script(peer: Peer) -> None:
        usual = peer.happened

        def happened(served: Any, event: Any) -> None:
            if event.type is not kind:
                usual(served, event)

        peer.happened = happened  # type: ignore[method-assign]

    return script


def _accepts_nothing(peer: Peer) -> None:
    peer.on_sent = lambda delivery, body: True


def _refuses_links(peer: Peer) -> None:
    peer.on_attach = lambda attached: peer.refuse(attached, "amqp:not-found", "no such node")


def _on_flow(act: Callable[[Peer], object]) -> Callable[[Peer], None]:
    """Once a client may be sent messages, do something instead of waiting."""

    def script(peer: Peer) -> None:
        usual, done = peer.happened, list[bool]()

        def happened(served: Any, event: Any) -> None:
            usual(served, event)
            if event.type is proton.Event.LINK_FLOW and event.link.is_sender and not done:
                done.append(True)
                clock.callLater(0, act, peer)

        peer.happened = happened  # type: ignore[method-assign]

    return script


def _deliver_one(peer: Peer) -> None:
    peer.deliver("a", "d")


def _hold_outcome(peer: Peer) -> None:
    peer.on_outcome = lambda delivery: True
    _on_flow(_deliver_one)(peer)


def _frame(body: bytes, size: int | None = None) -> bytes:
    return struct.pack(">IBBH", size or len(body) + 8, 2, 0, 0) + body


def _transfer(number: int, payload: bytes, more: bool) -> bytes:
    """A transfer on the first link."""
    count = struct.pack(">I", number)
    # Handle, delivery-id, delivery-tag, message-format, settled, more.
    fields = b"\x43\x70" + count + b"\xa0\x04" + count + b"\x43\x42"
    fields += b"\x41" if more else b"\x42"
    return _frame(b"\x00\x53\x14\xc0" + bytes((len(fields) + 1, 6)) + fields + payload)


def _flood(peer: Peer) -> None:
    """Transfers without end, for all that was granted."""
    value = b"\x00\x53\x77\xa1\xff" + b"x" * 255
    peer.octets(b"".join(_transfer(number, value, False) for number in range(20_000)))


def _force(peer: Peer) -> None:
    def close() -> None:
        served = peer.sockets[-1].connection
        served.condition = proton.Condition("amqp:connection:forced", "going down")
        served.close()

    peer.drive(close)


def _end_session(peer: Peer) -> None:
    def end() -> None:
        session = peer.receiving()[-1].link.session
        session.condition = proton.Condition("amqp:session:errant-link", "enough")
        session.close()

    peer.drive(end)


def _delete(peer: Peer) -> None:
    def detach() -> None:
        link = peer.receiving()[-1].link
        link.condition = proton.Condition("amqp:resource-deleted", "the queue is deleted")
        link.close()

    peer.drive(detach)


def _steal(peer: Peer) -> None:
    # The engine has no detach with an error.
    error = b"\xa3\x10amqp:link:stolen\xa1\x0eanother has it"
    fields = b"\x43\x42\x00\x53\x1d\xc0" + bytes((len(error) + 1, 2)) + error
    peer.octets(_frame(b"\x00\x53\x16\xc0" + bytes((len(fields) + 1, 3)) + fields))


def _received(data: bytes) -> int | None:
    """The ``next-incoming-id`` of the last flow frame, if there is one."""
    found = None
    while len(data) > 8:
        size = int.from_bytes(data[:4], "big")
        body, data = data[8:size], data[size:]
        if body[:3] == b"\x00\x53\x13":
            fields = body[6:] if body[3] == 0xC0 else body[12:]
            width = {0x43: 0, 0x52: 1, 0x70: 4}[fields[0]]
            found = int.from_bytes(fields[1 : 1 + width], "big")
    return found


def _enormous(peer: Peer) -> None:
    """A body of 100 MB, each time as much as the window lets through."""
    served, part, sent = peer.sockets[-1], bytes(60_000), 0
    usual, frames = served.dataReceived, (100 << 20) // len(part)

    def go_on(until: int) -> None:
        nonlocal sent
        head = b"" if sent else b"\x00\x53\x75\xb0" + struct.pack(">I", frames * len(part))
        batch = range(sent, min(until, frames))
        sent = max(sent, batch.stop)
        # All are of one delivery, number 0.
        peer.octets(
            b"".join(
                _transfer(0, (b"" if number else head) + part, number < frames - 1)
                for number in batch
            )
        )

    def data_received(data: bytes) -> None:
        usual(data)
        if (received := _received(data)) is not None:
            go_on(received + _WINDOW)

    served.dataReceived = data_received  # type: ignore[method-assign]
    go_on(_WINDOW)


def _half_and_gone(peer: Peer) -> None:
    link = peer.receiving()[-1].link

    def half() -> None:
        link.delivery("half")
        link.stream(b"\x00\x53\x75\xb0\x00\x00\x10\x00half")

    peer.drive(half)
    clock.callLater(0.05, peer.drop)


Act = Callable[[int], Seen]
_SILENT: Final = "it did not answer within 0.5 s"
_HANGS: Final = "an answer did not come within 0.5 s"
_NOT_AMQP: Final = "it sent what is not AMQP 1.0"
#: What the broker does, what a client asks, and the reason why the connection is lost. The client is
#: told that the broker cannot be reached, and the log has the reason.
LOSSES: Final[dict[str, tuple[Callable[[Peer], None], Act, str]]] = {
    "silent from the start": (_silent, _connecting, _SILENT),
    "no open": (_opens_nothing, _connecting, _SILENT),
    "no begin": (_ignores(proton.Event.SESSION_REMOTE_OPEN), _sending, _HANGS),
    "no attach of a sender": (_ignores(proton.Event.LINK_REMOTE_OPEN), _sending, _HANGS),
    "no attach of a receiver": (_ignores(proton.Event.LINK_REMOTE_OPEN), _receiving, _HANGS),
    "no outcome of a transfer": (_accepts_nothing, _sending, _HANGS),
    "no answer to a disposition": (_hold_outcome, _acknowledging, _HANGS),
    "half a message": (_on_flow(_half_and_gone), _receiving, "the connection was lost"),
    "more transfers than credit": (_on_flow(_flood), _receiving, _NOT_AMQP),
    "a frame larger than agreed": (
        _on_flow(lambda peer: peer.octets(_frame(b"\0" * 64, 1 << 28))),
        _receiving,
        _NOT_AMQP,
    ),
    "garbage": (_on_flow(lambda peer: peer.octets(b"\xff" * 64)), _receiving, _NOT_AMQP),
    "closed by force": (_on_flow(_force), _receiving, "it closed the connection: going down"),
    "silent from then on": (_on_flow(_silent), _receiving, "nothing was heard for 1 s"),
}
#: What the broker does, what a client asks, and words of its ERROR. The connection goes on.
REFUSALS: Final[dict[str, tuple[Callable[[Peer], None], Act, str]]] = {
    "a body of 100 MB": (_on_flow(_enormous), _receiving, "amqp.max-message is 1000000"),
    "links are refused": (_refuses_links, _sending, "no such node (amqp:not-found)"),
    "the queue is deleted": (_on_flow(_delete), _receiving, "the queue is deleted"),
    "the link is stolen": (_on_flow(_steal), _receiving, "another has it (amqp:link:stolen)"),
    "the session is ended": (_on_flow(_end_session), _receiving, "enough"),
}


@pytest.mark.parametrize("case", [*LOSSES, *REFUSALS])
@on_reactor
async def test_clients_are_told_soon_and_go_on_when_the_broker_is_well(
    case: str, front: Front, peer: Peer
) -> None:
    script, act, words = (LOSSES | REFUSALS)[case]
    process = psutil.Process(front.gateway.pid)
    before = process.memory_info().rss
    said = front.gateway.log.count(words)
    script(peer)
    seen = await deferToThread(act, front.gateway.port)
    if case in LOSSES:
        assert "the broker 'there' cannot be reached, incident" in seen.error
        assert front.gateway.log.count(words) > said
    else:
        assert words in seen.error
    assert seen.seconds < _TOLD
    assert process.memory_info().rss - before < _GROWTH
    await peer.close()
    again = Peer(port=front.broker)
    await deferToThread(_well, front.gateway.port)
    assert [body for body, _ in again.sent] == ["well"]
    await again.close()


@on_reactor
async def test_a_broker_that_hangs_in_the_handshake_of_tls(front: Front, peer: Peer) -> None:
    silent = Peer(port=front.tls)
    silent.deaf = True
    try:
        seen = await deferToThread(_sending, front.gateway.port, "/queue/tls.a")
        assert "the broker 'safe' cannot be reached, incident" in seen.error
        assert _SILENT in front.gateway.log
        assert seen.seconds < _TOLD
        # The other broker is not concerned.
        await deferToThread(_well, front.gateway.port)
    finally:
        await silent.close()


@on_reactor
async def test_a_broker_that_grants_nothing_holds_senders_back(front: Front, peer: Peer) -> None:
    """What was sent meanwhile goes when it grants again."""
    peer.credit = 0
    process = psutil.Process(front.gateway.pid)
    before = process.memory_info().rss
    client = Client(front.gateway.port)
    body = "x" * 100_000
    sent = 0

    def send() -> None:
        # As much as the gateway takes: then it does not read on.
        nonlocal sent
        client.connect()
        client._socket.settimeout(1)
        try:
            while sent < 1_000:
                client.send("SEND", {"destination": QUEUE, "receipt": str(sent)}, body)
                sent += 1
        except TimeoutError:
            pass

    await deferToThread(send)
    assert sent < 1_000, "100 MB were taken"
    assert process.memory_info().rss - before < _GROWTH
    assert peer.sent == []
    link = peer.links[-1].link
    peer.drive(lambda: link.flow(1_000))
    await until(lambda: len(peer.sent) >= sent)
    receipts = await deferToThread(lambda: [client.expect("RECEIPT") for _ in range(sent)])
    assert [each["receipt-id"] for each in receipts] == [str(number) for number in range(sent)]
    client.close()
