"""A stateful model of the broker: whatever clients, disk and crashes do, nothing receipted is lost and nothing settled comes back."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from gateway.broker.access import DEFAULT_RULES, AccessRules
from gateway.broker.memory import Memory
from gateway.broker.provider import EmbeddedProvider
from gateway.broker.recovery import open_broker
from gateway.broker.settings import BrokerOptions
from gateway.broker.users import Principal
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import MessageRejected, MessagingError
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import Connection, Consumer, Credentials, Mode, Session, Subscription
from gateway.messaging.turn import Turn
from tests.gateway.broker.step_store import Disk, StepStore

QUEUE = Queue("q")
TOPIC = Topic("t")
#: Where a message can wait: the queue, and two durable subscriptions of the topic.
PLACES = ("queue", "one", "two")


class _Everyone:
    def authenticate(self, credentials: Credentials) -> Deferred[Principal]:
        return succeed(Principal(credentials.username, frozenset()))


@dataclass
class _Fate:
    """What is known of one message at one place."""

    body: str
    priority: int
    persistent: bool
    number: int
    #: Its sender was told that it is durable.
    receipted: bool = False
    #: Its sender was told that it was refused, or may yet be.
    refused: bool = False
    #: Someone acknowledged it; and was told that this is durable.
    settling: bool = False
    settled: bool = False


@dataclass
class _Reader:
    place: str
    session: Session
    consumer: Consumer
    outstanding: dict[int, str] = field(default_factory=dict)


class BrokerModel(RuleBasedStateMachine):
    """Drives one broker over a disk that commits when told."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.rules_ = AccessRules(Path(self.folder.name) / "rules")
        self.rules_.path.write_text(DEFAULT_RULES)
        self.rules_.load()
        self.disk = Disk()
        self.clock = Clock()
        self.clock.advance(1_000_000)
        self.sent = 0
        self.fates: dict[str, dict[str, _Fate]] = {place: {} for place in PLACES}

    def teardown(self) -> None:
        self.folder.cleanup()

    # --- plumbing

    def open(self) -> None:
        self.store = StepStore(self.disk)
        self.turn = Turn(self.clock)
        self.broker = open_broker(
            self.clock,
            self.turn,
            self.store,
            BrokerOptions(expiration_interval=0, reap_time=0),
            lambda error: None,
            memory=Memory(total=6000, share=3000, least=1500),
        )
        self.provider = EmbeddedProvider(self.broker, _Everyone(), self.rules_, os.urandom)
        self.readers: dict[str, _Reader] = {}
        self.transaction: list[tuple[str, _Fate]] = []
        self.transaction_acks: list[_Fate] = []
        self.sender = self.connect(None)
        self.sending = self.sender.session(Mode.CLIENT)
        self.transacted = self.sender.session(Mode.TRANSACTED)
        self.turns()

    def connect(self, client_id: str | None) -> Connection:
        made: list[Connection] = []
        self.provider.connect(Credentials("u", "p"), client_id, lambda error: None).addCallback(made.append)
        return made[0]

    def turns(self) -> None:
        """Let the reactor do what is due."""
        for _ in range(20):
            self.clock.advance(0)

    def steps(self, full: bool = False) -> None:
        while self.store.busy:
            self.store.step(full)
            self.turns()

    def read(self, place: str, credit: int) -> None:
        client_id = None if place == "queue" else place
        connection = self.connect(client_id)
        session = connection.session(Mode.CLIENT)
        spec = Subscription(QUEUE) if place == "queue" else Subscription(TOPIC, durable_name="d")

        def deliver(consumer: Consumer, first: int, messages: Any, attempts: Any, /) -> None:
            for number, message in enumerate(messages, first):
                fate = self.fates[place][message.text]
                assert not fate.settled, "an acknowledged message came back"
                assert message.text not in reader.outstanding.values(), "a message was delivered twice at one time"
                for other in reader.outstanding.values():
                    before = self.fates[place][other]
                    if before.priority == fate.priority and before.number > fate.number and not self.given_back:
                        raise AssertionError("order was not kept")
                reader.outstanding[number] = message.text

        consumer = session.consumer(spec, deliver, lambda error: None)
        reader = self.readers[place] = _Reader(place, session, consumer)
        self.given_back = False
        consumer.grant(credit)
        consumer.start()

    # --- rules

    @initialize()
    def begin(self) -> None:
        self.given_back = False
        self.open()
        for place in ("one", "two"):
            connection = self.connect(place)
            connection.session(Mode.CLIENT).consumer(
                Subscription(TOPIC, durable_name="d"), lambda *arguments: None, lambda error: None
            )
            connection.close()
        self.turns()
        self.steps()

    def _messages(self, destination: Destination, count: int, persistent: bool, priority: int) -> list[Message]:
        run = []
        for _ in range(count):
            self.sent += 1
            run.append(Message(Headers(destination, persistent=persistent, priority=priority), f"m{self.sent}".encode()))
        return run

    def _expect(self, destination: Destination, run: list[Message], persistent: bool, priority: int) -> list[_Fate]:
        fates = []
        for message in run:
            for place in PLACES if destination is TOPIC else ("queue",):
                if (place == "queue") == (destination is QUEUE):
                    number = int(message.text[1:])
                    fate = self.fates[place][message.text] = _Fate(message.text, priority, persistent, number)
                    fates.append(fate)
        return fates

    @rule(
        destination=st.sampled_from([QUEUE, TOPIC]),
        count=st.integers(1, 8),
        persistent=st.booleans(),
        priority=st.sampled_from([4, 4, 4, 9, 0]),
    )
    def send(self, destination: Destination, count: int, persistent: bool, priority: int) -> None:
        run = self._messages(destination, count, persistent, priority)
        fates = self._expect(destination, run, persistent, priority)
        if self.sending_is_lost():
            return
        try:
            self.sending.send(run)
        except MessageRejected:
            for fate in fates:
                fate.refused = True
            return

        def done(error: MessagingError | None) -> None:
            for fate in fates:
                fate.receipted = error is None
                fate.refused = error is not None

        self.sending.completion(done)
        assert not any(fate.receipted for fate in fates), "a receipt came from inside the call"

    def sending_is_lost(self) -> bool:
        try:
            self.sender.session(Mode.CLIENT).close()
        except MessagingError:
            return True
        return False

    @rule(count=st.integers(1, 4), destination=st.sampled_from([QUEUE, TOPIC]))
    def send_in_transaction(self, count: int, destination: Destination) -> None:
        run = self._messages(destination, count, True, 4)
        self.transacted.send(run)
        for message in run:
            for place in PLACES:
                if (place == "queue") == (destination is QUEUE):
                    self.transaction.append((place, _Fate(message.text, 4, True, 0)))

    @rule()
    def commit(self) -> None:
        fates = []
        for place, fate in self.transaction:
            # Its place in the order is that of the commit.
            self.sent += 1
            fate.number = self.sent
            self.fates[place][fate.body] = fate
            fates.append(fate)
        self.transaction = []
        acks, self.transaction_acks = self.transaction_acks, []
        for fate in acks:
            fate.settling = True

        def done(error: MessagingError | None) -> None:
            for fate in fates:
                fate.receipted = error is None
                fate.refused = error is not None
            for fate in acks:
                fate.settled = error is None

        self.transacted.commit(done)

    @rule()
    def roll_back(self) -> None:
        self.transaction = []
        if self.transaction_acks:
            self.given_back = True
        self.transaction_acks = []
        self.transacted.rollback(lambda error: None)

    @rule(place=st.sampled_from(PLACES), credit=st.integers(1, 30))
    def start_reader(self, place: str, credit: int) -> None:
        if place in self.readers:
            self.readers[place].consumer.grant(credit)
        else:
            self.read(place, credit)

    @rule(place=st.sampled_from(PLACES), upto=st.integers(0, 100))
    def acknowledge(self, place: str, upto: int) -> None:
        reader = self.readers.get(place)
        if reader is None or not reader.outstanding:
            return
        numbers = sorted(reader.outstanding)
        number = numbers[min(upto, len(numbers) - 1)]
        reader.consumer.acknowledge_through(number)
        fates = [self.fates[place][reader.outstanding.pop(one)] for one in numbers if one <= number]
        for fate in fates:
            fate.settling = True

        def done(error: MessagingError | None) -> None:
            assert error is None, "an acknowledgement is taken even when the disk is full"
            for fate in fates:
                fate.settled = True

        reader.session.completion(done)

    @rule(place=st.sampled_from(PLACES))
    def stop_reader(self, place: str) -> None:
        reader = self.readers.pop(place, None)
        if reader is not None:
            reader.session.close()
            connection: Any = reader.session
            connection.connection.close()

    @rule()
    def some_turns(self) -> None:
        self.turns()

    @precondition(lambda self: self.store.busy)
    @rule()
    def disk_commits(self) -> None:
        self.store.step()

    @precondition(lambda self: self.store.busy)
    @rule()
    def disk_is_full(self) -> None:
        """A batch with inserts does not fit; its senders hear of it, acknowledgements are tried again."""
        self.store.step(full=True)
        self.turns()
        if self.sending_is_lost():
            self.transaction, self.transaction_acks = [], []
            self.sender = self.connect(None)
            self.sending = self.sender.session(Mode.CLIENT)
            self.transacted = self.sender.session(Mode.TRANSACTED)

    @precondition(lambda self: self.store.busy)
    @rule()
    def disk_catches_up(self) -> None:
        self.turns()
        self.steps()

    @rule()
    def crash(self) -> None:
        """The process dies; what is read afterwards is all there is."""
        self.open()
        self.steps()
        for place in PLACES:
            seen: list[str] = []
            self.read(place, 10_000)
            reader = self.readers[place]
            self.turns()
            self.steps()
            seen = [reader.outstanding[number] for number in sorted(reader.outstanding)]
            expected = self.fates[place]
            for body, fate in expected.items():
                if fate.receipted and fate.persistent and not fate.settling and not fate.refused:
                    assert body in seen, f"{body} was receipted at {place} and is lost"
                if fate.settled:
                    assert body not in seen, f"{body} was acknowledged at {place} and is back"
                if not fate.persistent:
                    assert body not in seen, f"{body} was not persistent and outlived the process"
            assert len(set(seen)) == len(seen)
            ranks = [(-expected[body].priority, expected[body].number) for body in seen]
            assert ranks == sorted(ranks), "order was not kept over the crash"
            self.fates[place] = {body: expected[body] for body in seen}
            for body in seen:
                expected[body].receipted = True
                expected[body].settling = False
            self.stop_reader(place)
            self.turns()
            self.steps()

    # --- what always holds

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "broker"):
            return
        used = 0
        for physical in self.broker.destinations.values():
            parts = [physical] if physical.destination.kind.name == "QUEUE" else physical.subscriptions  # type: ignore[union-attr]
            for part in parts:
                backlog: Any = part.backlog  # type: ignore[union-attr]
                used += backlog.window_octets
                here = list(backlog.waiting_in_memory())
                stored = backlog.stored_only()
                assert backlog.waiting == len(here) + len(stored)
                assert backlog.window_octets == sum(message.size + 512 for message in here)
                outstanding = sum(consumer.outstanding for consumer in part.consumers)  # type: ignore[union-attr]
                if part is physical:
                    assert physical.count >= backlog.waiting + outstanding
        assert self.broker.memory.used == used


BrokerModel.TestCase.settings = settings(stateful_step_count=60, deadline=None)
TestBroker = BrokerModel.TestCase
