"""What happens to an instance, over HTTP and by ``imqcmd events``."""

from __future__ import annotations

import ast
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from twisted.internet import reactor as global_reactor
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from gateway.admin.cli import imqcmd
from gateway.admin.cli.events import end_unread
from gateway.admin.service.event_resources import MOST_FOLLOWERS, EventResources
from gateway.admin.service.roles import Identity, Role, needed
from gateway.admin.service.service import AdminService
from gateway.admin.service.settings import AdminOptions
from gateway.instance.events import KINDS, Events
from gateway.instance.levels import Level
from gateway.instance.log_lines import EVENT
from gateway.instance.logs import Log
from gateway.instance.redaction import Redaction
from tests.conformance.client import Client
from tests.gateway.admin.asking import ADMIN
from tests.gateway.admin.live import Live
from tests.gateway_process import ROOT
from tests.on_reactor import on_reactor

reactor = cast(Any, global_reactor)
FILES: dict[str, str] = {}
pytestmark = pytest.mark.process
KEPT = 50


class Nowhere:
    """The files of a log, which keep nothing."""

    def write(self, line: str) -> None: ...

    def close(self) -> None: ...


class Served:
    """Events that an admin service tells of."""

    def __init__(self) -> None:
        self.events = Events(Redaction(["s3cr3t-value"]), KEPT)
        log = Log("x", cast(Any, Nowhere()), Redaction(), Level.SEVERE, events=self.events)
        self.log: Logger = log.logger
        self.service = AdminService(
            reactor,
            AdminOptions(),
            [EventResources(reactor, self.events, 0.5)],
            self._known,
        )
        self.role: Role | None = Role.VIEWER

    async def _known(self, user: str, password: str, address: str) -> Identity:
        return Identity(user, Role.VIEWER, lambda: self.role)

    def happen(self, count: int, kind: str = "link.changed") -> None:
        for number in range(count):
            self.log.debug("number {number}", number=number, event=kind)

    def get(self, target: str = "", **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.service.port, timeout=30)
        authorization = "Basic " + b64encode(":".join(ADMIN).encode()).decode()
        connection.request(
            "GET", f"/v1/events{target}", headers={"Authorization": authorization, **headers}
        )
        return connection.getresponse()


@pytest_twisted.async_yield_fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    await served.service.start()
    yield served
    served.events.close()
    await served.service.stop()


