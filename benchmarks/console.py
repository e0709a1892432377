"""What open pages of the console cost: a load with and without them.

A page that follows is an event stream, which is read as a browser reads it. They are opened and
closed between the measurements, so that nothing differs but what the pages look at.
"""

from __future__ import annotations

import re
import selectors
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from statistics import median
from urllib.parse import urlencode

from benchmarks import load
from benchmarks.cell import Cell, Row, Timing
from benchmarks.endpoint import Refused
from benchmarks.goals import AtMost, NoneLost, Reaches
from benchmarks.load import Load
from benchmarks.measurement import Measurement
from benchmarks.peers import Gateway, Peer, PureGateway
from benchmarks.tally import Outcome

# The views that are open.
PAGES = ("", "destinations", "connections", "traces", "bridges")
# How often with pages, and how often without.
_TURNS = 8
# How many times as long as another measurement each takes; and that of pages alone, in which each
# looks ten times.
_LONGER = 3.0
_LONGEST = 14.0
_HOST = "127.0.0.1"
_PATIENCE = 10.0
_FORM = "application/x-www-form-urlencoded"


class GatewayWithPages(Gateway):
    """The gateway, of whose console pages are opened."""

    @contextmanager
    def open_pages(self) -> Iterator[None]:
        """Have :data:`PAGES` follow while the block lasts.

        Each has been sent once when it begins.

        :raises Refused: one does not follow.
        """
        port = self._admin_port()
        status, headers = _asked(
            port, "/console/login", {"user": "admin", "password": self._password()}
        )
        if status != 303:
            raise Refused(f"{self.name} does not let its administrator in: {status}")
        cookie = headers["set-cookie"].partition(";")[0]
        with ExitStack() as ending:
            reader = ending.enter_context(_Reader())
            for page in PAGES:
                reader.add(_stream(port, page, cookie))
            reader.wait()
            yield

    def _admin_port(self) -> int:
        with socket.create_connection((_HOST, self.port_mapper_port), _PATIENCE) as mapper:
            mapper.sendall(b"101\n")
            table = b"".join(iter(lambda: mapper.recv(4096), b"")).decode()
        return int(next(line for line in table.splitlines() if "bridge_admin" in line).split()[3])

    def _password(self) -> str:
        text = (self.instance / "etc" / "passfile").read_text()
        found = re.search(r"^imq\.imqcmd\.password=(.*)$", text, re.MULTILINE)
        if found is None:
            raise Refused(f"{self.name} has no password of its administrator")
        return found[1]

    def settings(self) -> dict[str, str]:
        return super().settings() | {"imq.bridge.admin.port": "0"}


class PureGatewayWithPages(GatewayWithPages, PureGateway):
    """The same in pure Python."""


