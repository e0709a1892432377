"""A wall clock that jumps below a real gateway: timers keep their pace, and what is told in times
of day follows the clock.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.crash.client import PATIENCE, Client, Frame, Gone
from tests.crash.wall_clock import WallClock, build_shifted_clock
from tests.faults.links import HERE, BridgedGateway, Link, stomp
from tests.gateway_process import HOST, GatewayProcess, free_port

HOUR: Final = 3600
JUMPS: Final = pytest.mark.parametrize("jump", [-HOUR, HOUR], ids=["back", "forward"])
TWISTD: Final = (
    str(Path(sys.executable).with_name("twistd")),
    "--nodaemon",
    "--pidfile=",
    "stomp-gateway",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shifted_clock(tmp_path_factory.mktemp("library"))


@pytest.fixture
def clock(library: Path, tmp_path: Path) -> WallClock:
    return WallClock(library, tmp_path)


@pytest.fixture
def gateway(tmp_path: Path, clock: WallClock) -> Iterator[GatewayProcess]:
    settings = {"imq.message.expiration.interval": "1"}
    with GatewayProcess(
        tmp_path / "var", settings=settings, environment=clock.environment
    ) as gateway:
        yield gateway


def beats_for(client: Client, seconds: float, every: float) -> int:
    """Send a heart-beat each so many seconds.

    :returns: how many octets came meanwhile.
    :raises Gone: the gateway has closed.
    """
    end = time.monotonic() + seconds
    count = 0
    while (left := end - time.monotonic()) > 0:
        # Silent at first, so that a clock that has just jumped is looked at before anything comes.
        client.socket.settimeout(min(every, left))
        try:
            data = client.socket.recv(4096)
        except TimeoutError:
            client.write(b"\n")
            continue
        client.write(b"\n")
        if not data:
            raise Gone("closed")
        assert not data.strip(), data
        count += len(data)
    return count


@JUMPS
def test_who_keeps_its_heart_beats_is_not_dropped_and_gets_the_gateway_s(
    gateway: GatewayProcess, clock: WallClock, jump: int
) -> None:
    with Client(gateway.port, headers={"heart-beat": "2000,500"}) as client:
        beats_for(client, 1.0, 0.25)
        clock.jump(jump)
        assert beats_for(client, 5.0, 0.25) >= 3


@JUMPS
def test_who_falls_silent_is_dropped(gateway: GatewayProcess, clock: WallClock, jump: int) -> None:
    with Client(gateway.port, headers={"heart-beat": "2000,0"}) as client:
        client.write(b"\n")
        clock.jump(jump)
        began = time.monotonic()
        client.write(b"\n")
        with pytest.raises(Gone):
            client.frame()
        assert time.monotonic() - began > 1.9


@JUMPS
def test_the_time_for_connect_is_the_same(tmp_path: Path, clock: WallClock, jump: int) -> None:
    gateway = GatewayProcess(
        tmp_path / "var",
        settings={"imq.bridge.stomp.connect.timeout": "4"},
        environment=clock.environment,
    )
    with gateway:
        began = time.monotonic()
        with Client(gateway.port, connect=False) as client:
            # Connections are accepted in order, so once another was served, this one's time runs.
            Client(gateway.port).close()
            clock.jump(jump)
            assert "not CONNECTED within 4 seconds" in client.error().headers["message"]
            assert time.monotonic() - began > 3.5


def next_message(client: Client, early: Sequence[Frame]) -> Frame:
    """The next message, which may have come before the last RECEIPT."""
    return early[0] if early else client.message()


def rejected(client: Client, delay_ms: int) -> float:
    """Have a message refused by its consumer.

    :returns: when, by the monotonic clock.
    """
    client.store("/queue/clock", b"once more")
    policy = {
        "activemq.initialRedeliveryDelay": str(delay_ms),
        "activemq.maximumRedeliveryDelay": str(delay_ms),
    }
    client.ask(
        "SUBSCRIBE",
        {"destination": "/queue/clock", "id": "s", "ack": "client-individual", **policy},
    )
    message = client.message()
    refused = time.monotonic()
    assert client.ask("NACK", {"id": message.headers["ack"]}) == []
    return refused


@JUMPS
def test_a_refused_message_comes_again_after_its_pause(
    gateway: GatewayProcess, clock: WallClock, jump: int
) -> None:
    with Client(gateway.port) as client:
        refused = rejected(client, 3000)
        clock.jump(jump)
        # Something else that is due at once has the schedule look at the time.
        early = client.store("/queue/other", b"")
        assert next_message(client, early).body == b"once more"
        assert time.monotonic() - refused > 2.9


def test_a_pause_that_is_stored_goes_on_when_the_clock_was_set_back_while_the_gateway_was_down(
    tmp_path: Path, clock: WallClock
) -> None:
    settings = {"imq.destination.queue.clock.maximumRedeliveryDelay": "3000"}
    with GatewayProcess(
        tmp_path / "var", settings=settings, environment=clock.environment
    ) as gateway:
        with Client(gateway.port) as client:
            refused = rejected(client, 3000)
        gateway.kill()
        clock.jump(-HOUR)
        gateway.start()
        with Client(gateway.port) as client:
            client.ask("SUBSCRIBE", {"destination": "/queue/clock", "id": "s", "ack": "client"})
            assert client.message().body == b"once more"
            assert time.monotonic() - refused > 2.9


def test_a_pause_that_is_stored_ends_when_the_clock_is_put_right_after_the_start(
    tmp_path: Path, clock: WallClock
) -> None:
    """A machine without a clock of its own begins in the past, and hears the time later."""
    settings = {"imq.destination.queue.clock.maximumRedeliveryDelay": "-1"}
    with GatewayProcess(
        tmp_path / "var", settings=settings, environment=clock.environment
    ) as gateway:
        with Client(gateway.port) as client:
            rejected(client, 3000)
        gateway.kill()
        clock.jump(-HOUR)
        gateway.start()
        with Client(gateway.port) as client:
            client.ask("SUBSCRIBE", {"destination": "/queue/clock", "id": "s", "ack": "client"})
            clock.jump(HOUR)
            assert client.message().body == b"once more"


@JUMPS
def test_expiry_follows_the_wall_clock(
    gateway: GatewayProcess, clock: WallClock, jump: int
) -> None:
    now_ms = int(time.time() * 1000)
    with Client(gateway.port) as client:
        client.store("/queue/clock", b"half an hour", expires=str(now_ms + HOUR * 500))
        client.store("/queue/clock", b"two hours", expires=str(now_ms + 2 * HOUR * 1000))
        clock.jump(jump)
        client.ask("SUBSCRIBE", {"destination": "/queue/clock", "id": "s", "ack": "auto"})
        frames: list[Frame] = []
        if jump < 0:
            frames.append(client.message())
        frames.append(client.message())
        assert [frame.body for frame in frames] == ([b"half an hour"] if jump < 0 else []) + [
            b"two hours"
        ]
        if jump > 0:
            client.ask(
                "SUBSCRIBE", {"destination": "/queue/mq.sys.dmq", "id": "dead", "ack": "auto"}
            )
            assert client.message().body == b"half an hour"


def test_expired_messages_are_swept_although_the_clock_was_set_back(
    gateway: GatewayProcess, clock: WallClock
) -> None:
    with Client(gateway.port) as client:
        client.ask("SUBSCRIBE", {"destination": "/queue/mq.sys.dmq", "id": "dead", "ack": "auto"})
        clock.jump(-HOUR)
        # It may be swept before it is stored.
        early = client.store("/queue/clock", b"soon", expires="1000")
        assert next_message(client, early).body == b"soon"


@JUMPS
def test_time_stamps_follow_the_wall_clock(
    gateway: GatewayProcess, clock: WallClock, jump: int
) -> None:
    with Client(gateway.port) as client:
        clock.jump(jump)
        client.store("/queue/clock", b"")
        client.ask("SUBSCRIBE", {"destination": "/queue/clock", "id": "s", "ack": "auto"})
        stamped = int(client.message().headers["timestamp"]) / 1000
        assert abs(stamped - time.time() - jump) < PATIENCE


def test_scheduled_messages_follow_the_wall_clock(
    gateway: GatewayProcess, clock: WallClock
) -> None:
    def schedule(client: Client, name: str, body: bytes, delay_ms: int) -> list[Frame]:
        """Return what came before the receipt."""
        return client.store(f"/queue/{name}", body, AMQ_SCHEDULED_DELAY=str(delay_ms))

    with Client(gateway.port) as client:
        schedule(client, "clock", b"in an hour", HOUR * 1000)
        schedule(client, "clock", b"in two hours", 2 * HOUR * 1000)
        client.ask("SUBSCRIBE", {"destination": "/queue/clock", "id": "s", "ack": "client"})
        clock.jump(HOUR + 1)
        # It has the schedule look at the time.
        early = schedule(client, "other", b"", 1)
        assert next_message(client, early).body == b"in an hour"
        client.ask("UNSUBSCRIBE", {"id": "s"})
        # What is stored after its arrival is durable, and so is that.
        client.store("/queue/other", b"")
    # Set back while the gateway is down, it makes a message later; what has come stays.
    gateway.kill()
    clock.jump(-HOUR)
    gateway.start()
    with Client(gateway.port) as client:
        client.ask("SUBSCRIBE", {"destination": "/queue/clock", "id": "s", "ack": "client"})
        assert client.message().body == b"in an hour"
        early = schedule(client, "clock", b"in between", 1)
        assert next_message(client, early).body == b"in between"
        clock.jump(2 * HOUR)
        early = schedule(client, "other", b"", 1)
        assert next_message(client, early).body == b"in two hours"


def test_a_link_tries_again_after_its_interval(tmp_path: Path, clock: WallClock) -> None:
    there = free_port()
    links = [
        Link("clock", HERE, stomp("there", there), attributes={"failure-retry-interval": "1000"})
    ]
    with BridgedGateway(tmp_path / "var", links, environment=clock.environment) as gateway:
        gateway.until_link("clock", lambda link: link["last_error"], "the link has not failed")
        clock.jump(-HOUR)
        with socket.create_server((HOST, there)) as server:
            server.settimeout(PATIENCE)
            server.accept()[0].close()
        earlier_ms = (time.time() - HOUR / 2) * 1000
        gateway.until_link(
            "clock",
            lambda link: link["last_error_ms"] < earlier_ms,
            "the error's time is not the wall clock's",
        )


def test_a_gateway_under_twistd_is_the_same(tmp_path: Path, clock: WallClock) -> None:
    with (
        GatewayProcess(tmp_path / "var", environment=clock.environment, command=TWISTD) as gateway,
        Client(gateway.port) as client,
    ):
        refused = rejected(client, 3000)
        clock.jump(-HOUR)
        early = client.store("/queue/other", b"")
        assert next_message(client, early).body == b"once more"
        assert time.monotonic() - refused > 2.9