def read(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The events of a stream: id, name and data of each that has data."""
    event: dict[str, Any] = {}
    for line in response:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if not field:
            if "data" in event:
                yield event
            event = {}
        else:
            event[field] = json.loads(value) if field == "data" else value


def some(response: http.client.HTTPResponse, count: int) -> list[dict[str, Any]]:
    events = read(response)
    return [next(events) for _ in range(count)]


# --- the stream


@on_reactor
async def test_a_stream_begins_now_and_resumes_behind_the_last_id(served: Served) -> None:
    served.happen(3)
    response = await deferToThread(served.get)
    assert response.getheader("Content-Type") == "text/event-stream; charset=utf-8"
    served.happen(2)
    first, second = await deferToThread(some, response, 2)
    assert first["data"]["message"] == "number 0"
    assert first["data"]["kind"] == "link.changed"
    assert first["data"]["fields"] == {"number": 0}
    assert first["id"].endswith("-4")
    assert second["id"].endswith("-5")
    response.close()

    served.happen(1)
    resumed = await deferToThread(served.get, **{"Last-Event-ID": first["id"]})
    assert [each["id"] for each in await deferToThread(some, resumed, 2)] == [
        second["id"],
        second["id"].replace("-5", "-6"),
    ]
    resumed.close()


@on_reactor
async def test_who_has_heard_of_no_event_yet_misses_none_either(served: Served) -> None:
    served.happen(3)
    response = await deferToThread(served.get)
    begun = await deferToThread(lambda: [response.readline().decode() for _ in range(3)])
    assert begun == ["retry: 3000\n", f"id: {served.events.run}-3\n", "\n"]
    response.close()


@on_reactor
async def test_a_gap_is_told(served: Served) -> None:
    served.happen(1)
    served.happen(KEPT + 4)
    run = served.events.run
    late = await deferToThread(served.get, **{"Last-Event-ID": f"{run}-1"})
    gap, oldest = await deferToThread(some, late, 2)
    assert (gap["event"], gap["data"]) == ("gap", {"missed": 4})
    assert oldest["id"] == f"{run}-6"
    late.close()
    other = await deferToThread(served.get, **{"Last-Event-ID": "00000000-7"})
    (gap,) = await deferToThread(some, other, 1)
    assert (gap["event"], gap["data"]) == ("gap", {"missed": None})
    other.close()


@on_reactor
async def test_who_does_not_read_is_not_written_to(served: Served) -> None:
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with closing(peer):
        peer.settimeout(30)
        await deferToThread(peer.connect, ("127.0.0.1", served.service.port))
        authorization = b64encode(":".join(ADMIN).encode())
        peer.sendall(
            b"GET /v1/events HTTP/1.0\r\nAuthorization: Basic " + authorization + b"\r\n\r\n"
        )
        begun = await deferToThread(peer.recv, 4096)
        assert begun.startswith(b"HTTP/1.0 200")
        text = "x" * 1900
        # More than all buffers between take.
        for number in range(10_000):
            served.log.info("{number} {text}", number=number, text=text, event="link.changed")
            if not number % 50:
                await deferToThread(lambda: None)
        served.events.close()

        def rest() -> bytes:
            found = b""
            while octets := peer.recv(1 << 20):
                found += octets
            return found

        found = await deferToThread(rest)
    events = [line for line in found.split(b"\n") if line.startswith(b"data: ")]
    missed = [
        json.loads(line[6:])["missed"] for line in events if line.startswith(b'data: {"missed"')
    ]
    assert sum(missed) > 1000
    assert sum(missed) + len(events) - len(missed) == 10_000
    assert b'"number": 9999' in events[-1]


@on_reactor
async def test_a_few_may_follow_and_a_role_that_ends_ends_it(served: Served) -> None:
    following = [await deferToThread(served.get) for _ in range(MOST_FOLLOWERS)]
    refused = await deferToThread(served.get)
    assert refused.status == 503
    assert b"too many clients follow the events" in refused.read()
    served.role = None
    # Each is looked at soon, and ends.
    for each in following:
        assert await deferToThread(each.read)
    served.role = Role.VIEWER
    again = await deferToThread(served.get)
    assert again.status == 200
    again.close()


@on_reactor
async def test_kinds_and_times_choose(served: Served) -> None:
    served.happen(1)
    served.happen(1, "store.full")
    served.happen(1, "destination.full")

    def kinds(target: str) -> list[str]:
        response = served.get(target, Accept="application/json")
        return [each["kind"] for each in json.loads(response.read())["events"]]

    def refused(target: str) -> str:
        response = served.get(target)
        assert response.status == 400
        text: str = json.loads(response.read())["error"]["text"]
        return text

    assert await deferToThread(kinds, "?kind=link,store.full") == ["link.changed", "store.full"]
    assert await deferToThread(kinds, "?since=1h&kind=destination") == ["destination.full"]
    assert await deferToThread(kinds, "?since=2999-01-01T00:00:00Z") == []
    assert "there is no kind stores; expected" in await deferToThread(refused, "?kind=stores")
    assert "since is 'now'; expected" in await deferToThread(refused, "?since=now")


def test_secrets_are_taken_out_and_viewers_may_follow() -> None:
    served = Served()
    served.log.info("the value is {it}", it="s3cr3t-value", event="link.changed")
    served.log.info("no event")
    served.log.info("another's field", event="something else")
    (event,) = served.events.after(0)[1]
    assert "s3cr3t" not in json.dumps(event.values)
    assert needed("GET", "/v1/events") is Role.VIEWER


def test_all_kinds_of_the_code_are_known() -> None:
    used: set[str] = set()
    for package in ("gateway", "bridge"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if EVENT in text and path.name != "events.py":
                used |= {kind for kind in KINDS if f'"{kind}"' in text}
                for node in ast.walk(ast.parse(text)):
                    if isinstance(node, ast.keyword) and node.arg == EVENT:
                        value = node.value
                        if isinstance(value, ast.Constant):
                            assert value.value in KINDS, path
    assert used == {*KINDS}


# --- a gateway


def test_what_happens_to_a_gateway(live: Live) -> None:
    command = [sys.executable, "-m", "gateway.admin.cli.imqcmd", "events", "-follow", "--json"]
    follower = subprocess.Popen(
        [*command, *live.options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert follower.stdout is not None
    try:
        # Destinations are made until the follower tells of one: then it follows.
        lines = follower.stdout

        def imq(*arguments: str) -> str:
            live.capsys.readouterr()
            assert imqcmd.run([*arguments, *live.options, "-f"]) == 0
            return live.capsys.readouterr().out

        def await_follower() -> None:
            import select

            for number in range(100):
                imq("create", "dst", "-t", "q", "-n", f"seen{number}")
                if select.select([lines], [], [], 0.2)[0]:
                    return
            raise AssertionError("nothing follows")

        await_follower()
        limits = ["-o", "maxNumMsgs=2", "-o", "limitBehavior=REMOVE_OLDEST"]
        imq("create", "dst", "-t", "q", "-n", "small", *limits)
        client = Client(live.gateway.port)
        client.connect()
        for number in range(30):
            client.put("/queue/small", str(number))
        client.ask("DISCONNECT")
        live.gateway.signal(signal.SIGHUP)
        imq("destroy", "dst", "-t", "q", "-n", "small")
        events = []
        for line in lines:
            events.append(json.loads(line))
            if "queue:small is destroyed" in events[-1]["message"]:
                break
    finally:
        follower.terminate()
        follower.wait()
        lines.close()
    told = [(each["kind"], each["message"]) for each in events]
    kinds = [kind for kind, _ in told]
    for kind in ("connection.opened", "connection.closed", "destination.full"):
        assert kind in kinds
    # The 28 that had to go are one event now, and one with their number in a while.
    assert kinds.count("message.dead") == 1
    assert any("queue:small is dead: OLDEST" in text for _, text in told)

    listed = imq("events", "-kind", "process")
    assert "process.started" in listed
    assert "is ready" in listed
    # Those that were counted.
    more = ""
    while "27 more messages of queue:small are dead: OLDEST" not in more:
        more = imq("events", "-since", "5m", "-kind", "message.dead")
    assert "configuration.reloaded" in imq("events", "-kind", "configuration")


def test_a_warning_of_a_bridge_is_told_once() -> None:
    events = Events(Redaction())
    instance = Log("i", cast(Any, Nowhere()), Redaction(), events=events)
    bridge = Log("b", cast(Any, Nowhere()), Redaction(), also=instance.also, events=events)
    bridge.logger.warn("once", event="link.failing")
    assert events.last == 1


def test_events_end_where_nothing_reads_them_any_more(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with open(writing, "w") as pipe:
        end_unread(pipe)
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            end_unread(pipe)
    with (tmp_path / "file").open("w") as file:
        end_unread(file)
    end_unread(io.StringIO())
