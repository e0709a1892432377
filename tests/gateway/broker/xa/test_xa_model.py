"""A stateful model of branches: whatever sessions, coordinators, disk and crashes do, nothing is
lost, doubled, or locked for ever.
"""

from __future__ import annotations

import tempfile
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
from twisted.internet.defer import Deferred
from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.python.failure import Failure

from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.operator.xa_administration import BranchAdministration
from gateway.broker.properties.settings import BrokerOptions
from gateway.messaging.destination import Destination, Queue, Topic
from gateway.messaging.errors import XAError
from gateway.messaging.provider import (
    Connection,
    Consumer,
    ConsumerSpec,
    Flags,
    Mode,
    Vote,
    XAResource,
    XASession,
    Xid,
)
from gateway.messaging.xa import xid_text
from tests.gateway.broker.administration import administration, outcome
from tests.gateway.broker.stepped_broker import Stepped, texts

A, B, T = Queue("a"), Queue("b"), Topic("t")
#: Where messages of each destination wait; the topic has one durable subscription.
PLACES: tuple[Destination, ...] = (A, B, T)
SESSIONS = 3


@dataclass(eq=False)
class _Fate:
    """A message at its place.

    ``where``: ``waiting``, ``out`` (with a consumer), ``acknowledged`` (in a branch, prepared or
    not), ``held`` (sent in one), ``gone``.
    """

    body: str
    place: Destination
    persistent: bool
    where: str


@dataclass(eq=False)
class _Reader:
    session: _Session
    place: Destination
    consumer: Consumer = field(init=False)
    outstanding: dict[int, _Fate] = field(default_factory=dict)

    def give_back(self) -> None:
        for fate in self.outstanding.values():
            fate.where = "waiting"
        self.outstanding.clear()


@dataclass(eq=False)
class _Session:
    connection: Connection
    session: XASession
    resource: XAResource
    readers: dict[Destination, _Reader] = field(default_factory=dict)
    current: _Branch | None = None
    closed: bool = False


@dataclass(eq=False)
class _Branch:
    """What is known of one.

    ``state``: ``active``, ``prepared``, ``heuristic``, ``over``. ``asked``: the call that is on its
    way.
    """

    xid: Xid
    state: str = "active"
    #: Sessions that took part; True associated, False suspended, None ended.
    sessions: dict[_Session, bool | None] = field(default_factory=dict)
    sends: list[_Fate] = field(default_factory=list)
    acknowledged: list[tuple[_Reader, _Fate]] = field(default_factory=list)
    failed: bool = False
    asked: str = ""
    #: What an administrator did.
    committed: bool = False

    @property
    def idle(self) -> bool:
        return (
            not self.asked
            and self.state == "active"
            and all(how is None for how in self.sessions.values())
        )


