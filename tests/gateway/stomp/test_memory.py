"""What clients can make a real gateway process hold in memory, measured from outside as its
resident size.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.gateway_process import COMMAND, HOST, PATIENCE, GatewayProcess, make_certificates

pytestmark = pytest.mark.process

_MIB: Final = 1024 * 1024
_CONNECT: Final = b"CONNECT\naccept-version:1.2\nlogin:guest\npasscode:guest\n\n\0"


def resident(gateway: GatewayProcess) -> int:
    """Bytes of memory that the process has."""
    for line in Path(f"/proc/{gateway.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def until(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Wait for a condition that nothing else tells of."""
    end = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < end, f"not within {patience:g} s: {what}"
        time.sleep(0.02)


def connected(gateway: GatewayProcess) -> socket.socket:
    """A client that is CONNECTED."""
    client = socket.create_connection((HOST, gateway.port), PATIENCE)
    client.sendall(_CONNECT)
    answer = frame(client)
    assert answer.startswith(b"CONNECTED"), answer
    return client


def frame(client: socket.socket) -> bytes:
    """The octets up to the next NUL, without it; read one by one, so that none of what follows is
    taken.
    """
    read = bytearray()
    while octet := client.recv(1):
        if octet == b"\0":
            return bytes(read).lstrip(b"\n")
        read += octet
    raise AssertionError(f"the gateway has closed the connection after {bytes(read)!r}")


def sent(client: socket.socket, octets: bytes, patience: float = 1.0) -> int:
    """Send as much as the gateway takes.

    :returns: how much that was before it took nothing for a while, or closed the connection.
    """
    client.setblocking(False)
    done = 0
    with suppress(ConnectionError):
        while done < len(octets) and select.select([], [client], [], patience)[1]:
            done += client.send(memoryview(octets)[done : done + _MIB])
    client.settimeout(PATIENCE)
    return done


def sent_side_by_side(clients: Sequence[socket.socket], octets: bytes) -> list[int]:
    """As :func:`sent`, for several at a time.

    :returns: how much the gateway took of each before it took nothing of any for a while.
    """
    done = dict.fromkeys(clients, 0)
    for client in clients:
        client.setblocking(False)
    while sending := [client for client in clients if done[client] < len(octets)]:
        _, ready, _ = select.select([], sending, [], 3.0)
        if not ready:
            break
        for client in ready:
            done[client] += client.send(memoryview(octets)[done[client] : done[client] + _MIB])
    for client in clients:
        client.settimeout(PATIENCE)
    return list(done.values())


def answers(client: socket.socket) -> bool:
    """Whether another client is served: it sends a message and gets its RECEIPT."""
    client.sendall(b"SEND\ndestination:/queue/other\nreceipt:r\n\nx\0")
    return b"receipt-id:r" in frame(client)


def is_dropped(client: socket.socket) -> bool:
    """Whether the gateway has closed the connection over what the client has not read."""
    poll = select.poll()
    poll.register(client, 0)
    return bool(poll.poll(0))


def unfinished(octets: int) -> Iterator[bytes]:
    """A SEND whose body is short of one octet, piece by piece."""
    yield b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % octets
    yield bytes(octets - 1)


def test_what_a_connection_held_goes_with_it(tmp_path: Path) -> None:
    """An unfinished body on each of many connections, one after the other: with none of them open,
    none of the bodies is in memory.
    """
    with GatewayProcess(tmp_path) as gateway:
        before = resident(gateway)
        for _ in range(8):
            with connected(gateway) as client:
                for part in unfinished(48 * _MIB):
                    client.sendall(part)
        until(
            lambda: resident(gateway) < before + 48 * _MIB,
            "the memory of closed connections is given back",
        )


def test_output_that_was_never_read_goes_with_its_connection(tmp_path: Path) -> None:
    body = bytes(32 * _MIB)
    with GatewayProcess(tmp_path, store="memory") as gateway, connected(gateway) as sender:
        before = resident(gateway)
        for _ in range(6):
            reader = connected(gateway)
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.sendall(b"SUBSCRIBE\nid:1\ndestination:/topic/a\nack:auto\nreceipt:r\n\n\0")
            assert b"receipt-id:r" in frame(reader)
            sender.sendall(
                b"SEND\ndestination:/topic/a\nreceipt:s\ncontent-length:%d\n\n" % len(body)
                + body
                + b"\0"
            )
            assert b"receipt-id:s" in frame(sender)
            assert reader.recv(64), "the message is on its way"
            reader.close()
        until(
            lambda: resident(gateway) < before + 64 * _MIB,
            "the memory of closed connections is given back",
        )


