"""A gateway is killed under a sender that sends everything again until it has its RECEIPT: with
duplicate ids each message is there once, in order.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.instance.crashpoints import STORE_VARIABLE
from tests.crash.client import Client, Gone, encode
from tests.gateway_process import GatewayProcess

QUEUE = "/queue/orders"
MESSAGES = 400
#: Messages in flight; the last is the end of a transaction where these are sent in transactions.
WINDOW = 20


def parts(transacted: bool) -> list[tuple[str, bytes]]:
    """What is sent, in portions, each with the receipt that answers all of it."""
    portions = []
    for start in range(0, MESSAGES, WINDOW):
        receipt = f"r{start}"
        frames = [
            encode(
                "SEND",
                {"destination": QUEUE, "_AMQ_DUPL_ID": f"order/{number}"}
                | ({"transaction": "t"} if transacted else {}),
                b"%d" % number,
            )
            for number in range(start, start + WINDOW)
        ]
        if transacted:
            frames = [
                encode("BEGIN", {"transaction": "t"}),
                *frames,
                encode("COMMIT", {"transaction": "t", "receipt": receipt}),
            ]
        else:
            frames[-1] = frames[-1].replace(b"\n\n", f"\nreceipt:{receipt}\n\n".encode(), 1)
        portions.append((receipt, b"".join(frames)))
    return portions


def send(port: int, portions: Sequence[tuple[str, bytes]]) -> int:
    """Send as far as it goes. :returns: portions that were answered."""
    answered = 0
    try:
        with Client(port) as client:
            for receipt, octets in portions:
                client.write(octets)
                frame = client.frame()
                assert (frame.command, frame.headers.get("receipt-id")) == ("RECEIPT", receipt), (
                    frame
                )
                answered += 1
    except (Gone, ConnectionError):
        pass
    return answered


def drain(port: int) -> list[int]:
    with Client(port) as client:
        client.store(QUEUE, b"-1")
        found = client.ask("SUBSCRIBE", {"destination": QUEUE, "id": "1", "ack": "client"})
        while not found or found[-1].body != b"-1":
            found.append(client.message())
    return [int(frame.body) for frame in found[:-1]]


def sent_once(varhome: Path, points: Sequence[str], transacted: bool) -> None:
    portions = parts(transacted)
    answered = 0
    for point in points:
        with GatewayProcess(varhome, environment={**os.environ, STORE_VARIABLE: point}) as gateway:
            # What was answered is sent again, too: nobody would, but it must not hurt.
            answered = max(answered, send(gateway.port, portions))
            assert gateway.wait() == -signal.SIGKILL, gateway.said
    with GatewayProcess(varhome) as gateway:
        assert send(gateway.port, portions) == len(portions)
        assert drain(gateway.port) == list(range(MESSAGES))
    assert answered


@pytest.mark.parametrize("transacted", [False, True])
def test_killed_at_each_point_of_a_commit(transacted: bool, tmp_path: Path) -> None:
    # Of what is known already nothing is written, so that each run dies a few portions further on.
    names = (
        "broker.before-submit",
        "store.mid-batch",
        "store.before-commit",
        "store.after-commit",
        "broker.before-receipts",
    )
    sent_once(tmp_path, [f"{name}:3" for name in names], transacted)


def test_killed_at_any_moment(tmp_path: Path) -> None:
    portions = parts(False)
    for answers in (3, 9, 14):
        with GatewayProcess(tmp_path) as gateway:
            timely = threading.Event()

            def kill(gateway: GatewayProcess = gateway, timely: threading.Event = timely) -> None:
                timely.wait()
                gateway.kill()

            killing = threading.Thread(target=kill)
            killing.start()
            send(gateway.port, portions[:answers])
            timely.set()
            send(gateway.port, portions)
            killing.join()
    with GatewayProcess(tmp_path) as gateway:
        assert send(gateway.port, portions) == len(portions)
        assert drain(gateway.port) == list(range(MESSAGES))
