"""A stateful model of the broker: whatever clients, disk and crashes do, nothing receipted is lost
and nothing settled comes back.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.python.failure import Failure

from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.subscription import TopicSubscription
from gateway.broker.core.waiting.backlog import Backlog
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.durability.commit import LINGER
from gateway.broker.properties.destination_properties import DestinationProperties, LimitBehavior
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.recovery import open_broker
from gateway.broker.security.access import DEFAULT_RULES, AccessRules
from gateway.broker.security.users import Principal
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.messaging.dead import DMQ, ORIGINAL_DESTINATION, DeadReason
from gateway.messaging.destination import Destination, Kind, Queue, Topic
from gateway.messaging.errors import MessageRejected, MessagingError
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import (
    Connection,
    Consumer,
    ConsumerSpec,
    Credentials,
    Mode,
    Session,
)
from gateway.reactor.turn import Turn
from tests.gateway.broker.step_store import Disk, StepStore

QUEUE, LIMITED, TOPIC, TEMPORARY = (
    Queue("q"),
    Queue("limited"),
    Topic("t.one"),
    Destination(Kind.QUEUE, "temporary", True),
)
#: Where messages of each destination wait. The topic has two durable subscriptions, one of them by
#: a pattern, and maybe one that is not durable.
PLACES = {
    QUEUE: ("queue",),
    LIMITED: ("limited",),
    TOPIC: ("one", "wild", "now"),
    TEMPORARY: ("temporary",),
}
LASTING = ("queue", "limited", "one", "wild")
DURABLE = {"one": TOPIC, "wild": Topic("t.*")}
MOST = 5
OPTIONS = BrokerOptions(
    expiration_interval=60,
    reap_time=0,
    destinations=(
        (
            LIMITED,
            DestinationProperties(max_num_msgs=MOST, limit_behavior=LimitBehavior.REMOVE_OLDEST),
        ),
    ),
)


class _Everyone:
    def authenticate(self, credentials: Credentials) -> Deferred[Principal]:
        return succeed(Principal(credentials.username, frozenset()))

    def readmit(self, principal: Principal, address: str) -> Principal:
        return principal


@dataclass(eq=False)
class _Fate:
    """What is known of one message at one place."""

    body: str
    place: str
    priority: int
    persistent: bool
    red: bool
    expires: int
    #: Its place in the order of arrivals.
    number: int = 0
    #: waiting, out (with a consumer), delayed, acknowledged (not yet durable, or in an open
    #: transaction), or gone.
    where: str = "waiting"
    #: When a delayed one waits again.
    due: float = 0.0
    #: Its sender was told that it is durable; or was told that it was refused.
    receipted: bool = False
    refused: bool = False
    #: An acknowledgement of it is on its way to the disk, so a crash may bring it back.
    settling: bool = False
    #: It was seen in the dead message queue, or may be there.
    dead: bool = False
    #: A reader gave it up, once: after a crash it is dead, or waits again.
    given_up: bool = False
    #: The moment at which it came back with a transaction that was undone.
    undone: object = None
    #: Bounds of how often it was tried and came back.
    fewest: int = 0
    most: int = 0

    def tried(self) -> None:
        """It came back from whoever had it."""
        self.fewest += 1
        self.most += 1
        if self.where != "gone":
            self.where = "waiting"


@dataclass(eq=False)
class _Reader:
    name: str
    place: str
    session: Session
    mode: Mode
    red: bool
    browser: bool
    consumer: Consumer = field(init=False)
    outstanding: dict[int, _Fate] = field(default_factory=dict)
    credit: int = 0


#: Readers by name: their place, mode, and whether they want red ones only.
READERS = {
    "queue": ("queue", Mode.CLIENT, False),
    "queue individually": ("queue", Mode.INDIVIDUAL, False),
    "queue red": ("queue", Mode.INDIVIDUAL, True),
    "queue transacted": ("queue", Mode.TRANSACTED, False),
    "queue browser": ("queue", Mode.CLIENT, False),
    "limited": ("limited", Mode.INDIVIDUAL, False),
    "temporary": ("temporary", Mode.CLIENT, False),
    "one": ("one", Mode.CLIENT, False),
    "wild": ("wild", Mode.INDIVIDUAL, False),
    "now": ("now", Mode.CLIENT, False),
    "dead": ("dead", Mode.INDIVIDUAL, False),
}


class BrokerModel(RuleBasedStateMachine):
    """Drives one broker over a disk that commits when told."""

    def __init__(self) -> None:
        super().__init__()
        #: What failed where exceptions are logged and the broker goes on.
        self.failures: list[Failure] = []
        #: Messages that the store should have had.
        self.missed: list[LogEvent] = []
        globalLogPublisher.addObserver(cast("ILogObserver", self.observe))
        self.folder = tempfile.TemporaryDirectory()
        self.access = AccessRules(Path(self.folder.name) / "rules")
        self.access.path.write_text(DEFAULT_RULES)
        self.access.load()
        self.disk = Disk()
        self.clock = Clock()
        self.clock.advance(1_000_000)
        self.sent = 0
        #: Pairs of which the first was delivered although the second, before it, was waiting, with
        #: how often that had been tried.
        self.overtaken: list[tuple[_Fate, _Fate, int]] = []
        self.fates: dict[str, dict[str, _Fate]] = {
            place: {} for places in PLACES.values() for place in places
        }

    def teardown(self) -> None:
        globalLogPublisher.removeObserver(cast("ILogObserver", self.observe))
        self.folder.cleanup()

    def observe(self, event: LogEvent) -> None:
        if "log_failure" in event:
            self.failures.append(event["log_failure"])
        elif "not in the store any more" in str(event.get("log_format")):
            self.missed.append(event)

    # --- plumbing

    def open(self) -> None:
        self.store = StepStore(self.disk)
        self.turn = Turn(self.clock)
        self.broker = open_broker(
            self.clock,
            self.turn,
            self.store,
            OPTIONS,
            lambda error: None,
            memory=Memory(total=9000, share=4000, least=1500),
        )
        self.provider = EmbeddedProvider(self.broker, _Everyone(), self.access, os.urandom)
        self.readers: dict[str, _Reader] = {}
        self.sends: list[tuple[Destination, list[Message]]] = []
        self.acks: list[tuple[_Fate, _Reader, int]] = []
        #: What is acknowledged in a transaction whose outcome is open, and where it was.
        self.held: dict[_Fate, object] = {}
        #: The same of one that is being committed. It has left when that is durable, of which its
        #: session is told later where another commit before it waits for room on the disk.
        self.committing: dict[_Fate, object] = {}
        #: Subscriptions that are over. What only the store has of theirs counts until it has been
        #: read.
        self.over: list[TopicSubscription] = []
        self.sender = self.connect(None)
        self.sending = self.sender.session(Mode.CLIENT)
        self.client = self.connect("me")
        self.transacted = self.client.session(Mode.TRANSACTED)
        self.temporary = self.client.temporary(Kind.QUEUE)
        self.run_reactor()

    def connect(self, client_id: str | None) -> Connection:
        made: list[Connection] = []
        self.provider.connect(Credentials("u", "p"), client_id, lambda error: None).addCallback(
            made.append
        )
        return made[0]

    def destination(self, destination: Destination) -> Destination:
        return self.temporary if destination is TEMPORARY else destination

    @property
    def now_ms(self) -> int:
        return int(self.clock.seconds() * 1000)

    def run_reactor(self) -> None:
        """Let the reactor do what is due, and hand off to the disk what is to go there."""
        for _ in range(15):
            self.clock.advance(0)
        self.clock.advance(LINGER)
        for _ in range(5):
            self.clock.advance(0)

    def steps(self) -> None:
        self.run_reactor()
        while self.store.busy:
            self.store.step()
            self.run_reactor()

    def read(self, name: str, credit: int) -> None:
        place, mode, red = READERS[name]
        session = self.transacted if mode is Mode.TRANSACTED else self.client.session(mode)
        reader = _Reader(name, place, session, mode, red, name.endswith("browser"))
        spec = {
            "queue": ConsumerSpec(QUEUE, "colour = 'red'" if red else None, browse=reader.browser),
            "limited": ConsumerSpec(LIMITED),
            "temporary": ConsumerSpec(self.temporary),
            "now": ConsumerSpec(TOPIC),
            "dead": ConsumerSpec(DMQ),
        }.get(place) or ConsumerSpec(DURABLE[place], durable_name=place)

        def deliver(
            consumer: Consumer,
            first: int,
            messages: Sequence[Message],
            attempts: Sequence[int] | None,
            /,
        ) -> None:
            self.delivered(reader, first, messages, attempts or [1] * len(messages))

        reader.consumer = session.consumer(spec, deliver, lambda error: None)
        self.readers[name] = reader
        self.grant(reader, credit)
        reader.consumer.start()

    def grant(self, reader: _Reader, credit: int) -> None:
        reader.credit += credit
        reader.consumer.grant(credit)

    def delivered(
        self, reader: _Reader, first: int, messages: Sequence[Message], attempts: Sequence[int]
    ) -> None:
        reader.credit -= len(messages)
        assert reader.credit >= 0, "more was delivered than was granted"
        seen = -1
        for number, message, attempt in zip(
            range(first, first + len(messages)), messages, attempts, strict=True
        ):
            if reader.place == "dead":
                fate = self.buried(message)
            else:
                fate = self.fates[reader.place][message.text]
                assert not fate.dead, "a dead message was delivered"
                assert not 0 < fate.expires <= self.now_ms, "an expired message was delivered"
            if reader.browser:
                assert fate.where in ("waiting", "acknowledged"), "a browser saw what was not there"
                continue
            if fate.where == "delayed" and fate.due <= self.clock.seconds():
                fate.where = "waiting"
            assert fate.where == "waiting", f"a message was delivered that was {fate.where}"
            assert not reader.red or fate.red, "a selector was passed over"
            if reader.place != "dead":
                assert fate.fewest < attempt <= fate.most + 1, "attempts were not counted"
                self.check_order(reader, fate)
            fate.where = "out"
            reader.outstanding[number] = fate
            assert number > seen
            seen = number

    def check_order(self, reader: _Reader, fate: _Fate) -> None:
        """What this reader wants and that came before is not waiting, or is given to another one in
        the same turn.
        """
        if fate.place == "limited" or fate.refused:
            return
        for other in self.fates[fate.place].values():
            before = (
                other.priority == fate.priority
                and other.number < fate.number
                and (other.red or not reader.red)
            )
            if (
                before
                and other.where == "waiting"
                and not (other.refused or other.dead or self.may_be_dead(other))
            ):
                self.overtaken.append((fate, other, other.most))

    def buried(self, message: Message) -> _Fate:
        """The fate of a message that is in the dead message queue."""
        origin = message.headers.properties[ORIGINAL_DESTINATION]
        place = {str(QUEUE): "queue", str(LIMITED): "limited"}.get(str(origin), "temporary")
        fate = self.fates[place][message.text]
        if not fate.dead:
            assert fate.given_up or self.may_be_dead(fate), "a message is dead for no reason"
            fate.dead = True
        return fate

    # --- rules: sending

    @initialize()
    def begin(self) -> None:
        self.open()
        for place, destination in DURABLE.items():
            session = self.client.session(Mode.CLIENT)
            session.consumer(
                ConsumerSpec(destination, durable_name=place),
                lambda *arguments: None,
                lambda error: None,
            )
            session.close()
        self.steps()

    def make(
        self,
        destination: Destination,
        count: int,
        persistent: bool,
        priority: int,
        red: bool,
        ttl: int,
    ) -> list[Message]:
        headers = Headers(
            self.destination(destination),
            persistent=persistent,
            priority=priority,
            properties={"colour": "red"} if red else {},
        )
        self.sent += count
        expires = self.now_ms + ttl if ttl else 0
        return [
            Message(headers, f"m{self.sent - index}".encode(), expires=expires)
            for index in reversed(range(count))
        ]

    def expect(self, destination: Destination, run: list[Message]) -> list[_Fate]:
        fates = []
        for message in run:
            headers = message.headers
            for place in PLACES[destination]:
                if place == "now" and "now" not in self.readers:
                    continue
                fates.append(
                    _Fate(
                        message.text,
                        place,
                        headers.priority,
                        headers.persistent and destination is not TEMPORARY and place != "now",
                        "colour" in headers.properties,
                        message.expires,
                    )
                )
        return fates

    def enter(self, fates: list[_Fate]) -> None:
        """From now on these are there, or will be."""
        for fate in fates:
            self.sent += 1
            fate.number = self.sent
            self.fates[fate.place][fate.body] = fate

    @rule(
        destination=st.sampled_from([QUEUE, QUEUE, TOPIC, LIMITED, TEMPORARY]),
        count=st.integers(1, 8),
        persistent=st.booleans(),
        priority=st.sampled_from([4, 4, 4, 9, 0]),
        red=st.booleans(),
        ttl=st.sampled_from([0, 0, 0, 0, 500, 90_000]),
    )
    def send(
        self,
        destination: Destination,
        count: int,
        persistent: bool,
        priority: int,
        red: bool,
        ttl: int,
    ) -> None:
        # The dead of other places could not be told apart.
        ttl = ttl if destination in (QUEUE, LIMITED) else 0
        run = self.make(destination, count, persistent, priority, red, ttl)
        fates = self.expect(destination, run)
        self.enter(fates)
        told: list[bool] = []

        def done(error: MessagingError | None) -> None:
            told.append(True)
            assert error is None, "a full disk delays"
            for fate in fates:
                fate.receipted = True

        try:
            self.sending.send(run)
        except MessageRejected:
            for fate in fates:
                fate.where = "gone"
            return
        self.sending.completion(done)
        assert not told, "a receipt came from inside the call"

    def may_be_dead(self, fate: _Fate) -> bool:
        """Whether it may be in the dead message queue although nobody has seen it there."""
        return fate.place == "limited" or 0 < fate.expires <= self.now_ms

    @rule(
        count=st.integers(1, 4),
        destination=st.sampled_from([QUEUE, TOPIC, LIMITED]),
        persistent=st.booleans(),
    )
    def send_in_transaction(self, count: int, destination: Destination, persistent: bool) -> None:
        run = self.make(destination, count, persistent, 4, False, 0)
        self.transacted.send(run)
        self.sends.append((destination, run))

    # --- rules: receiving

    @rule(name=st.sampled_from(sorted(READERS)), credit=st.integers(1, 30))
    def start_reader(self, name: str, credit: int) -> None:
        if name not in self.readers:
            self.read(name, credit)
        elif not self.readers[name].browser:
            self.grant(self.readers[name], credit)

    @rule(name=st.sampled_from(sorted(READERS)), upto=st.integers(0, 100), joined=st.booleans())
    def acknowledge(self, name: str, upto: int, joined: bool) -> None:
        reader = self.readers.get(name)
        if reader is None or not reader.outstanding:
            return
        numbers = sorted(reader.outstanding)
        number = numbers[min(upto, len(numbers) - 1)]
        taken = (
            [number]
            if reader.mode is Mode.INDIVIDUAL
            else [one for one in numbers if one <= number]
        )
        fates = [reader.outstanding.pop(one) for one in taken]
        within = self.transacted if joined else None
        if reader.mode is Mode.INDIVIDUAL:
            reader.consumer.acknowledge([number], within)
        else:
            assert reader.consumer.acknowledge_through(number, within) == len(fates)
        for fate in fates:
            fate.where = "acknowledged"
        if joined or reader.mode is Mode.TRANSACTED:
            self.acks += [(fate, reader, one) for fate, one in zip(fates, taken, strict=True)]
            consumer: Any = reader.consumer
            self.held |= dict.fromkeys(fates, consumer.source)
            return
        self.settled(reader, fates)

    def settled(self, reader: _Reader, fates: list[_Fate]) -> None:
        for fate in fates:
            fate.settling = True

        def done(error: MessagingError | None) -> None:
            assert error is None, "an acknowledgement is taken even when the disk is full"
            for fate in fates:
                fate.where = "gone"
                fate.settling = False

        reader.session.completion(done)

    @rule(
        name=st.sampled_from(sorted(READERS)),
        index=st.integers(0, 100),
        delay_ms=st.sampled_from([None, 0, 700]),
        dead=st.booleans(),
    )
    def reject(self, name: str, index: int, delay_ms: int | None, dead: bool) -> None:
        reader = self.readers.get(name)
        if reader is None or not reader.outstanding or reader.mode is Mode.TRANSACTED:
            return
        number = sorted(reader.outstanding)[index % len(reader.outstanding)]
        fate = reader.outstanding.pop(number)
        if reader.place not in ("queue", "limited", "dead"):
            dead, delay_ms = False, delay_ms or 0
        given_up = dead or (delay_ms is None and fate.most + 1 > 5)
        reader.consumer.reject([number], delay_ms, DeadReason.ERROR if dead else None)
        if given_up and reader.place == "dead":
            self.settled(reader, [fate])
            fate.where = "acknowledged"
        elif given_up:
            fate.dead = fate.given_up = True
            fate.where = "waiting"
            fate.fewest = 0
            fate.most += 1
        else:
            fate.tried()
            if delay_ms != 0:
                fate.where = "delayed"
                pause = delay_ms if delay_ms is not None else 1000 * 2 ** (fate.most - 1)
                # The clock's floats and the broker's milliseconds differ by one at most.
                fate.due = self.clock.seconds() + (pause - 1) / 1000
                self.clock.callLater((pause + 1) / 1000, self.due, fate)

    def due(self, fate: _Fate) -> None:
        if fate.where == "delayed":
            fate.where = "waiting"

    def come_back(self, reader: _Reader) -> None:
        """Everything outstanding with a reader waits again."""
        for fate in reader.outstanding.values():
            fate.tried()
        reader.outstanding.clear()

    @rule(name=st.sampled_from(sorted(READERS)))
    def recover(self, name: str) -> None:
        reader = self.readers.get(name)
        if reader is not None and reader.mode is not Mode.TRANSACTED:
            self.come_back(reader)
            reader.session.recover()

    @rule(name=st.sampled_from(sorted(READERS)))
    def stop_reader(self, name: str) -> None:
        reader = self.readers.pop(name, None)
        if reader is None:
            return
        if reader.place == "now":
            for fate in self.fates["now"].values():
                fate.where = "gone"
            subscription: Any = reader.consumer
            self.over.append(subscription.source)
        self.come_back(reader)
        if reader.mode is Mode.TRANSACTED:
            reader.consumer.close()
        else:
            reader.session.close()

    # --- rules: transactions

    @rule()
    def commit(self) -> None:
        sends, self.sends = self.sends, []
        acks, self.acks = self.acks, []
        # Their place in the order is that of the commit.
        fates = [fate for destination, run in sends for fate in self.expect(destination, run)]
        self.enter(fates)
        for fate, _, _ in acks:
            fate.settling = True
            self.committing[fate] = self.held.pop(fate)

        def done(error: MessagingError | None) -> None:
            for fate in fates:
                fate.receipted = error is None
                if error is not None:
                    fate.where = "gone"
            if error is not None:
                self.rolled_back(acks)
                return
            for fate, _, _ in acks:
                del self.committing[fate]
                fate.where = "gone"
                fate.settling = False

        self.transacted.commit(done)

    @rule()
    def roll_back(self) -> None:
        self.sends = []
        acks, self.acks = self.acks, []
        self.rolled_back(acks)
        self.transacted.rollback(lambda error: None)

    def rolled_back(self, acks: list[tuple[_Fate, _Reader, int]]) -> None:
        for fate, reader, number in acks:
            del (self.held if fate in self.held else self.committing)[fate]
            if fate.where == "gone":
                continue
            fate.settling = False
            if reader.mode is not Mode.TRANSACTED and self.readers.get(reader.name) is reader:
                fate.where = "out"
                reader.outstanding[number] = fate
            else:
                fate.tried()
        own = self.readers.get("queue transacted")
        if own is not None:
            for fate in own.outstanding.values():
                fate.undone = self.moment
            self.come_back(own)

    @property
    def moment(self) -> object:
        """What the store has done until now."""
        return self.broker, self.broker.commits.durable

    # --- rules: the world

    @rule(milliseconds=st.sampled_from([100, 1_000, 70_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)
        self.run_reactor()

    @rule()
    def some_turns(self) -> None:
        self.run_reactor()

    @rule()
    def queue_is_removed(self) -> None:
        physical = self.broker.find(QUEUE)
        if physical is None or physical.arrivals:
            return
        for name in [name for name, reader in self.readers.items() if reader.place == "queue"]:
            self.readers.pop(name)
        for fate in self.fates["queue"].values():
            if fate.where == "waiting" and self.may_be_dead(fate):
                fate.refused = True
            elif not fate.dead:
                fate.where = "gone"
                fate.settling = True
        self.broker.remove(physical)

    @precondition(lambda self: self.store.busy)
    @rule()
    def disk_commits(self) -> None:
        self.store.step()

    @rule(
        destination=st.sampled_from([QUEUE, QUEUE, TOPIC, LIMITED]),
        behind=st.sampled_from(["nothing", "a send", "a commit"]),
    )
    def disk_is_full(self, destination: Destination, behind: str) -> None:
        """A batch with inserts does not fit: it waits, and acknowledgements go ahead."""
        self.run_reactor()
        if behind == "a send":
            self.send(destination, 2, True, 4, False, 0)
        elif behind == "a commit":
            self.send_in_transaction(1, destination, True)
            self.commit()
        if self.store.busy:
            self.store.step(full=True)
            self.run_reactor()

    @rule()
    def disk_has_room(self) -> None:
        self.store.make_room()
        self.run_reactor()

    @rule()
    def everything_comes_to_rest(self) -> None:
        """When there is nothing to do any more, nobody waits for what is there, and the disk has
        what it should and nothing else.
        """
        self.steps()
        self.store.make_room()
        self.steps()
        self.check_nobody_is_stuck()
        assert not self.committing
        self.clock.advance(2)
        self.steps()
        assert not any(subscription.spilled for subscription in self.over), (
            "what nobody wants stays in the store"
        )
        self.over.clear()
        self.check_rows()

    def check_nobody_is_stuck(self) -> None:
        for reader in self.readers.values():
            if not reader.credit or reader.browser:
                continue
            source: Any = reader.consumer
            assert isinstance(source.source, (PhysicalQueue, TopicSubscription))
            if not reader.red:
                assert not source.source.dispatch.backlog.waiting, (
                    f"{reader.name} has credit, and messages wait"
                )
            for fate in self.fates["queue"].values() if reader.red else ():
                assert (
                    fate.where != "waiting"
                    or not fate.red
                    or fate.dead
                    or fate.refused
                    or 0 < fate.expires <= self.now_ms
                )

    def check_rows(self) -> None:
        places = self.fates["queue"] | self.fates["limited"]
        sure = {
            fate.body
            for fate in places.values()
            if fate.persistent and fate.where != "gone" and not fate.refused
        }
        possible = sure | {
            fate.body for fate in places.values() if fate.persistent and fate.refused
        }
        # Of a queue that was removed: until the transaction is over that has acknowledged it.
        possible |= {fate.body for fate in (*self.held, *self.committing)}
        owed: dict[str, set[str]] = {place: set() for place in DURABLE}
        for place in DURABLE:
            owed[place] = {
                fate.body
                for fate in self.fates[place].values()
                if fate.persistent and fate.where != "gone"
            }
        queued: list[str] = []
        topical: list[str] = []
        of_topic = {row.id for row in self.disk.destinations.values() if row.kind == Kind.TOPIC}
        for row in self.disk.rows.values():
            if row.persistent:
                (topical if row.destination in of_topic else queued).append(row.body.decode())
        assert len(queued) == len(set(queued)), "a message has two rows"
        assert sure <= set(queued) <= possible, "rows and messages differ"
        unrefused = {
            fate.body
            for place in DURABLE
            for fate in self.fates[place].values()
            if not fate.refused
        }
        assert {body for bodies in owed.values() for body in bodies} & unrefused == set(
            topical
        ) & unrefused
        assert len(topical) == len(set(topical))
        bodies = {row.seq: row.body.decode() for row in self.disk.rows.values()}
        names = {row.id: row.name for row in self.disk.subscriptions.values()}
        for place in DURABLE:
            here = {bodies[seq] for number, seq in self.disk.owed if names[number] == place}
            assert here & unrefused == owed[place] & unrefused
        assert {seq for _, seq in self.disk.redeliveries} <= self.disk.rows.keys(), (
            "a count of tries belongs to nothing"
        )
        counts = {
            (names.get(owner, "queue"), bodies[seq]): row.attempts
            for (owner, seq), row in self.disk.redeliveries.items()
        }
        for place in ("queue", *DURABLE):
            for fate in self.fates[place].values():
                counted = fate.persistent and not (fate.expires or fate.dead or fate.refused)
                if counted and fate.fewest and fate.where in ("waiting", "delayed"):
                    count = counts[place, fate.body]
                    assert fate.fewest <= count <= fate.most, "tries were not stored"
        # Each subscription that needs a row is counted once.
        holders = Counter([seq for _, seq in self.disk.owed])
        for subscription in self.broker.topic(TOPIC).subscriptions:
            spilled = list(subscription.spilled)
            holders.update(spilled)
        assert len(self.broker.rows.shared) == sum(count > 1 for count in holders.values())
        assert holders.keys() == {
            row.seq for row in self.disk.rows.values() if row.destination in of_topic
        }

    @rule()
    def crash(self) -> None:
        """The process dies; what is read afterwards is all there is."""
        # Nothing that the dead process had planned happens.
        clock = Clock()
        clock.advance(self.clock.seconds())
        self.clock = clock
        self.open()
        self.steps()
        # Pauses end, and some expire.
        self.clock.advance(61)
        self.steps()
        everyone = [fate for fates in self.fates.values() for fate in fates.values()]
        sure = {
            fate
            for fate in everyone
            if fate.receipted
            and fate.persistent
            and not fate.refused
            and not fate.settling
            and fate.where != "gone"
        }
        for fate in everyone:
            if not fate.persistent:
                fate.where = "gone"
            elif fate.where != "gone" or fate.settling:
                fate.where = "waiting"
                fate.dead = False
                fate.fewest = 0
        seen: list[_Fate] = []
        for name in (*LASTING, "dead"):
            self.read(name, 10_000)
            self.steps()
            outstanding = self.readers[name].outstanding
            seen += [outstanding[number] for number in sorted(outstanding)]
        assert len(seen) == len(set(seen)), "a message is in two places"
        for name in (*LASTING, "dead"):
            self.stop_reader(name)
        self.steps()
        for fate in seen:
            assert fate.persistent, f"{fate.body} was not persistent and outlived the process"
            fate.receipted, fate.settling, fate.refused = True, False, False
        assert not sure.difference(seen), "a message was receipted and is lost"
        for fate in set(everyone).difference(seen):
            fate.where, fate.settling = "gone", False

    # --- what always holds

    @invariant()
    def nothing_failed(self) -> None:
        if self.failures:
            self.failures[0].raiseException()
        assert not self.missed, "the store does not have what waits there"
        for fate, other, tries in self.overtaken:
            # Of one without a receipt the store may have undone what its sender is about to hear
            # of.
            still_there = (
                other.where == "waiting"
                and other.most == tries
                and other.receipted
                and not other.refused
            )
            assert not still_there, f"{fate.body} was delivered before {other.body} at {fate.place}"
        self.overtaken.clear()

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "broker"):
            return
        places: dict[int, Any] = {}
        for physical in self.broker.destinations.values():
            parts: list[Any] = (
                [physical] if isinstance(physical, PhysicalQueue) else list(physical.subscriptions)
            )
            places |= {id(part): part for part in parts}
            here = leaving = 0
            for part in parts:
                outstanding = sum(consumer.outstanding for consumer in part.dispatch.consumers)
                here += (
                    part.dispatch.backlog.waiting
                    + part.dispatch.backlog.pausing
                    + part.dispatch.being_buried
                    + outstanding
                )
                here += sum(source is part for source in self.held.values())
                leaving += sum(source is part for source in self.committing.values())
            if physical is self.broker.find(TOPIC):
                here += sum(len(subscription.spilled) for subscription in self.over)
                # An open transaction keeps what it has acknowledged, also when the subscription is
                # over.
                here += sum(source in self.over for source in self.held.values())
                leaving += sum(source in self.over for source in self.committing.values())
            assert here <= physical.count <= here + leaving
            assert physical.octets == 0 or physical.count
            assert physical.coming == sum(place.count for place in physical.arrivals)
        used = sum(place.dispatch.backlog.window_octets for place in places.values())
        # What was removed is given up slice by slice.
        assert self.broker.memory.used == used or (
            self.broker.memory.used > used and self.broker.schedule.waiting
        )
        for place in places.values():
            check_backlog(place.dispatch.backlog)
        sessions = [
            session for connection in self.provider.connections for session in connection.sessions
        ]
        consumers = [consumer for session in sessions for consumer in session._consumers]
        assert all(bool(consumer.unsettled) == bool(consumer.outstanding) for consumer in consumers)
        # What several subscribers have is in memory once.
        unsettled = [consumer.unsettled for consumer in consumers]
        assert max(unsettled, default=0) <= self.broker.memory.unacknowledged <= sum(unsettled)
        assert self.broker.memory.transactions == sum(
            session.transaction.octets for session in sessions
        )


def check_backlog(backlog: Backlog) -> None:
    here = list(backlog.waiting_in_memory())
    behind = backlog.stored_only()
    assert backlog.waiting == len(here) + len(behind)
    assert backlog.window_octets == sum(message.weight for message in here)
    assert backlog.behind == len(behind) == sum(lane.behind for _, lane in backlog.lanes())
    assert backlog.reading == sum(len(lane.reading) for _, lane in backlog.lanes())
    for _, lane in backlog.lanes():
        seqs = [message.seq for message in lane.in_memory()]
        assert seqs == sorted(set(seqs))
        assert len(lane.seqs_behind()) == lane.behind


def test_the_broker_is_as_the_model_has_it() -> None:
    run_state_machine_as_test(
        BrokerModel,
        settings=settings(
            max_examples=2 * settings().max_examples, stateful_step_count=80, deadline=None
        ),
    )