def test_a_message_that_was_refused_goes_with_its_connection(tmp_path: Path) -> None:
    body = bytes(32 * _MIB)
    with GatewayProcess(tmp_path) as gateway:
        before = resident(gateway)
        for _ in range(8):
            with connected(gateway) as sender:
                sender.sendall(
                    b"SEND\ndestination:/topic/a.*\ncontent-length:%d\n\n" % len(body)
                    + body
                    + b"\0"
                )
                assert frame(sender).startswith(b"ERROR")
        until(
            lambda: resident(gateway) < before + 64 * _MIB,
            "the memory of closed connections is given back",
        )


def test_topic_subscribers_that_never_read_take_little_and_leave_nothing(tmp_path: Path) -> None:
    """A flood to many of them, so that each has thousands of messages in the store: while they are
    there, and when they have gone.
    """
    message = (
        b"SEND\ndestination:/topic/a\npersistent:false\ncontent-length:1000\n\n"
        + bytes(1000)
        + b"\0"
    )
    with GatewayProcess(tmp_path) as gateway, connected(gateway) as sender:
        before = resident(gateway)
        readers = [connected(gateway) for _ in range(100)]
        for reader in readers:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.sendall(b"SUBSCRIBE\nid:1\ndestination:/topic/a\nack:auto\nreceipt:r\n\n\0")
            assert b"receipt-id:r" in frame(reader)
        sender.settimeout(4 * PATIENCE)
        for _ in range(20):
            sender.sendall(message * 1_000 + b"SEND\ndestination:/queue/b\nreceipt:s\n\n\0")
            assert b"receipt-id:s" in frame(sender)
        assert resident(gateway) < before + 92 * _MIB
        for reader in readers:
            reader.close()
        until(
            lambda: resident(gateway) < before + 36 * _MIB,
            "the memory of subscribers that have gone is given back",
        )
        assert answers(sender)


def test_over_tls_too(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path / "keys")
    context = ssl.create_default_context(cafile=str(certificates.ca))
    with GatewayProcess(tmp_path / "var", tls=certificates) as gateway:
        before = resident(gateway)
        for _ in range(6):
            with context.wrap_socket(
                socket.create_connection((HOST, gateway.tls_port), PATIENCE), server_hostname=HOST
            ) as client:
                client.sendall(_CONNECT)
                assert frame(client).startswith(b"CONNECTED")
                for part in unfinished(40 * _MIB):
                    client.sendall(part)
        until(
            lambda: resident(gateway) < before + 80 * _MIB,
            "the memory of closed connections is given back",
        )


# While connections are open: the budget.


def test_unfinished_bodies_stay_within_the_budget(tmp_path: Path) -> None:
    """More bodies are begun than there is memory for.

    Those that have no room are not read, others are served, and then the biggest is ended.
    """
    body = b"".join(unfinished(20 * _MIB))
    with GatewayProcess(
        # Nobody is ended before all have sent what they can.
        tmp_path,
        settings={"imq.memory.budget": "80m", "imq.memory.patience": "10"},
    ) as gateway:
        other = connected(gateway)
        before = resident(gateway)
        clients = [connected(gateway) for _ in range(8)]
        for client in clients[:2]:
            client.sendall(body)
        taken = sent_side_by_side(clients[2:], body)
        assert sum(count == len(body) for count in taken) <= 1
        assert answers(other)
        assert resident(gateway) < before + 120 * _MIB
        ready, _, _ = select.select(clients, [], [], PATIENCE)
        error = frame(ready[0])
        assert error.startswith(b"ERROR")
        assert b"holds more of the gateway's memory than any other" in error
        assert "memory is short" in gateway.log
        until(
            lambda: "ends with ERROR: this connection holds more" in gateway.log,
            "the log says who was ended",
        )
        assert answers(other)
        for client in clients:
            client.close()
        until(lambda: resident(gateway) < before + 40 * _MIB, "all of it is given back")


def test_open_transactions_stay_within_the_budget(tmp_path: Path) -> None:
    message = (
        b"SEND\ndestination:/queue/a\ntransaction:t\ncontent-length:1000000\n\n"
        + bytes(1_000_000)
        + b"\0"
    )
    with GatewayProcess(
        tmp_path, settings={"imq.memory.budget": "80m", "imq.memory.patience": "3"}
    ) as gateway:
        other = connected(gateway)
        before = resident(gateway)
        clients = [connected(gateway) for _ in range(6)]
        for client in clients:
            client.sendall(b"BEGIN\ntransaction:t\n\n\0")
            sent(client, message * 25)
        assert answers(other)
        assert resident(gateway) < before + 120 * _MIB
        ready, _, _ = select.select(clients, [], [], PATIENCE)
        assert b"holds more of the gateway's memory than any other" in frame(ready[0])
        assert answers(other)


