"""Play scripts against the gateway of one tree, and report what it did, turn by turn.

Run as ``python child.py TREE FOLDER``. Reads one script a line from standard input, and writes one
trace a line; both are JSON. A tree is a checkout or an unpacked wheel, and nothing of the project
is imported from anywhere else. The gateway is whole from the socket to the store: sockets, the
clock, the randomness and the disk are this module's.

Names are looked for in the tree's sources, so that modules may move. Add a name to the call of
:meth:`Tree.find` when a class is renamed.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from twisted.internet.address import IPv4Address
from twisted.internet.defer import succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import globalLogBeginner
from twisted.python.failure import Failure

#: When each script begins, epoch seconds.
START: Final = 1_700_000_000.0
#: Passes of the reactor in one turn. A gateway that is not quiet after these has a defect.
_PASSES: Final = 200
#: Answers of the disk, and seconds, until everything that was asked is done.
_ANSWERS: Final = 1_000
#: Longer than a batch lingers that nobody waits for.
_LINGER: Final = 0.02
#: The setting by which any acknowledgement may be in a transaction.
JOIN: Final = "imq.bridge.stomp.ack.transaction=join"
#: What a batch counts for its own bounds.
_COUNTS: Final = ("octets", "operations")
_VERSIONS: Final = ("1.2", "1.1", "1.0", "1.2")


class Tree:
    """The packages of one tree."""

    def __init__(self, path: Path) -> None:
        # Not the folder of this file, and nothing that was installed before the tree.
        sys.path[0] = str(path)
        self._sources = {file: file.read_text() for file in sorted(path.glob("gateway/**/*.py"))}
        self._path = path
        self._found: dict[tuple[str, ...], Any] = {}
        here = importlib.import_module("gateway").__file__
        if here is None or path not in Path(here).parents:
            raise ImportError(f"gateway comes from {here}, and not from {path}")

    def find(self, *names: str, below: str = "gateway") -> Any:
        """Return the class or function of the first name that is defined below a folder."""
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


def text(octets: bytes) -> str:
    """Return bytes as characters of the same numbers."""
    return octets.decode("latin-1")


def plain(value: Any) -> Any:
    """Return a value of a batch as JSON can hold it."""
    if isinstance(value, bytes):
        return text(value)
    if isinstance(value, dict):
        return [plain(key if each is None else each) for key, each in value.items()]
    if isinstance(value, (tuple, list)):
        return [plain(each) for each in value]
    return value


class Turn:
    """What the gateway has done since the script's last operation."""

    def __init__(self) -> None:
        self.out: dict[str, list[str]] = {}
        self.closed: list[str] = []
        self.store: list[Any] = []
        self.journal: list[str] = []
        #: Writes to connections and requests to the store, in order.
        self.order: list[str] = []
        #: What must never happen, whatever the other tree does.
        self.defects: list[str] = []

    def write(self, name: str, octets: bytes) -> None:
        self.out.setdefault(name, []).append(text(octets))
        self._mark(f"write {name}")

    def ask(self, kind: str, what: Any) -> None:
        self.store.append([kind, what])
        self._mark(kind)

    def _mark(self, what: str) -> None:
        if self.order[-1:] != [what]:
            self.order.append(what)

    def as_json(self) -> dict[str, Any]:
        """Return what is there, without what is empty."""
        found: dict[str, Any] = {
            "out": {name: "".join(parts) for name, parts in sorted(self.out.items())},
            "closed": self.closed,
            "store": self.store,
            "journal": self.journal,
            "order": self.order if len(self.order) > 1 else [],
            "defects": self.defects,
        }
        return {name: value for name, value in found.items() if value}


