"""THE MODEL: links move messages between two resource managers, everything crashes, and each
message is there once in the end.

What is real: the coordinator, its pure steps, its log, its recovery. What is made for this:
resource managers that keep X/Open's rules, lines to them that are slow, break, deliver late and
twice, and a disk that keeps what was synced and any part of what was not. Hypothesis says what
happens next: it starts links, kills processes, cuts lines, fills the disk, and moves the world on,
one arrival at a time.

Each resource manager has another beside it that answers by its name for a while, as where an
address is moved, or a client library fails over to a broker with a store of its own.

Judged are the resource managers, not what the coordinator thinks: of each global transaction all
branches have been committed or none, and none twice; who was told of a commit has one; who was told
of a roll-back has none; and when everyone is back and recovered, nothing is in doubt, locked or
listed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
from twisted.internet.defer import Deferred, DeferredList
from twisted.python.failure import Failure

from bridge.xa.coordinator import Transaction
from bridge.xa.errors import LogFailed, RolledBack
from gateway.messaging.errors import MessagingError, OutcomeUnknown
from tests.bridge.xa.coordinator_process import MemoryStorage, Process
from tests.bridge.xa.resource_managers import XA_HEURCOM, ResourceManager, Session

#: Links by the resource managers of their sources and targets.
LINKS = [(0, 1), (1, 0), (0, 0), (0, 1)]
MESSAGES = 12
#: Steps of the world in one rule, at most.
_MOMENTS = 120


@dataclass(eq=False)
class Link:
    """A link: moves one batch at a time, and has its resource managers recovered whenever it has
    connected anew.
    """

    number: int
    ends: tuple[ResourceManager, ResourceManager]
    sessions: list[Session] = field(default_factory=list)
    running: Deferred[None] | None = None
    transactions: int = 0


@dataclass(eq=False)
class Moved:
    """A transaction, as the link knows it."""

    ends: tuple[ResourceManager, ResourceManager]
    gtrid: bytes
    outcome: str = "?"
    #: What of it each resource manager was to do.
    worked: set[str] = field(default_factory=set)


class TransactionsModel(RuleBasedStateMachine):
    """The world."""

    #: What happened in all examples together: requests that arrived, answers, crashes, and so on.
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.managers = [
            ResourceManager("rm:0", range(MESSAGES)),
            ResourceManager("rm:1", range(MESSAGES, 2 * MESSAGES)),
        ]
        #: Those that may answer by their names.
        self.others = [ResourceManager("rm:0"), ResourceManager("rm:1")]
        #: To whom a new line leads, by the place of the resource manager.
        self.leading = list(self.managers)
        self.everyone = self.managers + self.others
        self.transactions: dict[str, Moved] = {}
        self.broken: list[Failure] = []
        #: Kept, so that none of their coroutines is closed before the end.
        self.killed: list[tuple[Process, list[Session]]] = []
        self.lingering: list[Session] = []
        self.process = Process(MemoryStorage(), size=2000)
        self.links = [
            Link(number, (self.managers[a], self.managers[b]))
            for number, (a, b) in enumerate(LINKS)
        ]

    # what can happen

    @rule(moments=st.binary(min_size=_MOMENTS // 2, max_size=_MOMENTS))
    def time_passes(self, moments: bytes) -> None:
        """Something arrives somewhere, or a link that is idle goes to work, as often as there are
        octets.
        """
        for moment in moments:
            idle = [
                partial(
                    self.work, link, moment % 3 + (moment > 20), moment % 2 == 0, moment % 5 < 3
                )
                for link in self.links
                if link.running is None
            ]
            possible = self.possible() + idle
            if not possible:
                return
            possible[moment % len(possible)]()
            self.count()

    @rule(moments=st.binary(min_size=_MOMENTS // 2, max_size=_MOMENTS))
    def more_time_passes(self, moments: bytes) -> None:
        self.time_passes(moments)

    @rule(which=st.integers(0, 3))
    def a_resource_manager_crashes(self, which: int) -> None:
        manager = self.everyone[which]
        manager.crash()
        for session in self.sessions():
            if session.manager is manager:
                session.snap(0)
                session.hang_up()
        self.count()

    @rule(which=st.integers(0, 1), lines=st.booleans())
    def an_address_leads_elsewhere(self, which: int, lines: bool) -> None:
        """Or back again.

        :param lines: lines that there are are led there, too, with all that is on them, as client
            libraries do; else they break.
        """
        before = self.leading[which]
        now = self.others[which] if before is self.managers[which] else self.managers[which]
        self.leading[which] = now
        for session in self.sessions():
            if session.manager is before:
                if lines:
                    before.disconnect(session)
                    session.manager = now
                else:
                    self.snap(session, 0, told=True)
        self.count()

    @rule(which=st.integers(0, 3), up=st.booleans())
    def a_resource_manager_goes_or_comes(self, which: int, up: bool) -> None:
        if not up:
            self.a_resource_manager_crashes(which)
        self.everyone[which].up = up
        self.count()

    @rule(which=st.integers(0, 50), arriving=st.integers(0, 3))
    def a_line_breaks(self, which: int, arriving: int) -> None:
        """What is on it may arrive later, behind what is sent by other lines."""
        sessions = self.sessions()
        if sessions:
            self.snap(sessions[which % len(sessions)], arriving, told=True)
        self.count()

    @rule(which=st.integers(0, 50))
    def a_request_is_sent_twice(self, which: int) -> None:
        """By a client library that connects again on its own; the second answer is the one that
        comes. Of messages libraries take care.
        """
        waiting = [
            one
            for one in self.sessions()
            if one.requests and one.requests[0].name not in ("take", "put")
        ]
        if waiting:
            waiting[which % len(waiting)].arrive(times=2)
        self.count()

    @rule(kept=st.integers(0, 2000), arriving=st.integers(0, 3))
    def the_gateway_crashes(self, kept: int, arriving: int) -> None:
        self.killed.append((self.process, self.sessions()))
        for session in self.sessions():
            self.snap(session, arriving, told=False)
        for link in self.links:
            link.running = None
            link.sessions = []
        self.check_code()
        storage = self.process.storage.crash(kept)
        self.process = Process(storage, size=2000)
        self.count()

    @rule(room=st.sampled_from([0, 1, 60, 250, 900]))
    def the_disk_is_full(self, room: int) -> None:
        self.process.storage.room = room
        self.count()

    @rule()
    def the_disk_has_room(self) -> None:
        self.process.storage.room = None
        self.count()

    @rule()
    def a_sync_fails(self) -> None:
        self.process.storage.sync_fails = True
        self.count()

    @precondition(lambda self: any(manager.prepared for manager in self.everyone))
    @rule(which=st.integers(0, 50))
    def a_resource_manager_commits_on_its_own(self, which: int) -> None:
        """Commit a decided branch: the one heuristic that does no harm.

        Others cannot end well, and are tested apart.
        """
        decided = {
            entry.gtrid
            for entry in self.process.file.entries()
            if entry.decided and self.process.decisions.failed is None
        }
        if self.process.file.failed is None and not self.process.jobs.waiting:
            found = [
                (one, xid) for one in self.everyone for xid in one.prepared if xid.gtrid in decided
            ]
            durable = (
                self.process.storage.data is not None
                and len(self.process.storage.data) == self.process.storage.synced
            )
            if found and durable:
                manager, xid = found[which % len(found)]
                manager.decide(xid, XA_HEURCOM)
        self.count()

    @rule()
    def the_clock_goes(self) -> None:
        self.process.reactor.advance(1)
        self.count()

    # how it happens

    def count(self) -> None:
        type(self).steps += 1

    def sessions(self) -> list[Session]:
        return [session for link in self.links for session in link.sessions if not session.broken]

    def possible(self) -> list[Callable[[], object]]:
        """Everything that could happen next by itself."""
        found: list[Callable[[], object]] = []
        for session in self.sessions():
            if session.requests:
                found.append(session.arrive)
            if session.answers:
                found.append(session.answer)
        found += [
            session.arrive if session.requests else partial(self.hang_up, session)
            for session in self.lingering
        ]
        if self.process.jobs.waiting:
            found.append(self.process.jobs.run)
        if self.process.reactor.called:
            found.append(self.process.reactor.take)
        return found

    def snap(self, session: Session, arriving: int, told: bool) -> None:
        session.snap(arriving, told)
        self.lingering.append(session)

    def hang_up(self, session: Session) -> None:
        session.hang_up()
        self.lingering.remove(session)

    def work(self, link: Link, batch: int, together: bool, ahead: bool) -> None:
        if link.running is None:
            link.running = Deferred.fromCoroutine(self.move(link, batch, together, ahead))
            link.running.addBoth(self.worked, link, self.process)

    def worked(self, result: object, link: Link, process: Process) -> None:
        # A process that was killed does nothing more; but its coroutines are closed when Python
        # collects them.
        if process is self.process:
            link.running = None
            if isinstance(result, Failure):
                self.broken.append(result)

    async def move(self, link: Link, batch: int, together: bool, ahead: bool) -> None:
        """One batch, or two, of which the second is begun when the first is decided."""
        process = self.process
        try:
            await self.connect(process, link)
            first = process.coordinator.begin()
            over = Deferred.fromCoroutine(self.transact(first, None, link, batch, together))
            if ahead and await first.decided():
                second = process.coordinator.begin()
                await self.transact(second, first, link, batch, together)
            await over
        except MessagingError:
            return

    async def transact(
        self,
        transaction: Transaction,
        before: Transaction | None,
        link: Link,
        batch: int,
        together: bool,
    ) -> None:
        moved = self.transactions[transaction.id] = Moved(link.ends, transaction._run.gtrid)
        sessions = link.sessions
        try:
            await self.enlist(transaction, link.ends, sessions, together)
            for number in range(batch):
                message = await sessions[0].take()
                if message is None:
                    break
                moved.worked.add(link.ends[0].rm)
                put = sessions[1].put(message)
                moved.worked.add(link.ends[1].rm)
                if together and number == batch - 1:
                    # Where it fails the branch has gone, and cannot be prepared.
                    put.addErrback(_unheard)
                else:
                    await put
        except (MessagingError, IndexError):
            await transaction.rollback()
            moved.outcome = "rolled back"
            self.disconnect(link)
            return
        try:
            committed = await transaction.commit(after=before)
            moved.outcome = "committed"
            if committed.waiting:
                self.disconnect(link)
        except RolledBack:
            moved.outcome = "rolled back"
            self.disconnect(link)
        except OutcomeUnknown:
            moved.outcome = "unknown"
            self.disconnect(link)
        except LogFailed:
            moved.outcome = "in doubt"

    async def enlist(
        self,
        transaction: Transaction,
        ends: Sequence[ResourceManager],
        sessions: Sequence[Session],
        together: bool,
    ) -> None:
        """:param together: without waiting for one before the other, nor, where nobody joins, for
        any.
        """
        names = [("source", ends[0].rm), ("target", ends[1].rm)]
        if not together:
            for (ref_name, rm), session in zip(names, sessions, strict=True):
                await transaction.enlist(ref_name, rm, session)
            return
        asked = [
            Deferred.fromCoroutine(transaction.enlist(ref_name, rm, session))
            for (ref_name, rm), session in zip(names, sessions, strict=True)
        ]
        if ends[0] is not ends[1]:
            for each in asked:
                each.addErrback(_unheard)
            return
        for _, result in await DeferredList(asked, consumeErrors=True):
            if isinstance(result, Failure):
                result.raiseException()

    async def connect(self, process: Process, link: Link) -> None:
        """New sessions where there are none that work, and recovery before they are used."""
        if any(session.broken for session in link.sessions):
            self.disconnect(link)
        if not link.sessions:
            link.sessions = [
                Session(self.leading[self.managers.index(end)], at_once=False) for end in link.ends
            ]
            try:
                for ref_name, session in zip(("source", "target"), link.sessions, strict=True):
                    await process.coordinator.recover(ref_name, session.manager.rm, session)
            except MessagingError:
                self.disconnect(link)
                raise

    def disconnect(self, link: Link) -> None:
        sessions, link.sessions = link.sessions, []
        for session in sessions:
            if not session.broken:
                self.snap(session, 9, told=True)

    # how it is judged

    def check_code(self) -> None:
        assert self.process.failures() == []
        assert not self.broken, self.broken[0].getTraceback()

    def settle(self) -> None:
        """Everything on its way arrives."""
        for _ in range(5000):
            possible = self.possible()
            if not possible:
                break
            possible[0]()
        else:
            raise AssertionError("it goes on for ever")

    def recover(self) -> None:
        for link in self.links:
            link.running = None
            self.disconnect(link)
        self.settle()
        for manager in self.everyone:
            session = Session(manager)
            recovering = self.process.coordinator.recover("source", manager.rm, session)
            failures: list[Failure] = []
            recovering.addErrback(failures.append)
            self.settle()
            assert not failures, failures[0].getTraceback()

    def teardown(self) -> None:
        self.process.storage.room = None
        for manager in self.everyone:
            manager.up = True
        self.settle()
        if (
            self.process.decisions.failed is not None
            or self.process.file.failed is not None
            or self.process.storage.sync_fails
        ):
            self.the_gateway_crashes(0, 3)
        self.settle()
        self.recover()
        self.process.reactor.advance(1)
        self.settle()
        self.check_code()
        for manager in self.everyone:
            assert not manager.prepared
            assert not manager.active
            assert not manager.heuristics
        assert sorted(message for manager in self.everyone for message in manager.messages) == list(
            range(2 * MESSAGES)
        )
        assert self.process.coordinator.transactions() == []
        assert self.process.file.entries() == ()
        for id, moved in self.transactions.items():
            gtrid = moved.gtrid
            committed = {manager.rm for manager in self.everyone if manager.committed[gtrid]}
            for one, other in zip(self.managers, self.others, strict=True):
                assert one.committed[gtrid] + other.committed[gtrid] <= 1, id
            if moved.outcome == "committed":
                assert committed >= moved.worked, (id, moved)
            elif moved.outcome == "rolled back":
                assert not committed, (id, moved)
            else:
                assert not committed or committed >= moved.worked, (id, moved)


def _unheard(failure: Failure) -> None:
    """Of what nobody waits for."""
    if not isinstance(failure.value, MessagingError):
        failure.raiseException()


def _run(examples: int, steps: int) -> int:
    TransactionsModel.steps = 0
    run_state_machine_as_test(
        TransactionsModel,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        ),
    )
    return TransactionsModel.steps


@pytest.mark.parametrize(
    ("examples", "steps"),
    [
        (40, 3_000),
        pytest.param(120, 10_000, marks=pytest.mark.slow),
        pytest.param(3_300, 1_000_000, marks=pytest.mark.long),
    ],
)
def test_no_message_is_lost_or_doubled_or_locked(examples: int, steps: int) -> None:
    assert _run(examples=examples, steps=30) >= steps