def test_a_client_that_does_not_read_its_receipts_is_not_read_and_then_dropped(
    tmp_path: Path,
) -> None:
    ask = b"SEND\ndestination:/queue/a\npersistent:false\nreceipt:" + b"r" * 9000 + b"\n\n\0"
    with GatewayProcess(tmp_path, settings={"imq.bridge.stomp.output.timeout": "3"}) as gateway:
        before = resident(gateway)
        client = connected(gateway)
        flood = ask * 8000
        assert sent(client, flood) < len(flood), "the gateway goes on reading"
        assert resident(gateway) < before + 40 * _MIB
        until(lambda: is_dropped(client), "who reads nothing is dropped")
        until(lambda: "the client has read nothing for" in gateway.log, "the log says why it was")


def test_who_reads_slowly_stays_and_who_reads_nothing_is_dropped_however_much_waits(
    tmp_path: Path,
) -> None:
    body = bytes(24 * _MIB)
    # A busy machine may keep a slow reader from reading for some seconds.
    with GatewayProcess(tmp_path, settings={"imq.bridge.stomp.output.timeout": "6"}) as gateway:
        slow, stalled, sender = (connected(gateway) for _ in range(3))
        for reader in (slow, stalled):
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            reader.sendall(b"SUBSCRIBE\nid:1\ndestination:/topic/a\nack:auto\nreceipt:s\n\n\0")
            assert b"receipt-id:s" in frame(reader)
        sender.sendall(
            b"SEND\ndestination:/topic/a\ncontent-length:%d\n\n" % len(body) + body + b"\0"
        )
        read = 0
        end = time.monotonic() + PATIENCE
        while not is_dropped(stalled):
            assert time.monotonic() < end, "who reads nothing is dropped"
            read += len(slow.recv(8 * 1024))
            select.select([], [], [], 0.05)
        assert read < len(body) // 2, "or it was not slow"
        while read < len(body):
            octets = slow.recv(_MIB)
            assert octets, "who reads slowly is not dropped"
            read += len(octets)
        assert not is_dropped(slow)


def test_a_frame_that_stands_still_is_ended(tmp_path: Path) -> None:
    with (
        GatewayProcess(tmp_path, settings={"imq.bridge.stomp.input.timeout": "3"}) as gateway,
        connected(gateway) as client,
    ):
        for part in unfinished(10 * _MIB):
            client.sendall(part)
        error = frame(client)
        assert error.startswith(b"ERROR")
        assert b"does not go on" in error
        until(lambda: "does not go on" in gateway.log, "the log says so")