class Disk:
    """What survives a crash: the rows of the store, by table."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, Any]] = {}
        self.next_seq = 1

    def table(self, name: str) -> dict[Any, Any]:
        return self.tables.setdefault(name, {})

    def apply(self, batch: Any) -> None:
        """Do what a store does with a batch."""
        for name in ("destinations", "subscriptions", "inserts", "owed"):
            self.table(name).update(getattr(batch, name))
        for pair in batch.settled:
            self.table("owed").pop(pair, None)
            self.table("redeliveries").pop(pair, None)
        self.table("redeliveries").update(batch.redeliveries)
        for seq in batch.deletes:
            self.table("inserts").pop(seq, None)
            self._drop_pairs("redeliveries", 1, seq)
        for number in batch.removed_subscriptions:
            self.table("subscriptions").pop(number, None)
            self._drop_pairs("owed", 0, number)
        for number in batch.removed_destinations:
            self.table("destinations").pop(number, None)
        for name, removed in (("duplicates", "forgotten"), ("branches", "removed_branches")):
            self.table(name).update(getattr(batch, name))
            for number in getattr(batch, removed):
                self.table(name).pop(number, None)
        self.next_seq = max(self.next_seq, batch.reserved)

    def restart(self) -> None:
        """Forget the messages that are not persistent."""
        rows = self.table("inserts")
        self.tables["inserts"] = {seq: row for seq, row in rows.items() if row.persistent}

    def _drop_pairs(self, name: str, place: int, gone: int) -> None:
        pairs = self.table(name)
        self.tables[name] = {key: row for key, row in pairs.items() if key[place] != gone}


class RecordingStore:
    """A store whose disk answers when the script says so, and as it says."""

    def __init__(self, disk: Disk, interface: Any, turn: Callable[[], Turn]) -> None:
        self._disk = disk
        self._interface = interface
        self._turn = turn
        self._asked: deque[tuple[Any, Callable[[Any], None]]] = deque()
        self.draining = False
        self.on_draining: Any = None
        self.on_damaged: Any = None
        self.on_failed: Any = None
        self.closed = False

    def open(self) -> Any:
        self._disk.restart()
        given = {
            "store_id": "twin",
            "next_seq": self._disk.next_seq,
            "clean": True,
            "destinations": list(self._disk.table("destinations").values()),
            "subscriptions": list(self._disk.table("subscriptions").values()),
            "notes": [],
            "path": "the disk",
        }
        recovered = self._interface.Recovered
        return recovered(**{name: given[name] for name in given if name in recovered._fields})

    def scan(self) -> Iterator[Any]:
        for seq, row in sorted(self._disk.table("inserts").items()):
            yield [
                self._interface.IndexRow(seq, row.destination, row.priority, row.expires, row.size)
            ]

    def scan_owed(self) -> Iterator[Any]:
        yield sorted(self._disk.table("owed"), key=lambda pair: pair[1])

    def scan_redeliveries(self) -> Iterator[Any]:
        yield list(self._disk.table("redeliveries").values())

    def scan_duplicates(self) -> Iterator[Any]:
        if self._disk.table("duplicates"):
            yield sorted(self._disk.table("duplicates").values())

    def scan_branches(self) -> Iterator[Any]:
        yield sorted(self._disk.table("branches").values())

    def submit(self, batch: Any, committed: Callable[[Any], None]) -> None:
        found = {
            name: plain(getattr(batch, name))
            for name in sorted(dir(batch))
            if not name.startswith("_") and name not in _COUNTS and getattr(batch, name)
        }
        self._turn().ask("batch", found)
        self._asked.append((batch, committed))

    def fetch(self, seqs: Sequence[int], fetched: Callable[[Any], None], **options: Any) -> None:
        self._turn().ask("fetch", [*seqs])
        self._asked.append((list(seqs), fetched))

    def close(self, closed: Callable[[], None]) -> None:
        self._turn().ask("close", None)
        self.closed = True
        closed()

    @property
    def busy(self) -> bool:
        return bool(self._asked)

    def answer(self, how: str) -> None:
        """Do the next thing that was asked: ``done``, ``full`` or ``failed``."""
        if not self._asked:
            return
        what, answer = self._asked.popleft()
        if how == "failed":
            answer(self._interface.StoreFailed("the disk is broken"))
        elif isinstance(what, list):
            rows = self._disk.table("inserts")
            answer([rows[seq] for seq in what if seq in rows])
        elif how == "full" and what.inserts:
            answer(self._interface.StoreFull("the disk is full"))
        else:
            self._disk.apply(what)
            answer(None)

    def drain(self, draining: bool) -> None:
        """Say that the disk is full, or that it is no longer."""
        if self.draining != draining:
            self.draining = draining
            if self.on_draining is not None:
                self.on_draining(draining)


class Transport:
    """A socket whose kernel takes everything, at once or when the script says so."""

    disconnecting = False

    def __init__(self, written: Callable[[bytes], None], slow: bool, address: Any) -> None:
        self._written = written
        self._address = address
        self.slow = slow
        self.producer: Any = None
        self.unsent = False
        self.paused = False
        #: The gateway writes no more, or has let go of the socket.
        self.ended = False

    def write(self, octets: bytes) -> None:
        self._written(octets)
        self.unsent = True

    def writeSequence(self, parts: Sequence[bytes]) -> None:
        self.write(b"".join(parts))

    def loseConnection(self) -> None:
        self.disconnecting = self.ended = True

    abortConnection = loseConnection

    def loseWriteConnection(self) -> None:
        self.ended = True

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def pauseProducing(self) -> None:
        self.paused = True

    def resumeProducing(self) -> None:
        self.paused = False

    def getPeer(self) -> Any:
        return self._address

    getHost = getPeer

    def drain(self) -> bool:
        """Have the kernel take what was written. Tell whether that changed anything."""
        changed, self.unsent = self.unsent, False
        if changed and self.producer is not None:
            self.producer.resumeProducing()
        return changed


class Client:
    """A client of one connection: writes frames, and remembers what it may acknowledge."""

    def __init__(
        self, name: str, version: str, connection: Any, transport: Transport, joins: bool
    ) -> None:
        self.name = name
        self.version = version
        self.connection = connection
        self.transport = transport
        self.inbound: deque[bytes] = deque()
        self.transaction = ""
        #: Acknowledgements of any subscription may be in a transaction.
        self._joins = joins
        #: By id: the mode of acknowledgement, and whether the subscription is transacted.
        self._subscriptions: dict[str, tuple[str, bool]] = {}
        self._deliveries: list[dict[str, str]] = []
        self._replies: list[str] = []
        self._unread = b""

    def hear(self, octets: bytes) -> None:
        """Note the MESSAGEs of what was written to this client."""
        self._unread += octets
        while self._unread:
            self._unread = self._unread.lstrip(b"\r\n")
            head, found, rest = self._unread.partition(b"\n\n")
            if not found:
                return
            lines = text(head).split("\n")
            headers = dict(line.split(":", 1) for line in reversed(lines[1:]))
            length = int(headers.get("content-length", rest.find(b"\0")))
            if length < 0 or len(rest) <= length:
                return
            self._unread = rest[length + 1 :]
            if lines[0] == "MESSAGE":
                self._note(headers)

    def _note(self, headers: dict[str, str]) -> None:
        if "reply-to" in headers:
            self._replies.append(headers["reply-to"])
        mode, _ = self._subscriptions.get(headers.get("subscription", ""), ("auto", False))
        if mode != "auto" and "browser" not in headers:
            self._deliveries.append(headers)

    def frame(self, command: str, given: dict[str, Any], body: str) -> bytes | None:
        """Return a frame as it is sent, or None where it would be an error at this moment.

        ``!`` among the headers sends it all the same. ``@`` names a delivery by its place among
        those that may be acknowledged, or a destination to reply to.
        """
        headers = dict(given)
        forced = headers.pop("!", False)
        place = headers.pop("@", None)
        if place is not None:
            named = (
                self._reply(place)
                if command == "SEND"
                else self._acknowledged(command, place, headers)
            )
            if named is None:
                return None
            headers |= named
        begin = b""
        if not forced:
            legal = self._legal(command, headers)
            if legal is None:
                return None
            begin = legal
        self._follow(command, headers)
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        return begin + f"{command}\n{lines}\n".encode() + body.encode() + b"\0"

    def _reply(self, place: int) -> dict[str, str] | None:
        return {"destination": self._replies[place % len(self._replies)]} if self._replies else None

    def _acknowledged(
        self, command: str, place: int, headers: dict[str, Any]
    ) -> dict[str, str] | None:
        if not self._deliveries:
            return None
        chosen = self._deliveries[place % len(self._deliveries)]
        subscription = chosen.get("subscription", "")
        mode, transacted = self._subscriptions.get(subscription, ("client", False))
        if transacted and not self.transaction:
            return None
        if not transacted and not self._joins:
            headers.pop("transaction", None)
        settled = self._deliveries.index(chosen)
        self._deliveries = [
            each
            for index, each in enumerate(self._deliveries)
            if each is not chosen
            and not (
                mode == "client" and index < settled and each.get("subscription") == subscription
            )
        ]
        if self.version == "1.2":
            return {"id": chosen.get("ack", chosen["message-id"])}
        named = {"message-id": chosen["message-id"]}
        return named | ({"subscription": subscription} if self.version == "1.1" else {})

    def _legal(self, command: str, headers: dict[str, Any]) -> bytes | None:
        """Return what must be sent before the frame; None if it would be an error."""
        transaction, subscription = headers.get("transaction"), headers.get("id")
        if command == "BEGIN":
            return None if self.transaction else b""
        if command in ("COMMIT", "ABORT"):
            return b"" if transaction == self.transaction else None
        if command == "SUBSCRIBE" and subscription in self._subscriptions:
            return None
        if command == "UNSUBSCRIBE" and "durable-subscriber-name" not in headers:
            return b"" if subscription in self._subscriptions else None
        if transaction and transaction != self.transaction:
            if self.transaction:
                return None
            self.transaction = transaction
            return f"BEGIN\ntransaction:{transaction}\n\n\0".encode()
        return b""

    def _follow(self, command: str, headers: dict[str, Any]) -> None:
        subscription = headers.get("id", "")
        if command == "BEGIN":
            self.transaction = headers.get("transaction", "")
        elif command in ("COMMIT", "ABORT"):
            self.transaction = ""
        elif command == "SUBSCRIBE":
            mode = headers.get("ack", "auto")
            self._subscriptions[subscription] = (mode, "transaction" in headers)
        elif command == "UNSUBSCRIBE":
            self._subscriptions.pop(subscription, None)


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
        turn = tree.find("Turn", below="gateway/messaging")(self.clock)
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
        provider = tree.find("EmbeddedProvider", below="gateway/broker")(
            self.broker, _Everyone(principal), rules, self._octets
        )
        self.service = tree.find("StompService", below="gateway/stomp")(
            self.clock, turn, provider, self._configuration.stomp, random=self._octets
        )
        self._done(self.service.start())

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

            def add(self, fields: dict[str, object], octets: int = 0) -> None:
                write(fields)

        recording = tree.find("Recording")
        module = sys.modules[recording.__module__]
        module.Journal = Recorded  # type: ignore[attr-defined]
        recording(clock, self._configuration, self.broker)

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
            self._done(self.service.pause())
        elif not paused and self.service.state.name == "PAUSED":
            self._done(self.service.resume())

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
        """Let the reactor do what is due, and read and write its sockets, until all is quiet."""
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
        self._done(self.service.stop())
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


class _Everyone:
    """Lets everyone in, who belongs to the group of their own name and to ``admin`` if so called."""

    def __init__(self, principal: Any) -> None:
        self._principal = principal

    def authenticate(self, credentials: Any) -> Any:
        return succeed(self._principal(credentials.username, frozenset({credentials.username})))

    def readmit(self, principal: Any, address: str) -> Any:
        return principal


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
