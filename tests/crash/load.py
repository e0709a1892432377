"""A load of clients that know what they were promised, so that after a crash every message can be
accounted for.

Owns the clients of one *epoch*, the time between two starts of a gateway, and what each was told.
Each client runs on a thread of its own until its connection is gone, and reads even then whatever
still lies in its socket: a RECEIPT counts once it is there.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from tests.crash.client import PATIENCE, Client, Frame, Gone, encode

#: Who sent it, and the how manyeth of that producer it is.
Id = tuple[str, int]

DURABLE: Final = {"client-id": "crash"}
TOPIC: Final = "/topic/crash.durable"
#: Messages are moved between these.
MOVED_FROM: Final = "/queue/crash.in"
MOVED_TO: Final = "/queue/crash.out"

#: Frames of one run, written together.
_RUN: Final = 10


@dataclass
class Place:
    """A queue, or a durable subscription, in one epoch.

    :ivar offered: what may be there. :ivar promised: what got a RECEIPT, or came in a transaction
        that did.
    :ivar taken: what may be gone. :ivar gone: what was acknowledged with a RECEIPT.
    """

    name: str
    offered: set[Id] = field(default_factory=set)
    promised: set[Id] = field(default_factory=set)
    taken: set[Id] = field(default_factory=set)
    gone: set[Id] = field(default_factory=set)

    @property
    def wanted(self) -> set[Id]:
        """What must be there after a restart."""
        return self.promised - self.taken


@dataclass
class Group:
    """A transaction.

    :ivar members: the places and ids it sends to.
    :ivar promised: its COMMIT got a RECEIPT.
    """

    members: list[tuple[str, Id]]
    promised: bool = False


class Load:
    """One epoch.

    :param port: the gateway's.
    :param epoch: in every body; each epoch has its own.
    :param seed: of everything that varies.
    :param elsewhere: the messages are at another broker, which hands out what came later before
        what is given back. It outlives the gateway, so none are sent that would go with it.
    :param plain: without transactions and durable subscriptions, which not every broker has.
    """

    def __init__(
        self, port: int, epoch: int, seed: int, elsewhere: bool = False, plain: bool = False
    ) -> None:
        self.elsewhere = elsewhere
        self.plain = plain
        #: Messages may have been sent twice.
        self.repeats = False
        self.port = port
        self.epoch = epoch
        self.random = random.Random(seed)
        self.places: dict[str, Place] = {}
        self.groups: list[Group] = []
        self.moved: Place
        #: What went wrong in clients: the test fails if there is anything.
        self.problems: list[str] = []
        #: ERROR frames that came; a gateway that stops sends them.
        self.errors: list[Frame] = []
        #: Set once the gateway is dead.
        self.over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._receipts = 0
        self._counted = threading.Condition()

    def place(self, name: str) -> Place:
        return self.places.setdefault(name, Place(name))

    def body(self, id: Id) -> bytes:
        """A body that says which message it is, of a length that varies."""
        return f"{self.epoch} {id[0]} {id[1]} ".encode().ljust(
            self.random.choice((40, 200, 1500, 5000)), b"."
        )

    def start(self) -> None:
        made: list[Actor] = [
            Producer(self, "each", "/queue/crash.each", 1),
            Producer(self, "twentieth", "/queue/crash.twentieth", 20),
            Producer(self, "to-auto", "/queue/crash.auto", 5),
            Producer(self, "to-client", "/queue/crash.client", 5),
            Producer(self, "to-client-too", "/queue/crash.client", 1),
            Producer(self, "to-individual", "/queue/crash.individual", 5),
            Producer(self, "to-refusing", "/queue/crash.refusing", 5),
            Producer(self, "to-paused", "/queue/crash.paused", 20),
            Consumer(self, "/queue/crash.auto", "auto"),
            Consumer(self, "/queue/crash.client", "client"),
            Leaver(self, "/queue/crash.client"),
            Consumer(self, "/queue/crash.individual", "client-individual"),
            Refuser(self, "/queue/crash.refusing"),
            Paused(self, "/queue/crash.paused"),
        ]
        if not self.plain:
            made += [
                Producer(self, "to-mover", MOVED_FROM, 5),
                Producer(self, "to-topic", TOPIC, 5),
                Transactions(self, "transactions"),
                Mover(self, MOVED_FROM, MOVED_TO),
                Consumer(self, TOPIC, "client", durable=True),
            ]
        if not self.elsewhere:
            made.append(Producer(self, "volatile", "/queue/crash.volatile", 5, persistent=False))
        for actor in made:
            thread = threading.Thread(target=actor.run, daemon=True)
            self._threads.append(thread)
            thread.start()

    def counted(self) -> None:
        with self._counted:
            self._receipts += 1
            self._counted.notify_all()

    def wait_for_receipts(self, count: int) -> None:
        """Wait until so many RECEIPTs have come to all clients together."""
        with self._counted:
            come = self._counted.wait_for(
                lambda: self._receipts >= count or self.problems, PATIENCE
            )
        assert not self.problems, self.problems
        assert come, f"only {self._receipts} of {count} receipts came"

    def join(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a client still waits for the gateway that is dead"
        assert not self.problems, self.problems

    def problem(self, text: str) -> None:
        with self._counted:
            self.problems.append(text)
            self._counted.notify_all()


class Actor:
    """A client on its thread, known by what its places and groups record."""

    headers: dict[str, str] = {}  # noqa: RUF012
    receive_buffer: int | None = None

    def __init__(self, load: Load) -> None:
        self.load = load
        self.client = Client(load.port, headers=self.headers, receive_buffer=self.receive_buffer)
        self.random = random.Random(load.random.random())
        self._asked: dict[str, Callable[[], None]] = {}
        self._receipts = 0

    def run(self) -> None:
        try:
            with self.client:
                try:
                    self.work()
                except Gone:
                    for frame in self.client.rest():
                        # What it answers goes nowhere any more; that it has taken the frame is
                        # recorded before.
                        with suppress(Gone):
                            self.take(frame)
        except Exception as error:  # noqa: BLE001
            self.load.problem(f"{self}: {type(error).__name__}: {error}")

    def work(self) -> None:
        while True:
            self.take(self.client.frame())

    def asking(
        self, command: str, headers: dict[str, str], done: Callable[[], None], body: bytes = b""
    ) -> bytes:
        self._receipts += 1
        receipt = str(self._receipts)
        self._asked[receipt] = done
        return encode(command, {**headers, "receipt": receipt}, body)

    def until_answered(self) -> None:
        while self._asked:
            self.take(self.client.frame())

    def take(self, frame: Frame) -> None:
        if frame.command == "RECEIPT":
            self._asked.pop(frame.headers["receipt-id"])()
            self.load.counted()
        elif frame.command == "MESSAGE":
            epoch, producer, number = frame.body.split(b" ")[:3]
            if int(epoch) != self.load.epoch:
                self.load.problem(
                    f"{self}: a message of epoch {int(epoch)} came in epoch {self.load.epoch}: {frame.headers}"
                )
            self.message(frame, (producer.decode(), int(number)))
        else:
            self.load.errors.append(frame)

    def message(self, frame: Frame, id: Id) -> None:
        raise AssertionError(f"{self} has no subscription")

    def __str__(self) -> str:
        return type(self).__name__


class Producer(Actor):
    """Sends runs of persistent messages, every so manyeth with a receipt, and waits for the
    receipts of a run.
    """

    def __init__(
        self, load: Load, name: str, destination: str, every: int, *, persistent: bool = True
    ) -> None:
        super().__init__(load)
        self._name = name
        self._destination = destination
        self._every = every
        self._persistent = persistent
        self._place = load.place(destination)

    def work(self) -> None:
        number = 0
        persistent = "true" if self._persistent else "false"
        while True:
            octets = []
            run: list[Id] = []
            for count in range(1, max(_RUN, self._every) + 1):
                number += 1
                id = (self._name, number)
                run.append(id)
                if self._persistent:
                    self._place.offered.add(id)
                headers = {"destination": self._destination, "persistent": persistent}
                body = self.load.body(id)
                if count % self._every:
                    octets.append(encode("SEND", headers, body))
                else:
                    octets.append(self.asking("SEND", headers, self._promised(run), body))
                    run = []
            self.client.write(b"".join(octets))
            self.until_answered()

    def _promised(self, run: list[Id]) -> Callable[[], None]:
        def promised() -> None:
            if self._persistent:
                self._place.promised.update(run)

        return promised


class Transactions(Actor):
    """Sends to two queues in transactions, and aborts every third."""

    PLACES = ("/queue/crash.tx-a", "/queue/crash.tx-b")

    def __init__(self, load: Load, name: str) -> None:
        super().__init__(load)
        self._name = name
        for place in self.PLACES:
            load.place(place)

    def work(self) -> None:
        number = 0
        for count in range(1, 1_000_000_000):
            transaction = f"t{count}"
            octets = [encode("BEGIN", {"transaction": transaction})]
            members: list[tuple[str, Id]] = []
            for _ in range(self.random.randrange(1, 8)):
                number += 1
                place = self.random.choice(self.PLACES)
                members.append((place, (self._name, number)))
                headers = {"destination": place, "persistent": "true", "transaction": transaction}
                octets.append(encode("SEND", headers, self.load.body((self._name, number))))
            group = Group(members)
            if count % 3:
                for place, id in members:
                    self.load.place(place).offered.add(id)
                self.load.groups.append(group)
                octets.append(
                    self.asking("COMMIT", {"transaction": transaction}, self._committed(group))
                )
            else:
                octets.append(self.asking("ABORT", {"transaction": transaction}, _nothing))
            self.client.write(b"".join(octets))
            self.until_answered()

    def _committed(self, group: Group) -> Callable[[], None]:
        def committed() -> None:
            group.promised = True
            for place, id in group.members:
                self.load.place(place).promised.add(id)

        return committed


class Consumer(Actor):
    """Takes messages and acknowledges them, with receipts, as its mode says; in order, but for
    those that come again.
    """

    def __init__(self, load: Load, destination: str, ack: str, *, durable: bool = False) -> None:
        if durable:
            self.headers = DURABLE
        super().__init__(load)
        self._destination = destination
        self._ack = ack
        self._place = load.place(destination)
        self._last: dict[str, int] = {}
        self._unacknowledged: list[tuple[str, Id]] = []
        subscribe = {"destination": destination, "id": "s", "ack": ack, **self.subscribing()}
        if durable:
            subscribe["durable-subscriber-name"] = "crash"
        self.client.write(self.asking("SUBSCRIBE", subscribe, _nothing))
        self.until_answered()

    def subscribing(self) -> dict[str, str]:
        return {}

    def message(self, frame: Frame, id: Id) -> None:
        if frame.headers.get("redelivered") != "true":
            producer, number = id
            if not self.load.elsewhere and number <= self._last.get(producer, 0):
                self.load.problem(
                    f"{self._destination}: {id} came after number {self._last[producer]}"
                )
            self._last[producer] = number
        if self._ack == "auto":
            self._place.taken.add(id)
            return
        self._unacknowledged.append((frame.headers["ack"], id))
        if len(self._unacknowledged) >= 5:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledge what has been taken: all by the last, or one by one in any order."""
        taken, self._unacknowledged = self._unacknowledged, []
        ids = [id for _, id in taken]
        self._place.taken.update(ids)
        if self._ack == "client":
            self.client.write(self.asking("ACK", {"id": taken[-1][0]}, self._gone(ids)))
        else:
            self.random.shuffle(taken)
            self.client.write(
                b"".join(self.asking("ACK", {"id": ack}, self._gone([id])) for ack, id in taken)
            )

    def _gone(self, ids: Iterable[Id]) -> Callable[[], None]:
        return lambda: self._place.gone.update(ids)


