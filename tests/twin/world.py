"""The world around one gateway: its record, its disk, its sockets."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

#: What a batch counts for its own bounds.
_COUNTS: Final = ("octets", "operations")


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
        #: What the operator and the coordinator were answered.
        self.answers: list[str] = []
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
            "answers": self.answers,
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
        #: Bytes of messages that one batch may insert.
        self.largest = sys.maxsize
        #: A gateway listens to one of the two: what a full disk does has changed.
        self.on_draining: Any = None
        self.on_full: Any = None
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

    def measure(self) -> int:
        return self.largest

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
            if self.on_full is not None:
                self.drain(True)
            answer(self._interface.StoreFull("the disk is full"))
        else:
            self._disk.apply(what)
            answer(None)

    def drain(self, draining: bool) -> None:
        """Say that the disk is full, or that it is no longer."""
        if self.draining != draining:
            self.draining = draining
            for told in (self.on_draining, self.on_full):
                if told is not None:
                    told(draining)


class Transport:
    """A socket whose kernel takes all, at once or when the script says so."""

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
        """Have the kernel take what was written; tell whether there was any."""
        changed, self.unsent = self.unsent, False
        if changed and self.producer is not None:
            self.producer.resumeProducing()
        return changed
