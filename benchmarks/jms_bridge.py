"""ActiveMQ as a mover: its own JMS bridge to another ActiveMQ.

It is ``org.apache.activemq.network.jms``.

``JmsBridge.java`` is the broker as :class:`benchmarks.peers.ActiveMQ` runs it, and lets the bridge
be started over a queue that is full already, which ``activemq.xml`` cannot.
"""

from __future__ import annotations

import socket
from pathlib import Path

from benchmarks.endpoint import PATIENCE, Refused
from benchmarks.movers import Mover, Route, Way
from benchmarks.peers import ROOT, ActiveMQ, Peer, free_port


class OpenWireActiveMQ(ActiveMQ):
    """ActiveMQ with a listener for its JMS client. :ivar url: where that is."""

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        self.url = f"tcp://127.0.0.1:{free_port()}"

    def listeners(self) -> list[str]:
        return [self.url, *super().listeners()]


class ActiveMQWithBridge(Mover, ActiveMQ):
    """ActiveMQ with its JMS bridge.

    Each message is sent by itself, persistent and so with the target's sync, and then acknowledged
    at the source.
    """

    many = 1
    # Its consumer's thread does not let go of what the stop waits for, for 20 s and more.
    stops = False

    def __init__(self, folder: Path, tls: bool = False) -> None:
        super().__init__(folder, tls)
        self._control = free_port()

    def main(self) -> list[str]:
        return [str(ROOT / "benchmarks" / "JmsBridge.java"), str(self._control)]

    def make(self, foreign: str, folder: Path) -> Peer:
        return OpenWireActiveMQ(folder)

    def _started(self, foreign: str) -> Peer:
        # Whoever is at the other end of the gateway's link, at the end of this bridge it is another
        # ActiveMQ.
        return super()._started("activemq")

    def begin(self, route: Route, batch: int) -> None:
        source, target = self.queues(route, batch)
        foreign = self.foreign(route)
        # Itself it reaches within its own JVM, and so with the least effort.
        url = foreign.url if isinstance(foreign, OpenWireActiveMQ) else "vm://peer?create=false"
        self._say(f"{'in' if route.way is Way.IN else 'out'} {source} {target} {url}")

    def end(self, route: Route, batch: int) -> None:
        self._say("stop")

    def _say(self, line: str) -> None:
        try:
            with socket.create_connection(
                ("127.0.0.1", self._control), timeout=PATIENCE
            ) as connection:
                connection.sendall(line.encode() + b"\n")
                answer = (
                    b"".join(iter(lambda: connection.recv(4096), b""))
                    .decode(errors="replace")
                    .strip()
                )
        except OSError as error:
            raise Refused(f"{self.name} takes no commands for its JMS bridge: {error}") from error
        if answer != "done":
            raise Refused(f"{self.name}: {line}: {answer}")