class Refuser(Consumer):
    """Refuses each message once, and acknowledges it when it comes again."""

    def __init__(self, load: Load, destination: str) -> None:
        self._seen: set[Id] = set()
        super().__init__(load, destination, "client-individual")

    def subscribing(self) -> dict[str, str]:
        return {"activemq.initialRedeliveryDelay": "1", "activemq.maximumRedeliveries": "1000"}

    def message(self, frame: Frame, id: Id) -> None:
        if id in self._seen:
            self._unacknowledged.append((frame.headers["ack"], id))
            self.acknowledge()
        else:
            self._seen.add(id)
            self.client.write(encode("NACK", {"id": frame.headers["ack"]}))


class Leaver(Consumer):
    """Takes a few messages and goes without a word of acknowledgement, again and again."""

    def __init__(self, load: Load, destination: str) -> None:
        super().__init__(load, destination, "client")
        self._left = 7

    def subscribing(self) -> dict[str, str]:
        return {"prefetch-count": "7"}

    def message(self, frame: Frame, id: Id) -> None:
        self._left -= 1

    def work(self) -> None:
        while True:
            while self._left > 0:
                self.take(self.client.frame())
            self._left = 7
            self.client.write(encode("UNSUBSCRIBE", {"id": "s"}))
            subscribe = {
                "destination": self._destination,
                "id": "s",
                "ack": "client",
                **self.subscribing(),
            }
            self.client.write(self.asking("SUBSCRIBE", subscribe, _nothing))
            self.until_answered()


