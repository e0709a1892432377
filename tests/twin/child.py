"""Play scripts against the gateway of one tree, and report each turn.

Run as ``python -m tests.twin.child TREE FOLDER``. Reads one script a line from standard input, and
writes one trace a line; both are JSON. A tree is a checkout or an unpacked wheel; its gateway is
imported from nowhere else. The gateway is whole from the socket to the store: sockets, the clock,
the randomness and the disk are :mod:`tests.twin.world`'s.

Names are looked for in the tree's sources, so that modules may move. Add a name to the call of
:meth:`Tree.find` when a class is renamed.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from twisted.internet.address import IPv4Address
from twisted.internet.defer import ensureDeferred
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import globalLogBeginner
from twisted.python.failure import Failure

from tests.twin.actors import Client, Coordinator, Everyone, Operator
from tests.twin.world import Disk, RecordingStore, Transport, Turn

#: When each script begins, epoch seconds.
START: Final = 1_700_000_000.0
#: Passes of the reactor in one turn. A gateway that is not quiet after these has a defect.
_PASSES: Final = 200
#: Answers of the disk, and seconds, until everything that was asked is done.
_ANSWERS: Final = 1_000
#: Longer than a batch lingers whose end has no waiter.
_LINGER: Final = 0.02
#: The setting by which any acknowledgement may be in a transaction.
JOIN: Final = "imq.bridge.stomp.ack.transaction=join"
_VERSIONS: Final = ("1.2", "1.1", "1.0", "1.2")


class Tree:
    """The packages of one tree."""

    def __init__(self, path: Path) -> None:
        # In place of the folder of this project, which has a gateway, too.
        sys.path[0] = str(path)
        self._sources = {file: file.read_text() for file in sorted(path.glob("gateway/**/*.py"))}
        self._path = path
        self._found: dict[tuple[str, ...], Any] = {}
        here = importlib.import_module("gateway").__file__
        if here is None or path not in Path(here).parents:
            raise ImportError(f"gateway comes from {here}, and not from {path}")

    def find(self, *names: str, below: str = "gateway") -> Any:
        """Return the first of these classes or functions below a folder."""
        key = (*names, below)
        if key not in self._found:
            self._found[key] = self._look(names, below)
        return self._found[key]

    def _look(self, names: Sequence[str], below: str) -> Any:
        for name in names:
            pattern = re.compile(rf"^(?:class|def) {name}\b", re.MULTILINE)
            for file, text in self._sources.items():
                relative = file.relative_to(self._path)
                if relative.is_relative_to(below) and pattern.search(text):
                    module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
                    return getattr(importlib.import_module(module), name)
        raise LookupError(f"{self._path}/{below} defines none of {', '.join(names)}")

    def interface(self) -> Any:
        """Return the module that says what a store is."""
        return importlib.import_module(self.find("Batch", below="gateway/broker").__module__)


class Gateway:
    """One gateway: a broker over a disk, and the STOMP bridge before it."""

    def __init__(self, tree: Tree, configuration: Any, options: dict[str, Any]) -> None:
        self._tree = tree
        self._configuration = configuration
        self._options = options
        self.disk = Disk()
        self.turn = Turn()
        self.clients: dict[str, Client] = {}
        self._random = 0
        self._now = START
        self.open()

    def _octets(self, count: int) -> bytes:
        self._random += 1
        return self._random.to_bytes(count, "big")

    def open(self) -> None:
        """Open the broker over the disk, and listen."""
        tree = self._tree
        self.clients = {}
        self.clock: Any = MemoryReactorClock()  # type: ignore[no-untyped-call]
        self.clock.rightNow = self._now
        self.store = RecordingStore(self.disk, tree.interface(), lambda: self.turn)
        turn = tree.find("Turn")(self.clock)
        memory = tree.find("Memory", below="gateway/broker")
        window = self._options.get("window")
        self.broker = tree.find("open_broker", below="gateway/broker")(
            self.clock,
            turn,
            self.store,
            self._configuration.broker,
            lambda error: self.turn.ask("store failed", type(error).__name__),
            memory=memory(*window) if window else memory(),
        )
        self._record_journal()
        rules = tree.find("AccessRules", below="gateway/broker")(
            self._configuration.layout.access_control
        )
        rules.load()
        principal = tree.find("Principal", below="gateway/broker")
        self.provider = tree.find("EmbeddedProvider", below="gateway/broker")(
            self.broker, Everyone(principal), rules, self._octets
        )
        self.service = tree.find("StompService", below="gateway/stomp")(
            self.clock, turn, self.provider, self._configuration.stomp, random=self._octets
        )
        self._done(ensureDeferred(self.service.start()))
        self._coordinator: Coordinator | None = None
        self.operator = Operator(
            tree.find("BrokerAdministration", below="gateway/broker")(self.provider, tuple),
            tree.find("BranchAdministration", below="gateway/broker")(self.provider),
            lambda: self.turn,
        )

    def coordinator(self) -> Coordinator:
        """Return the coordinator, connecting it first if it is not."""
        if self._coordinator is None:
            headers = self._tree.find("Headers", below="gateway/messaging")
            module = sys.modules[headers.__module__]
            destination = self._tree.find("Destination", below="gateway/messaging")
            kind = self._tree.find("Kind", below="gateway/messaging")

            def queue(name: str) -> Any:
                return destination(kind.QUEUE, name)

            def message(name: str, persistent: bool) -> Any:
                headers = module.Headers(queue(name), persistent=persistent)
                return module.Message(headers, b"branch work")

            seam = sys.modules[self._tree.find("Xid", below="gateway/messaging").__module__]
            self._coordinator = Coordinator(seam, self.provider, message, queue, lambda: self.turn)
        return self._coordinator

    def leave(self) -> None:
        """The coordinator closes its connection."""
        if self._coordinator is not None:
            self._coordinator.close()
            self._coordinator = None

    def _record_journal(self) -> None:
        """Have the journal's lines recorded in place of being written."""
        tree = self._tree
        lines = tree.find("Lines", below="gateway/journal")("run", "twin")
        level = tree.find("Level", below="gateway/journal").ALL
        clock = self.clock

        def write(fields: dict[str, object]) -> None:
            fields.setdefault("time", int(clock.seconds() * 1_000_000))
            self.turn.journal.append(lines.line(0, fields).decode())

        class Recorded(tree.find("Journal", below="gateway/journal")):  # type: ignore[misc]
            def __init__(self, *arguments: object, **named: object) -> None:
                self.level = level
                self.headers = self.bodies = False
                self.tracer = None

            def add(self, fields: dict[str, object], octets: int = 0) -> None:
                write(fields)

        tree.find("tell")(self.broker, Recorded())

    def _done(self, deferred: Any) -> None:
        deferred.addErrback(lambda failure: self.turn.defects.append(failure.getTraceback()))

    def client(self, name: str, **how: Any) -> Client:
        """Return the client of that name, connecting it first if it is not."""
        if name in self.clients:
            return self.clients[name]
        version = how.get("version") or _VERSIONS[int(name) % len(_VERSIONS)]
        address = IPv4Address("TCP", "192.0.2.1", 40_000 + int(name))
        transport = Transport(
            lambda octets: self._written(name, octets), bool(how.get("slow")), address
        )
        connection = self._factory().buildProtocol(address)
        joins = any(JOIN in setting for setting in self._options.get("settings", ()))
        client = self.clients[name] = Client(name, version, connection, transport, joins)
        self._guarded(connection.makeConnection, transport)
        headers = {
            "accept-version": version,
            "host": "twin",
            "login": "guest",
            "passcode": "guest",
            "client-id": f"client-{name}",
            **how.get("headers", {}),
        }
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        client.inbound.append(f"CONNECT\n{lines}\n\0".encode())
        self.passes()
        return client

    def refuses(self, name: str) -> bool:
        """Tell whether a client of that name is not there, and cannot connect."""
        return name not in self.clients and self.service.state.name != "STARTED"

    def pause(self, paused: bool) -> None:
        """Pause the STOMP bridge, or resume it, where that is not so already."""
        if paused and self.service.state.name == "STARTED":
            self._done(ensureDeferred(self.service.pause()))
        elif not paused and self.service.state.name == "PAUSED":
            self._done(ensureDeferred(self.service.resume()))

    def _factory(self) -> Any:
        return self.clock.tcpServers[-1][1]

    def _written(self, name: str, octets: bytes) -> None:
        self.turn.write(name, octets)
        self.clients[name].hear(octets)

    def lose(self, client: Client) -> None:
        """The connection is gone."""
        del self.clients[client.name]
        gone = Failure(ConnectionDone())  # type: ignore[no-untyped-call]
        self._guarded(client.connection.connectionLost, gone)

    def _guarded(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001
            # The reactor would log it and close the connection.
            self.turn.defects.append(traceback.format_exc())

    def passes(self) -> None:
        """Run due timers, and move bytes on sockets, until all is quiet."""
        for _ in range(_PASSES):
            changed = False
            for client in list(self.clients.values()):
                transport = client.transport
                if client.inbound and not transport.paused:
                    self._guarded(client.connection.dataReceived, client.inbound.popleft())
                    changed = True
                if not transport.slow or transport.ended:
                    changed = transport.drain() or changed
                if transport.ended and not transport.unsent:
                    self.turn.closed.append(client.name)
                    self.lose(client)
                    changed = True
            if self.clock.calls and self.clock.calls[0].getTime() <= self.clock.seconds():
                self._guarded(self.clock.advance, 0)
                changed = True
            if not changed:
                return
        self.turn.defects.append("the gateway does not come to rest")

    def later(self, seconds: float) -> None:
        """Let time pass, from timer to timer."""
        until = self.clock.seconds() + seconds
        while self.clock.calls and self.clock.calls[0].getTime() <= until:
            due = self.clock.calls[0].getTime()
            self._guarded(self.clock.advance, max(0.0, due - self.clock.seconds()))
            self.passes()
        self._guarded(self.clock.advance, max(0.0, until - self.clock.seconds()))
        self.passes()

    def settle(self) -> None:
        """Let the disk do all that was asked, and all that comes of it."""
        for _ in range(_ANSWERS):
            self.later(_LINGER)
            if not self.store.busy:
                return
            self._guarded(self.store.answer, "done")
            self.passes()
        self.turn.defects.append("the disk does not come to rest")

    def crash(self) -> None:
        """Lose everything but the disk, and start anew."""
        self._now = self.clock.seconds()
        self.open()

    def stop(self) -> None:
        """Stop in order, and start anew."""
        self._done(ensureDeferred(self.service.stop()))
        self.passes()
        closed: list[bool] = []
        self._guarded(self.broker.close, lambda: closed.append(True))
        for _ in range(_ANSWERS):
            if closed:
                break
            self.passes()
            self._guarded(self.store.answer, "done")
            self.later(_LINGER)
        else:
            self.turn.defects.append("the broker does not close")
        self.crash()


class Player:
    """Plays scripts."""

    def __init__(self, tree: Tree, folder: Path) -> None:
        self._tree = tree
        self._folder = folder
        self._configurations: dict[tuple[str, ...], Any] = {}
        self._gateway: Gateway | None = None
        observers: Any = [self._logged]
        globalLogBeginner.beginLoggingTo(observers, redirectStandardIO=False)

    def _logged(self, event: dict[str, Any]) -> None:
        failure = event.get("log_failure")
        if failure is not None and self._gateway is not None:
            self._gateway.turn.defects.append(failure.getTraceback())

    def play(self, script: dict[str, Any]) -> list[Any]:
        """Return what the gateway did in each turn."""
        options = script["options"]
        gateway = Gateway(self._tree, self._configured(options.get("settings", ())), options)
        self._gateway = gateway
        trace = []
        for operation in [*script["operations"], ["settle"]]:
            self._do(gateway, *operation)
            gateway.passes()
            trace.append(gateway.turn.as_json())
            gateway.turn = Turn()
        return trace

    def _configured(self, settings: Sequence[str]) -> Any:
        key = tuple(settings)
        if key not in self._configurations:
            fixed = ["imq.bridge.stomp.tls.enabled=false", "imq.hostname=127.0.0.1"]
            configure = importlib.import_module("gateway.configuration").configure
            self._configurations[key] = configure(self._folder, "twin", None, [*fixed, *settings])
        return self._configurations[key]

    def _do(self, gateway: Gateway, verb: str, *arguments: Any) -> None:
        match verb:
            case "connect" | "say" if gateway.refuses(str(arguments[0])):
                pass
            case "connect":
                name, how = arguments
                gateway.client(str(name), **how)
            case "say":
                name, frames = arguments
                client = gateway.client(str(name))
                made = [client.frame(*frame) for frame in frames]
                client.inbound.append(b"".join(each for each in made if each is not None))
            case "drop":
                client_gone = gateway.clients.get(str(arguments[0]))
                if client_gone is not None:
                    gateway.lose(client_gone)
            case "drain":
                for each in list(gateway.clients.values()):
                    each.transport.drain()
            case "time":
                gateway.later(arguments[0])
            case "disk":
                gateway._guarded(gateway.store.answer, arguments[0])
            case "draining":
                gateway._guarded(gateway.store.drain, arguments[0])
            case "operate":
                gateway.operator.operate(*arguments)
            case "decide":
                gateway.operator.decide(*arguments)
            case "work":
                gateway.coordinator().work(*arguments)
            case "branch":
                gateway.coordinator().call(*arguments)
            case "recover":
                gateway.coordinator().recover()
            case "pause":
                gateway.pause(True)
            case "resume":
                gateway.pause(False)
            case _:
                getattr(gateway, verb)()


def main() -> None:
    """Play what standard input says."""
    tree = Tree(Path(sys.argv[1]).resolve())
    player = Player(tree, Path(sys.argv[2]))
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        try:
            answer: Any = player.play(json.loads(line))
        except Exception:  # noqa: BLE001
            # The parent says which script it was.
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