def test_the_memory_store_holds_senders_back_when_its_memory_is_full(tmp_path: Path) -> None:
    message = b"SEND\ndestination:/queue/a\ncontent-length:100000\n\n" + bytes(100_000) + b"\0"
    with GatewayProcess(tmp_path, store="memory", settings={"imq.memory.budget": "40m"}) as gateway:
        before = resident(gateway)
        sender, consumer = connected(gateway), connected(gateway)
        flood = message * 800
        taken = sent(sender, flood)
        assert taken < len(flood), "the gateway goes on reading"
        assert resident(gateway) < before + 80 * _MIB
        consumer.sendall(b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:auto\n\n\0")
        received = 0
        sender.setblocking(False)
        while received < len(flood):
            readable, writable, _ = select.select(
                [consumer], [sender] if taken < len(flood) else [], [], PATIENCE
            )
            assert readable or writable, "it has room again, and goes on"
            if writable:
                taken += sender.send(memoryview(flood)[taken : taken + _MIB])
            if readable:
                received += len(consumer.recv(_MIB))


def test_many_queues_that_nobody_reads_stay_within_the_budget(tmp_path: Path) -> None:
    """Each queue has a little of its messages in memory, ready for a consumer; of many queues that
    is much.
    """
    with (
        GatewayProcess(tmp_path, settings={"imq.memory.budget": "24m"}) as gateway,
        connected(gateway) as client,
    ):
        before = resident(gateway)
        body = bytes(60_000)
        for number in range(400):
            head = b"SEND\ndestination:/queue/q%d\ncontent-length:%d\n" % (number, len(body))
            client.sendall(
                (head + b"\n" + body + b"\0") * 3 + head + b"receipt:r\n\n" + body + b"\0"
            )
            assert b"receipt-id:r" in frame(client)
        assert resident(gateway) < before + 70 * _MIB
        for number in (0, 399):
            client.sendall(
                b"SUBSCRIBE\nid:%d\ndestination:/queue/q%d\nack:auto\n\n\0" % (number, number)
            )
            received = 0
            while received < 4 * len(body):
                received += len(client.recv(_MIB))


def arrived(
    clients: list[socket.socket], octets: int = 1 << 62, quiet: float = 1.5
) -> dict[socket.socket, bytes]:
    """What comes until that is so much, or nothing has come for a while."""
    read = {client: bytearray() for client in clients}
    while sum(map(len, read.values())) < octets and (
        ready := select.select(clients, [], [], quiet)[0]
    ):
        for client in ready:
            read[client] += client.recv(_MIB)
    return {client: bytes(part) for client, part in read.items()}


@pytest.mark.parametrize("persistent", [b"true", b"false"])
def test_messages_that_nobody_acknowledges_stay_within_the_budget(
    tmp_path: Path, persistent: bytes
) -> None:
    """Consumers acknowledge nothing: they are given what there is memory for, and the rest as they
    acknowledge. A newcomer gets something, too.
    """
    count, body = 150, bytes(_MIB)
    head = b"SEND\ndestination:/queue/a\npersistent:%s\nreceipt:r\ncontent-length:%d\n\n" % (
        persistent,
        len(body),
    )
    with (
        GatewayProcess(tmp_path, settings={"imq.memory.budget": "80m"}) as gateway,
        connected(gateway) as sender,
    ):
        for _ in range(count):
            sender.sendall(head + body + b"\0")
            assert b"receipt-id:r" in frame(sender)
        before = resident(gateway)
        clients = [connected(gateway) for _ in range(5)]
        for client in clients:
            client.sendall(b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0")
        for client in clients:
            assert client.recv(1, socket.MSG_PEEK), "each is given something"
        read = arrived(clients)
        assert all(part.count(b"MESSAGE\n") for part in read.values())
        delivered = sum(part.count(b"MESSAGE\n") for part in read.values())
        assert delivered < 80, "the rest waits in the store"
        assert resident(gateway) < before + 80 * _MIB
        until(lambda: "it gets no more until" in gateway.log, "the log says why")
        late = connected(gateway)
        late.sendall(b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0")
        assert frame(late).startswith(b"MESSAGE"), "who has nothing gets something"
        late.close()
        left = count - delivered
        while left:
            for client, part in read.items():
                number = part.rfind(b"\nack:")
                if number >= 0:
                    client.sendall(
                        b"ACK\nid:" + part[number + 5 : part.index(b"\n", number + 1)] + b"\n\n\0"
                    )
            read = arrived(clients, _MIB, PATIENCE)
            more = sum(part.count(b"MESSAGE\n") for part in read.values())
            assert any(read.values()), f"{left} of {count} messages never come"
            left -= more
        assert resident(gateway) < before + 100 * _MIB


@pytest.mark.parametrize("persistent", [b"true", b"false"])
def test_what_consumers_give_back_stays_within_the_budget(
    tmp_path: Path, persistent: bytes
) -> None:
    """Consumers go without acknowledging, again and again: what they had goes back to the store
    where memory has no room, and keeps its order.
    """
    count, body = 200, bytes(_MIB)
    # What is freed goes back to the system at once, so that the resident size is what is held.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    process = GatewayProcess(
        tmp_path, settings={"imq.memory.budget": "800m"}, environment=environment, command=COMMAND
    )
    with process as gateway, connected(gateway) as sender:
        for number in range(count):
            head = b"SEND\ndestination:/queue/a\npersistent:%s\nreceipt:r\nnumber:%d\ncontent-length:%d\n\n"
            sender.sendall(head % (persistent, number, len(body)) + body + b"\0")
            assert b"receipt-id:r" in frame(sender)
        before = resident(gateway)
        for _ in range(2):
            with connected(gateway) as client:
                client.sendall(b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0")
                assert (
                    sum(
                        part.count(b"MESSAGE\n")
                        for part in arrived([client], count * (_MIB + 100), PATIENCE).values()
                    )
                    == count
                )
            until(
                lambda: resident(gateway) < before + 80 * _MIB,
                "what was given back is in the store",
            )
        assert answers(sender)
        client = connected(gateway)
        client.sendall(b"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:auto\n\n\0")
        part = arrived([client], count * (_MIB + 100), PATIENCE)[client]
        assert [int(each.split(b"\n")[0]) for each in part.split(b"\nnumber:")[1:]] == [
            *range(count)
        ]