class BranchModel(RuleBasedStateMachine):
    """Drives sessions over a disk that commits when told."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Failure] = []
        globalLogPublisher.addObserver(cast("ILogObserver", self.observe))
        self.folder = tempfile.TemporaryDirectory()
        memory = Memory(total=20 * OVERHEAD, share=8 * OVERHEAD, least=2 * OVERHEAD)
        self.stepped = Stepped(
            Path(self.folder.name), BrokerOptions(reap_time=0, xa_timeout=0), memory
        )
        self.fates: dict[str, _Fate] = {}
        self.branches: list[_Branch] = []
        self.numbers = 0

    def observe(self, event: LogEvent) -> None:
        if "log_failure" in event:
            self.failures.append(event["log_failure"])

    # --- plumbing

    def open_sessions(self) -> None:
        self.sessions = [self.open_session(index) for index in range(SESSIONS)]
        self.stepped.run_until_idle()

    def open_session(self, index: int) -> _Session:
        connection = self.stepped.connect(f"client {index}")
        session = connection.xa_session()
        made = _Session(connection, session, session.resource())
        for place in (A, B) if index else PLACES:
            self.open_reader(made, place)
        return made

    def open_reader(self, session: _Session, place: Destination) -> None:
        reader = session.readers[place] = _Reader(session, place)

        def deliver(
            consumer: Consumer,
            first: int,
            messages: Sequence[Any],
            attempts: Sequence[int] | None,
            /,
        ) -> None:
            for number, message in zip(range(first, first + len(messages)), messages, strict=True):
                fate = self.fates[message.text]
                assert fate.place == place
                assert fate.where == "waiting", f"{fate.body} was delivered and is {fate.where}"
                fate.where = "out"
                reader.outstanding[number] = fate

        spec = ConsumerSpec(place, durable_name="d" if place == T else None)
        reader.consumer = session.session.consumer(spec, deliver, lambda error: None)
        reader.consumer.start()

    def idle_sessions(self, branch: _Branch) -> list[_Session]:
        return [
            each for each in branch.sessions if not each.closed and each.current in (None, branch)
        ]

    def over(self, branch: _Branch, committed: bool) -> None:
        """It has ended so."""
        for fate in branch.sends:
            fate.where = "waiting" if committed else "gone"
        for _, fate in branch.acknowledged:
            fate.where = "gone" if committed else "waiting"
        if not committed:
            prepared = branch.state == "prepared"
            readers = {reader for reader, _ in branch.acknowledged}
            for session in self.idle_sessions(branch):
                if not prepared or session.current is None:
                    for reader in session.readers.values():
                        if not prepared or reader in readers:
                            reader.give_back()
        branch.state, branch.asked = "over", ""
        if branch in self.branches:
            self.branches.remove(branch)

    def ask(self, branch: _Branch, what: str, asked: Deferred[Any]) -> None:
        branch.asked = what

        def told(result: object) -> None:
            if isinstance(result, Failure):
                error = result.value
                assert isinstance(error, XAError), error
                assert (what, error.code) in (("prepare", 100), ("at once", 100)), error
                branch.asked = ""
                self.over(branch, False)
            elif what == "prepare":
                branch.asked = ""
                if result is Vote.READ_ONLY:
                    assert not branch.sends
                    assert not branch.acknowledged
                    self.over(branch, True)
                else:
                    branch.state = "prepared"
            elif what.startswith("heuristic"):
                committed = what.endswith("commit")
                self.over(branch, committed)
                branch.state, branch.committed = "heuristic", committed
                branch.sends, branch.acknowledged = [], []
                self.branches.append(branch)
            elif what == "forget":
                branch.state, branch.asked = "over", ""
                self.branches.remove(branch)
            else:
                self.over(branch, what != "rollback")

        asked.addBoth(told)

    def recovered(self, resource: XAResource) -> set[Xid]:
        found: list[Xid] = []
        resource.recover().addCallback(found.extend)
        self.stepped.run_until_idle()
        return set(found)

    def has(self, state: str) -> bool:
        return any(
            each.state == state and not each.asked and (state != "active" or each.idle)
            for each in self.branches
        )

    def some(self, data: st.DataObject, state: str) -> _Branch | None:
        found = [
            each
            for each in self.branches
            if each.state == state and not each.asked and (state != "active" or each.idle)
        ]
        return data.draw(st.sampled_from(found)) if found else None

    # --- rules

    @initialize()
    def begin(self) -> None:
        for place in (A, B):
            self.stepped.broker.create(place)
        self.open_sessions()

    def make(self, place: Destination, count: int, persistent: bool, where: str) -> list[_Fate]:
        made = []
        for _ in range(count):
            self.numbers += 1
            fate = _Fate(f"m{self.numbers}", place, persistent, where)
            self.fates[fate.body] = fate
            made.append(fate)
        return made

    @rule(
        place=st.sampled_from(PLACES),
        count=st.integers(1, 6),
        persistent=st.sampled_from([True, True, False]),
    )
    def send_plainly(self, place: Destination, count: int, persistent: bool) -> None:
        fates = self.make(place, count, persistent, "waiting")
        session = self.stepped.session(Mode.CLIENT)
        session.send(texts(place, [fate.body for fate in fates], persistent=persistent))
        self.rest()

    @rule(index=st.integers(0, SESSIONS - 1))
    def start(self, index: int) -> None:
        session = self.sessions[index]
        if session.current is None:
            self.numbers += 1
            branch = _Branch(Xid(1, b"%d" % self.numbers, b"b"))
            outcome_now(session.resource.start(branch.xid, Flags.NOFLAGS))
            branch.sessions[session] = True
            session.current = branch
            self.branches.append(branch)

    @rule(index=st.integers(0, SESSIONS - 1), data=st.data())
    def join_or_resume(self, index: int, data: st.DataObject) -> None:
        session = self.sessions[index]
        found = [
            each
            for each in self.branches
            if each.state == "active" and not each.asked and not each.failed
        ]
        if session.current is None and found:
            branch = data.draw(st.sampled_from(found))
            flags = Flags.RESUME if branch.sessions.get(session) is False else Flags.JOIN
            outcome_now(session.resource.start(branch.xid, flags))
            branch.sessions[session] = True
            session.current = branch

    @rule(
        index=st.integers(0, SESSIONS - 1),
        flags=st.sampled_from([Flags.SUCCESS] * 4 + [Flags.SUSPEND, Flags.FAIL]),
    )
    def end(self, index: int, flags: Flags) -> None:
        session = self.sessions[index]
        branch = session.current
        if branch is None:
            return
        assert code_now(session.resource.prepare(branch.xid)) == -6
        assert code_now(session.resource.rollback(branch.xid)) == -6
        code = code_now(session.resource.end(branch.xid, flags))
        assert code == (100 if branch.failed else 0)
        branch.sessions[session] = False if flags == Flags.SUSPEND and not branch.failed else None
        session.current = None
        branch.failed = branch.failed or flags == Flags.FAIL

    @rule(
        index=st.integers(0, SESSIONS - 1),
        place=st.sampled_from(PLACES),
        count=st.integers(1, 4),
        persistent=st.sampled_from([True, True, True, False]),
    )
    def send(self, index: int, place: Destination, count: int, persistent: bool) -> None:
        session = self.sessions[index]
        branch = session.current
        if branch is not None and not branch.failed:
            fates = self.make(place, count, persistent, "held")
            session.session.send(texts(place, [fate.body for fate in fates], persistent=persistent))
            branch.sends += fates

    @rule(
        index=st.integers(0, SESSIONS - 1), place=st.sampled_from(PLACES), credit=st.integers(1, 5)
    )
    def receive(self, index: int, place: Destination, credit: int) -> None:
        reader = self.sessions[index].readers.get(place)
        if reader is not None:
            reader.consumer.grant(credit)
            self.stepped.run_reactor()

    @rule(index=st.integers(0, SESSIONS - 1), place=st.sampled_from(PLACES), data=st.data())
    def acknowledge(self, index: int, place: Destination, data: st.DataObject) -> None:
        session = self.sessions[index]
        reader, branch = session.readers.get(place), session.current
        if reader is None or branch is None or branch.failed or not reader.outstanding:
            return
        through = data.draw(st.sampled_from(sorted(reader.outstanding)))
        reader.consumer.acknowledge_through(through)
        for number in [number for number in reader.outstanding if number <= through]:
            fate = reader.outstanding.pop(number)
            fate.where = "acknowledged"
            branch.acknowledged.append((reader, fate))

    @rule(
        index=st.integers(0, SESSIONS - 1),
        source=st.sampled_from(PLACES),
        credit=st.integers(0, 5),
        to=st.sampled_from(PLACES),
        count=st.integers(0, 4),
        persistent=st.sampled_from([True, True, True, False]),
        data=st.data(),
        then=st.sampled_from(["", "prepare", "prepare", "prepare and settle", "at once"]),
    )
    def a_whole_branch(
        self,
        index: int,
        source: Destination,
        credit: int,
        to: Destination,
        count: int,
        persistent: bool,
        data: st.DataObject,
        then: str,
    ) -> None:
        """What a link does."""
        session = self.sessions[index]
        if session.current is not None:
            self.end(index, Flags.SUCCESS)
        self.start(index)
        branch = session.current
        assert branch is not None
        if credit:
            self.receive(index, source, credit)
            self.acknowledge(index, source, data)
        if count:
            self.send(index, to, count, persistent)
        self.end(index, Flags.SUCCESS)
        if then.startswith("prepare"):
            self.ask(branch, "prepare", session.resource.prepare(branch.xid))
        elif then:
            self.ask(branch, then, session.resource.commit(branch.xid, True))
        if then.endswith("settle"):
            self.rest()
            assert branch.state in ("prepared", "over")

    @precondition(lambda self: self.has("active"))
    @rule(
        data=st.data(),
        by=st.integers(0, SESSIONS - 1),
        how=st.sampled_from(["prepare"] * 3 + ["at once", "rollback"]),
    )
    def end_of_an_active_one(self, data: st.DataObject, by: int, how: str) -> None:
        branch = self.some(data, "active")
        if branch is None:
            return
        resource = self.sessions[by].resource
        assert code_now(resource.commit(branch.xid, False)) == -6
        if how == "rollback":
            # It is rolled back at once, and says so at the end of the turn.
            resource.rollback(branch.xid).addErrback(lambda failure: self.failures.append(failure))
            self.over(branch, False)
        elif branch.failed:
            ended: Deferred[Any] = (
                resource.prepare(branch.xid)
                if how == "prepare"
                else resource.commit(branch.xid, True)
            )
            assert code_now(ended) == 100
            self.over(branch, False)
        else:
            self.ask(
                branch,
                how,
                resource.prepare(branch.xid)
                if how == "prepare"
                else resource.commit(branch.xid, True),
            )

    @precondition(lambda self: self.has("prepared"))
    @rule(
        data=st.data(),
        by=st.integers(0, SESSIONS - 1),
        commit=st.booleans(),
        administrator=st.sampled_from([False, False, True]),
    )
    def end_of_a_prepared_one(
        self, data: st.DataObject, by: int, commit: bool, administrator: bool
    ) -> None:
        branch = self.some(data, "prepared")
        if branch is not None and administrator:
            admin, text = BranchAdministration(self.stepped.provider), xid_text(branch.xid)
            how = "commit" if commit else "rollback"
            self.ask(
                branch, f"heuristic {how}", admin.commit(text) if commit else admin.rollback(text)
            )
        elif branch is not None:
            resource = self.sessions[by].resource
            assert code_now(resource.commit(branch.xid, True)) == -6
            assert code_now(resource.start(branch.xid, Flags.NOFLAGS)) in (-6, -8)
            asked = resource.commit(branch.xid, False) if commit else resource.rollback(branch.xid)
            self.ask(branch, "commit" if commit else "rollback", asked)

    @precondition(lambda self: self.has("heuristic"))
    @rule(data=st.data(), by=st.integers(0, SESSIONS - 1))
    def forget(self, data: st.DataObject, by: int) -> None:
        branch = self.some(data, "heuristic")
        if branch is not None:
            resource = self.sessions[by].resource
            told = 7 if branch.committed else 6
            assert code_now(resource.commit(branch.xid, False)) == told
            assert code_now(resource.rollback(branch.xid)) == told
            self.ask(branch, "forget", resource.forget(branch.xid))

    @rule(index=st.integers(0, SESSIONS - 1))
    def close(self, index: int) -> None:
        session = self.sessions[index]
        self.closed(session)
        session.connection.close()
        self.stepped.run_reactor()
        self.sessions[index] = self.open_session(index)

    def closed(self, session: _Session) -> None:
        for branch in [
            each
            for each in self.branches
            if each.state == "active" and not each.asked and session in each.sessions
        ]:
            branch.sessions[session] = None
            if session.current is branch:
                session.current = None
            sends, acknowledged = branch.sends, branch.acknowledged
            self.over(branch, False)
            assert sends is branch.sends
            assert acknowledged is branch.acknowledged
            branch.sends, branch.acknowledged = [], []
            if any(how is not None for how in branch.sessions.values()):
                branch.state, branch.failed = "active", True
                self.branches.append(branch)
        for reader in session.readers.values():
            reader.give_back()
        session.closed = True

    @precondition(lambda self: hasattr(self, "sessions") and self.stepped.store.busy)
    @rule(full=st.sampled_from([False, False, True]))
    def step(self, full: bool) -> None:
        self.stepped.store.step(full)
        self.stepped.run_reactor()

    def rest(self) -> None:
        """Everything that was asked for is done; the disk has room."""
        self.stepped.run_until_idle()
        self.stepped.store.make_room()
        self.stepped.run_until_idle()

    @rule()
    def room(self) -> None:
        self.stepped.store.make_room()
        self.stepped.run_reactor()

    @rule()
    def run_until_idle(self) -> None:
        self.rest()
        assert not [branch for branch in self.branches if branch.asked], "a call was not answered"
        recovered = self.recovered(self.sessions[0].resource)
        assert recovered == {
            branch.xid for branch in self.branches if branch.state in ("prepared", "heuristic")
        }
        for place in PLACES:
            physical = self.stepped.broker.find(place)
            if physical is not None:
                here = [
                    fate
                    for fate in self.fates.values()
                    if fate.place == place and fate.where in ("waiting", "out", "acknowledged")
                ]
                assert physical.count == len(here)
                held = [
                    fate
                    for branch in self.branches
                    if branch.state == "prepared"
                    for fate in branch.sends
                    if fate.place == place
                ]
                assert physical.prepared == physical.coming == len(held)

    @precondition(lambda self: hasattr(self, "sessions") and self.branches)
    @rule()
    def crash(self) -> None:
        """The process dies; what was told is so, what was asked happened as a whole or not at
        all.
        """
        asked, self.branches = self.branches, []
        self.stepped.restart()
        for session in self.sessions:
            session.closed = True
        for fate in self.fates.values():
            if not fate.persistent:
                fate.where = "gone"
            elif fate.where == "out":
                fate.where = "waiting"
        recovered = self.recovered(self.stepped.connect().xa_session().resource())
        seen = self.look()
        for branch in asked:
            branch.sessions.clear()
            branch.sends = [fate for fate in branch.sends if fate.persistent]
            branch.acknowledged = [
                (reader, fate) for reader, fate in branch.acknowledged if fate.persistent
            ]
            self.after_crash(branch, branch.xid in recovered, seen)
        assert recovered == {branch.xid for branch in self.branches}
        expected = {fate.body for fate in self.fates.values() if fate.where == "waiting"}
        assert seen == expected, (seen - expected, expected - seen)
        self.open_sessions()

    def after_crash(self, branch: _Branch, recovered: bool, seen: set[str]) -> None:
        if recovered:
            if branch.asked == "prepare":
                branch.state = "prepared"
            assert branch.state in ("prepared", "heuristic"), (
                "a branch is prepared that nobody has prepared"
            )
            if branch.asked.startswith("heuristic") and self.decided(branch):
                committed = branch.asked.endswith("commit")
                self.over(branch, committed)
                branch.state, branch.committed = "heuristic", committed
                branch.sends, branch.acknowledged = [], []
            branch.asked = ""
            self.branches.append(branch)
        elif branch.state == "prepared":
            assert branch.asked in ("commit", "rollback"), "a prepared branch is lost"
            self.over(branch, branch.asked == "commit")
        elif branch.state == "heuristic":
            assert branch.asked == "forget"
        elif branch.asked == "at once":
            self.over(branch, self.happened(branch, seen))
        else:
            self.over(branch, False)

    def happened(self, branch: _Branch, seen: set[str]) -> bool:
        """Whether its commit in one phase is what the disk has; either all of it is, or nothing."""
        sent = {fate.body for fate in branch.sends}
        taken = {fate.body for _, fate in branch.acknowledged}
        if sent <= seen and not taken & seen:
            return True
        assert not sent & seen, "a branch is half committed"
        assert taken <= seen, "a branch is half committed"
        return False

    def decided(self, branch: _Branch) -> bool:
        """Whether the disk has what an administrator has decided; :meth:`crash` looks whether that
        is so.
        """
        shown = {
            each.xid: each.state for each in BranchAdministration(self.stepped.provider).branches()
        }
        return shown[xid_text(branch.xid)] != "PREPARED"

    def look(self) -> set[str]:
        """What a consumer of each place is given; it is given back.

        In the order of acceptance, each once.
        """
        seen: set[str] = set()
        connection = self.stepped.connect("client 0")
        for place in PLACES:
            session = connection.session(Mode.CLIENT)
            inbox = self.stepped.consume(
                session, place, credit=10_000, durable_name="d" if place == T else None
            )
            self.stepped.run_until_idle()
            seqs = [message.seq for message in inbox.messages]
            assert seqs == sorted(set(seqs))
            assert not seen.intersection(inbox.texts)
            seen.update(inbox.texts)
            session.close()
        connection.close()
        self.stepped.run_until_idle()
        return seen

    @invariant()
    def nothing_failed(self) -> None:
        if self.failures:
            self.failures[0].raiseException()

    @invariant()
    def open_work_counts(self) -> None:
        if hasattr(self, "sessions"):
            broker = self.stepped.broker
            held = [
                session.transaction.octets
                for connection in self.stepped.provider.connections
                for session in connection.sessions
            ]
            assert broker.memory.transactions == sum(held) + sum(
                branch.octets for branch in broker.branches._branches.values()
            )

    def teardown(self) -> None:
        """Once everyone is back, everything ends, and nothing is left."""
        try:
            if hasattr(self, "sessions"):
                self.stepped.run_until_idle()
                self.crash()
                resource = self.sessions[0].resource
                for branch in list(self.branches):
                    asked = (
                        resource.forget(branch.xid)
                        if branch.state == "heuristic"
                        else resource.rollback(branch.xid)
                    )
                    outcome(self.stepped, asked)
                    if branch.state != "heuristic":
                        self.over(branch, False)
                for session in self.sessions:
                    session.connection.close()
                expected = {
                    fate.body for fate in self.fates.values() if fate.where in ("waiting", "out")
                }
                assert self.look() == expected
                admin = administration(self.stepped)
                outcome(self.stepped, admin.purge("queue", "a"))
                outcome(self.stepped, admin.purge("queue", "b"))
                outcome(self.stepped, admin.purge("topic", "t"))
                assert self.stepped.empty
                assert not self.stepped.disk.branches
                assert not self.stepped.broker.memory.transactions
                assert not self.stepped.broker.memory.unacknowledged
        finally:
            globalLogPublisher.removeObserver(cast("ILogObserver", self.observe))
            self.folder.cleanup()


def outcome_now(asked: Deferred[Any]) -> Any:
    """What a call that needs no disk says."""
    results: list[Any] = []
    asked.addBoth(results.append)
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    return result


def code_now(asked: Deferred[Any]) -> int:
    """The code of a call that needs no disk; 0 when all is well."""
    try:
        outcome_now(asked)
    except XAError as error:
        return error.code
    return 0


def test_branches_are_as_the_model_has_them() -> None:
    run_state_machine_as_test(
        BranchModel,
        settings=settings(
            max_examples=2 * settings().max_examples, stateful_step_count=60, deadline=None
        ),
    )