def _asked(port: int, path: str, form: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
    connection = HTTPConnection(_HOST, port, timeout=_PATIENCE)
    try:
        headers = {"Content-Type": _FORM, "Origin": f"http://{_HOST}:{port}"}
        connection.request("POST", path, urlencode(form), headers)
        response = connection.getresponse()
        response.read()
        return response.status, {name.lower(): value for name, value in response.getheaders()}
    finally:
        connection.close()


def _stream(port: int, page: str, cookie: str) -> socket.socket:
    opened = socket.create_connection((_HOST, port), _PATIENCE)
    head = f"GET /console/live/{page} HTTP/1.1\r\nHost: {_HOST}:{port}\r\nCookie: {cookie}\r\n\r\n"
    opened.sendall(head.encode())
    return opened


class _Reader:
    """Reads streams on a thread of its own, as browsers do."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        #: What each has said first.
        self._said: dict[socket.socket, bytes] = {}
        self._all = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *failure: object) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        for stream in self._said:
            stream.close()
        self._selector.close()

    def add(self, stream: socket.socket) -> None:
        self._selector.register(stream, selectors.EVENT_READ)
        self._said[stream] = b""

    def wait(self) -> None:
        """Read from now on, and return when all were sent once.

        :raises Refused: not all were, in time.
        """
        self._thread.start()
        if not self._all.wait(_PATIENCE):
            raise Refused(f"pages do not follow: {[said[:200] for said in self._said.values()]}")

    def _read(self) -> None:
        waits = set(self._said)
        while not self._over.is_set():
            for key, _ in self._selector.select(0.2):
                stream = key.fileobj
                assert isinstance(stream, socket.socket)
                octets = stream.recv(1 << 20)
                if not octets:
                    self._selector.unregister(stream)
                    continue
                if stream in waits:
                    self._said[stream] += octets
                    if b"data: {" in self._said[stream]:
                        waits.discard(stream)
            if not waits:
                self._all.set()


@dataclass(frozen=True)
class Pages:
    """A load with pages that are open, and without any.

    :param turns: how often each.
    """

    turns: int = _TURNS
    alone: bool = False
    tls: bool = False
    once: bool = False

    def measure(self, peer: Peer, name: str, timing: Timing) -> Sequence[Measurement]:
        """Return the rate in percent of that without pages, and their cost."""
        assert isinstance(peer, GatewayWithPages)
        # Pages look every two seconds: some looks are in each measurement.
        seconds = _LONGER * timing.seconds
        pairs: list[tuple[Measurement, Measurement]] = []
        for turn in range(self.turns):

            def run(word: str, turn: int = turn) -> Measurement:
                return load.run(peer, Load(), f"{name}.{word}{turn}", timing.warm_up, seconds)

            # Which of the two comes first changes.
            if turn % 2:
                without = run("none")
            with peer.open_pages():
                following = run("pages")
            if not turn % 2:
                without = run("none")
            pairs.append((without, following))
        return [_compared(pairs), _alone(peer, _LONGEST * timing.seconds)]


def _compared(pairs: Sequence[tuple[Measurement, Measurement]]) -> Measurement:
    """Return the median of the pairs' ratios.

    A slow change of the machine hardly touches it.
    """
    ratios = [
        following.value / without.value
        for without, following in pairs
        if without.value and following.value
    ]
    if not ratios:
        raise Refused("no pair was measured")
    costs = {
        f"{word}, server s/100k": median(
            [run.server_cpu for run in runs if run.server_cpu is not None]
        )
        for word, runs in zip(("none", "pages"), zip(*pairs, strict=True), strict=True)
    }
    runs = [run for pair in pairs for run in pair]
    return replace(
        pairs[-1][1],
        value=100 * median(ratios),
        outcome=sum((run.outcome for run in runs), Outcome()),
        messages=sum(run.messages for run in runs),
        extra={"least %": 100 * min(ratios), "most %": 100 * max(ratios), **costs},
    )


def _alone(peer: GatewayWithPages, seconds: float) -> Measurement:
    """Return the processor time of the pages, in percent of a core.

    No message comes meanwhile. Under load they look as often, and a ratio of rates wavers more than
    what they take.
    """

    def spent() -> float:
        before = peer.tree.cpu_seconds()
        time.sleep(seconds)
        return peer.tree.cpu_seconds() - before

    without = spent()
    with peer.open_pages():
        following = spent()
    return Measurement(100 * (following - without) / seconds)


_SERVERS: Mapping[str, type[Peer]] = {
    peer.name: peer for peer in (GatewayWithPages, PureGatewayWithPages)
}

CONSOLE = Cell(
    "console",
    Pages(),
    (
        Row(
            "five open pages of the console, of the rate without: queue, 100 B, non-persistent, auto",
            "%",
            True,
            (NoneLost(), Reaches(98, "%")),
        ),
        Row(
            "the same pages while no message comes: processor time, of one core",
            "%",
            False,
            (AtMost(2, "%"),),
        ),
    ),
    _SERVERS,
)
