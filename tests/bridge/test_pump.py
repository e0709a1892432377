"""The order of a batch's steps under failures of every kind: a model of both brokers, and faults at
any step.

The source gives out what is not acknowledged, from the first, whenever it is connected anew. The
target keeps what it takes. Both are lists here, and fail where Hypothesis says; brokers that fail
by themselves are in ``tests/faults``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from bridge.config.model import Bridge, ConnectionFactory, Link, QualityOfService, Source, Target
from bridge.config.model import Destination as Configured
from bridge.dead.chain import DeadMessage, NotBuried
from bridge.link.arrivals import Received
from bridge.link.balance import Balance
from bridge.link.delivery.acknowledge import Acknowledge
from bridge.link.delivery.poison import MOST
from bridge.link.errors import BatchRefused, Refused, SourceLost, TargetLost
from bridge.link.journal import NO_LINES
from bridge.link.pace import LinkPace
from bridge.link.pump import Buries, Pump
from bridge.link.status import BalanceTerms, LinkCounters
from bridge.link.transfer import LinkEnds, Transfer
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination, Kind, Queue
from gateway.messaging.errors import (
    InvalidDestination,
    MessagingError,
    ProviderUnavailable,
    TransactionTooLarge,
)
from gateway.messaging.message import Headers, Message, Unreadable
from tests.logged import recording

GONE = ProviderUnavailable("it is gone")
TARGET = Queue("target")


class World:
    """Both brokers, the dead message queue, and what goes wrong.

    :param faults: one for each call of :meth:`fault`, in order; 0 is none.
    :param refused: texts that the target does not take.
    :param indexed: whether it says which of a run it was.
    :param transacted: whether of a run of which it refuses one it takes none, and else those before
        it.
    :param late: whether both brokers have one store, which makes an acknowledgement durable with
        what is asked for next.
    """

    def __init__(
        self,
        count: int,
        faults: Sequence[int],
        refused: set[int],
        indexed: bool,
        transacted: bool,
        late: bool = False,
    ) -> None:
        self.late = late
        self._settling: Callable[[], object] | None = None
        self.waiting = list(range(count))
        self.arrived: list[int] = []
        self.dead: list[tuple[int, BridgeDeadReason]] = []
        self.sources = 0
        self._faults = list(faults)
        self._refused = refused
        self._indexed = indexed
        self._transacted = transacted

    def fault(self, kinds: int) -> int:
        """What goes wrong now: 0 for nothing, or 1 to ``kinds``."""
        return self._faults.pop(0) % (kinds + 1) if self._faults else 0

    # the store

    def later(self, settle: Callable[[], object]) -> None:
        assert self._settling is None, "more than one batch could be doubled"
        self._settling = settle

    def sync(self) -> None:
        settling, self._settling = self._settling, None
        if settling is not None:
            settling()

    # the target

    ready = True

    async def open(self) -> None:
        if self.fault(1):
            raise TargetLost(GONE, sent=False)

    async def send(self, messages: Sequence[Message]) -> None:
        self.sync()
        numbers = [int(message.text) for message in messages]
        fault = self.fault(3)
        if fault == 1:
            raise TargetLost(GONE, sent=False)
        bad = next((at for at, number in enumerate(numbers) if number in self._refused), None)
        if bad is not None:
            known = self._indexed or len(numbers) == 1
            if not known and not self._transacted:
                self.arrived += numbers[:bad]
            raise Refused(
                InvalidDestination(TARGET, "not this one"),
                bad if known else None,
                sent=not known and not self._transacted,
            )
        self.arrived += numbers
        if fault == 2:
            # It arrived, and nobody knows.
            raise TargetLost(GONE, sent=True)
        if fault == 3:
            del self.arrived[len(self.arrived) - len(numbers) :]
            raise TargetLost(GONE, sent=True)

    # the dead message queue

    async def bury(self, dead: DeadMessage) -> None:
        assert self._settling is None, "a batch could be doubled, and another be dead"
        fault = self.fault(2)
        if fault == 1:
            raise NotBuried(dead.message.message_id, [])
        self.dead.append((int(dead.message.text), dead.reason))
        if fault == 2:
            raise NotBuried(dead.message.message_id, [])


class Connected:
    """A source, as often as it is connected."""

    def __init__(self, world: World, size: int) -> None:
        self.failed: SourceLost | None = None
        self._world = world
        self._size = size
        self._given = 0
        world.sources += 1

    async def batch(self, _most: int) -> Sequence[Received]:
        if self._world.fault(1):
            self.failed = SourceLost(GONE)
        if self.failed is not None:
            raise self.failed
        given = self._world.waiting[self._given : self._given + self._size]
        if not given:
            self._world.sync()
            raise self.failed or Empty
        self._given += len(given)
        return [Received(number, message(number)) for number in given]

    def start(self) -> None: ...

    def stop(self) -> None:
        self._world.sync()

    def interrupt(self) -> None:
        assert self.failed is not None, "nobody halts it here"

    def settle(self, batch: Sequence[Received]) -> Deferred[None]:
        if not self._world.late:
            return self._settled(batch)
        settled: Deferred[None] = Deferred()
        self._world.later(lambda: self._settled(batch).chainDeferred(settled))
        return settled

    def _settled(self, batch: Sequence[Received]) -> Deferred[None]:
        fault = self._world.fault(3)
        if fault == 1:
            # The connection is gone before it could be said.
            self.failed = SourceLost(GONE)
            return fail(self.failed)
        done = {received.number for received in batch}
        self._world.waiting = [number for number in self._world.waiting if number not in done]
        self._given -= len(batch)
        if fault == 2:
            # It was heard, and nobody knows.
            self.failed = SourceLost(GONE)
            return fail(self.failed)
        return succeed(None)


class Empty(Exception):
    """All messages are acknowledged, or given out."""


def message(number: int) -> Message:
    return Message(Headers(Queue("source")), str(number).encode(), message_id=f"ID-{number}")


def made(
    quality: QualityOfService,
    world: World,
    counters: LinkCounters,
    moved: Callable[..., None],
    graves: Buries,
) -> Pump:
    clock: Any = Clock()
    factory = ConnectionFactory("factory", lookup_name="x://y")
    link = Link(
        "link",
        Source(factory, Configured("source", "source", Kind.QUEUE)),
        Target(factory),
        quality_of_service=quality,
    )

    async def resolve(ref_name: str) -> Destination:
        raise AssertionError(ref_name)

    transfer = Transfer(link, Bridge("bridge"), "i", None, resolve, lambda: 0)
    target: Any = world
    delivery = Acknowledge(
        clock, link, target, world.late, None, lambda cause, count: None, lambda: None
    )
    return Pump(
        clock,
        "link",
        delivery,
        transfer,
        graves,
        counters,
        moved,
        recording()[0],
        NO_LINES,
        Balance("link", BalanceTerms(), lambda: None, recording()[0]),
        LinkPace(clock, None, link.batch_size),
    )


def moved_through(world: World, quality: QualityOfService, size: int) -> LinkCounters:
    """Move everything, trying again after each failure as a link does."""
    counters = LinkCounters()
    pump = made(quality, world, counters, lambda messages: None, world)
    source = Connected(world, size)
    for _ in range(10_000):
        error = failure_of(pump.run(source, LinkEnds(TARGET, "A", "B", False)))  # type: ignore[arg-type]
        if isinstance(error, Empty):
            terms = pump.balance.terms
            assert (terms.difference, terms.held, terms.in_doubt) == (terms.lost, 0, 0)
            assert not terms.lost or quality is QualityOfService.AT_MOST_ONCE
            return counters
        assert isinstance(error, MessagingError), error
        if source.failed is not None:
            source = Connected(world, size)
    raise AssertionError("it never ends")


def failure_of(running: Coroutine[Any, Any, None]) -> BaseException:
    """What it fails with, at once: nothing waits here."""
    failures: list[BaseException] = []

    def failed(failure: Failure) -> None:
        assert failure.value is not None
        failures.append(failure.value)

    Deferred.fromCoroutine(running).addErrback(failed)
    [error] = failures
    return error


WORLDS = st.tuples(
    st.integers(0, 25),
    st.integers(1, 8),
    st.lists(st.integers(0, 11), max_size=60),
    st.sets(st.integers(0, 24), max_size=4),
)


@given(WORLDS, st.booleans(), st.booleans(), st.booleans())
def test_whatever_fails_all_arrive_in_order_and_duplicates_are_counted(
    world: tuple[int, int, list[int], set[int]], indexed: bool, transacted: bool, late: bool
) -> None:
    count, size, faults, refused = world
    of = World(count, faults, refused, indexed, transacted, late)
    counters = moved_through(of, QualityOfService.DUPLICATES_OK, size)
    assert of.waiting == []
    good = [number for number in range(count) if number not in refused]
    first_times = list(dict.fromkeys(of.arrived))
    assert first_times == good
    assert {
        number for number, reason in of.dead if reason is BridgeDeadReason.SEND_FAILURE
    } == refused & set(range(count))
    assert {
        number for number, reason in of.dead if reason is not BridgeDeadReason.SEND_FAILURE
    } <= set(good)
    assert len(of.arrived) - len(good) <= counters.possible_duplicates


@given(WORLDS, st.booleans(), st.booleans())
def test_at_most_once_nothing_arrives_twice_and_what_is_missing_was_given_up(
    world: tuple[int, int, list[int], set[int]], indexed: bool, transacted: bool
) -> None:
    count, size, faults, refused = world
    of = World(count, faults, refused, indexed, transacted)
    moved_through(of, QualityOfService.AT_MOST_ONCE, size)
    assert (of.waiting, of.arrived) == ([], sorted(set(of.arrived)))
    if not faults:
        given_up = {number for number, _ in of.dead}
        assert set(of.arrived) | given_up == set(range(count))
        if transacted:
            assert given_up == refused & set(range(count))


@pytest.mark.parametrize("quality", [QualityOfService.DUPLICATES_OK, QualityOfService.AT_MOST_ONCE])
def test_without_failures_nothing_is_doubtful(quality: QualityOfService) -> None:
    of = World(20, [], {3, 7}, indexed=True, transacted=True)
    counters = moved_through(of, quality, 6)
    assert of.arrived == [number for number in range(20) if number not in (3, 7)]
    assert of.dead == [(3, BridgeDeadReason.SEND_FAILURE), (7, BridgeDeadReason.SEND_FAILURE)]
    assert (counters.received, counters.sent, counters.acknowledged, counters.refused) == (
        20,
        18,
        20,
        2,
    )
    assert (counters.batches, counters.possible_duplicates, of.sources) == (4, 0, 1)


@pytest.mark.parametrize("size", [1, 11])
def test_beside_a_batch_that_is_being_acknowledged_the_next_is_sent(size: int) -> None:
    of = World(30, [], set(), indexed=True, transacted=True, late=True)
    pump = made(QualityOfService.DUPLICATES_OK, of, LinkCounters(), lambda messages: None, of)
    running: Any = pump.run(Connected(of, size), LinkEnds(TARGET, "A", "B", False))  # type: ignore[arg-type]
    errors: list[BaseException] = []

    def failed(failure: Failure) -> None:
        assert failure.value is not None
        errors.append(failure.value)

    Deferred.fromCoroutine(running).addErrback(failed)
    assert len(of.arrived) == 30
    while not errors:
        of.sync()
    assert (of.arrived, of.waiting) == (list(range(30)), [])
    assert isinstance(errors[0], Empty)


def test_a_run_that_is_too_large_for_a_transaction_is_halved_and_nobody_dies() -> None:
    class Small(World):
        async def send(self, messages: Sequence[Message]) -> None:
            self.asked += 1
            if len(messages) > 10:
                raise Refused(TransactionTooLarge("maxNumMsgs", 10), 0, sent=False)
            await super().send(messages)

        asked = 0

    of = Small(600, [], set(), indexed=True, transacted=True)
    counters = moved_through(of, QualityOfService.DUPLICATES_OK, 300)
    assert of.arrived == list(range(600))
    assert (of.dead, counters.refused) == ([], 0)
    assert of.asked < 150


@pytest.mark.parametrize("indexed", [True, False])
def test_a_target_that_refuses_everything_is_asked_once_a_message(indexed: bool) -> None:
    class Asked(World):
        async def send(self, messages: Sequence[Message]) -> None:
            self.handed += len(messages)
            await super().send(messages)

        handed = 0

    of = Asked(1000, [], set(range(1000)), indexed, transacted=True)
    moved_through(of, QualityOfService.DUPLICATES_OK, 1000)
    assert [number for number, _ in of.dead] == list(range(1000))
    assert of.handed <= 1000 + 500


def test_one_that_is_refused_without_being_named_is_found_by_sending_one_by_one() -> None:
    of = World(6, [], {2}, indexed=False, transacted=False)
    counters = moved_through(of, QualityOfService.DUPLICATES_OK, 6)
    assert (of.arrived, of.dead) == ([0, 1, 0, 1, 3, 4, 5], [(2, BridgeDeadReason.SEND_FAILURE)])
    assert counters.possible_duplicates == 6


class Unread:
    """A source of messages that cannot be read, each alone; what is not settled is given out again.
    And the dead message queue.

    :param ids: of each.
    :param turns: whether another is given out first, when they are given out again.
    """

    failed = None

    def __init__(self, ids: Sequence[str], turns: bool) -> None:
        self.waiting = list(enumerate(ids))
        self.given: list[int] = []
        self.dead: list[bytes] = []
        self._turns = turns

    async def batch(self, _most: int) -> Sequence[Received]:
        if not self.waiting:
            raise Empty
        number, message_id = self.waiting[0]
        self.given.append(number)
        whole = Message(Headers(Queue("source")), b"", message_id=message_id)
        return [Received(number, Unreadable(whole, f"number {number} is damaged"))]

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def recover(self) -> None:
        if self._turns:
            self.waiting.append(self.waiting.pop(0))

    def settle(self, batch: Sequence[Received]) -> Deferred[None]:
        self.waiting = [one for one in self.waiting if one[0] != batch[0].number]
        return succeed(None)

    async def bury(self, dead: DeadMessage) -> None:
        self.dead.append(str(dead.exception).encode())


@pytest.mark.parametrize("quality", [QualityOfService.DUPLICATES_OK, QualityOfService.AT_MOST_ONCE])
@pytest.mark.parametrize(
    ("ids", "turns"), [(["a", "b", "c"], False), (["a", "b", "c"], True), (["", "", ""], False)]
)
def test_each_that_cannot_be_read_is_tried_as_often_as_another(
    quality: QualityOfService, ids: list[str], turns: bool
) -> None:
    of = Unread(ids, turns)
    target = World(0, [], set(), indexed=True, transacted=True)
    pump = made(quality, target, LinkCounters(), lambda messages: None, of)
    for _ in range(100):
        error = failure_of(pump.run(of, LinkEnds(TARGET, "A", "B", False)))  # type: ignore[arg-type]
        if isinstance(error, Empty):
            break
        assert isinstance(error, BatchRefused), error
    assert sorted(of.given) == [number for number in range(3) for _ in range(MOST)]
    assert len(of.dead) == 3