class Paused(Consumer):
    """Subscribes and never reads, until the end; then everything it finds in its socket is
    unacknowledged.
    """

    receive_buffer = 8192

    def __init__(self, load: Load, destination: str) -> None:
        super().__init__(load, destination, "client")

    def message(self, frame: Frame, id: Id) -> None:
        pass

    def work(self) -> None:
        # Not to be told by the socket: what the kernel still has for it stands before the end. That
        # may be many waits of the test away.
        assert self.load.over.wait(10 * PATIENCE), "the test never said that the gateway has ended"
        raise Gone


class Mover(Actor):
    """Consumes from one queue and sends to another in one transaction."""

    def __init__(self, load: Load, source: str, target: str) -> None:
        super().__init__(load)
        self._source = load.place(source)
        self._target = load.place(target)
        self._received: list[tuple[str, Id, bytes]] = []

    def message(self, frame: Frame, id: Id) -> None:
        self._received.append((frame.headers["ack"], id, frame.body))

    def work(self) -> None:
        subscribe = {
            "destination": self._source.name,
            "id": "s",
            "ack": "client",
            "transaction": "t1",
            "prefetch-count": "20",
        }
        self.client.write(encode("BEGIN", {"transaction": "t1"}) + encode("SUBSCRIBE", subscribe))
        for count in range(1, 1_000_000_000):
            while not self._received:
                self.take(self.client.frame())
            transaction = f"t{count}"
            received, self._received = self._received, []
            ids = [id for _, id, _ in received]
            octets = [
                encode(
                    "SEND",
                    {
                        "destination": self._target.name,
                        "persistent": "true",
                        "transaction": transaction,
                    },
                    body,
                )
                for _, _, body in received
            ]
            octets.append(encode("ACK", {"id": received[-1][0], "transaction": transaction}))
            if count % 4:
                self._source.taken.update(ids)
                self._target.offered.update(ids)
                octets.append(self.asking("COMMIT", {"transaction": transaction}, self._moved(ids)))
            else:
                octets.append(self.asking("ABORT", {"transaction": transaction}, _nothing))
            self.client.write(b"".join(octets))
            self.until_answered()
            if not count % 4:
                self._received = []  # they come again
            self.client.write(encode("BEGIN", {"transaction": f"t{count + 1}"}))

    def _moved(self, ids: list[Id]) -> Callable[[], None]:
        def moved() -> None:
            self._source.gone.update(ids)
            self._target.promised.update(ids)

        return moved


def _nothing() -> None:
    pass
