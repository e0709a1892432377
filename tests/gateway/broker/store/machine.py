"""Random changes to a store against a model of dictionaries.

The store is opened again, also after a crash. Owns the changes and what must be found. Each kind of store says how it is made, and what a crash of
it is.
"""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from gateway.broker.store.interface import (
    Batch,
    BranchRow,
    DestinationRow,
    Recovered,
    RedeliveryRow,
    Row,
    Store,
    StoreError,
    SubscriptionRow,
)
from tests.gateway.broker.store.harness import Model, QueueReactor, contents, insert

small = st.integers(1, 4)
octets = st.one_of(st.binary(max_size=40), st.integers(3000, 9000).map(bytes))


class StoreMachine(RuleBasedStateMachine):
    """A store, the model of what it was told to hold, and what of that it has said to be
    durable.
    """

    #: Those that the class's kind of store may answer a batch with after a crash.
    lost: type[StoreError] | tuple[()] = ()

    def __init__(self) -> None:
        super().__init__()
        self.reactor = QueueReactor()
        self.next_seq = 1
        self.number = 1
        self.batch = Batch(1)
        #: What the store holds after each batch submitted since it was opened; the first is what it
        #: was opened with.
        self.states = [Model()]
        #: Batches of these that were reported.
        self.reported = 0
        #: Whether another store was opened over what this one has written.
        self.crashed = False
        #: Batches that had no answer before, and were not taken.
        self.failed = 0
        self.make_place()
        self.open()

    def make_place(self) -> None:
        """Make a place for the store."""
        raise NotImplementedError

    def made(self) -> Store:
        """Return a store on that place, which is not open."""
        raise NotImplementedError

    def lose(self) -> Recovered:
        """Have the store end as in a crash, and open another one."""
        raise NotImplementedError

    seqs = Bundle("seqs")

    def open(self) -> None:
        self.store = self.made()
        self.recovered = self.store.open()
        self.is_opened()

    def is_opened(self) -> None:
        # Not what the recovered store says: that depends on the moment of the crash, and a test
        # case must not.
        assert self.recovered.next_seq <= self.next_seq
        assert self.recovered.next_seq > max(self.states[0].rows, default=0)

    def found(self) -> dict[str, object]:
        return contents(self.reactor, self.store, self.recovered)

    @initialize(target=seqs)
    def first(self) -> int:
        return self.add(1, 1, b"first", b"")

    @rule(
        target=seqs,
        destination=small,
        persistent=st.sampled_from([1, 1, 1, 0]),
        head=octets,
        body=octets,
    )
    def insert(self, destination: int, persistent: int, head: bytes, body: bytes) -> int:
        return self.add(destination, persistent, head, body)

    def add(self, destination: int, persistent: int, head: bytes, body: bytes) -> int:
        seq = self.next_seq
        self.next_seq += 1
        insert(
            self.batch, Row(seq, destination, seq % 10, seq * 7, len(body), persistent, head, body)
        )
        self.reserve()
        return seq

    def reserve(self) -> None:
        """Have the batch say that its seqs are used.

        The batch with a row's message may have been lost in a crash. A broker never writes a row
        whose seq is not reserved, so here it is reserved with the row.
        """
        self.batch.reserved = self.next_seq

    @rule(seq=seqs)
    def delete(self, seq: int) -> None:
        if self.batch.inserts.pop(seq, None) is None:
            self.batch.deletes[seq] = None
        for key in [key for key in self.batch.redeliveries if key[1] == seq]:
            del self.batch.redeliveries[key]

    @rule(seq=seqs, subscription=small)
    def owe(self, seq: int, subscription: int) -> None:
        if seq not in self.batch.deletes and (subscription, seq) not in self.batch.settled:
            self.batch.owed[subscription, seq] = None
            self.reserve()

    @rule(seq=seqs, subscription=small)
    def settle(self, seq: int, subscription: int) -> None:
        self.batch.settled[subscription, seq] = None
        self.batch.redeliveries.pop((subscription, seq), None)

    @rule(seq=seqs, owner=st.integers(0, 4), attempts=small)
    def redeliver(self, seq: int, owner: int, attempts: int) -> None:
        if seq not in self.batch.deletes:
            self.batch.redeliveries[owner, seq] = RedeliveryRow(
                owner, seq, attempts, attempts * 1000
            )
            self.reserve()

    @rule(
        number=small,
        name=st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        kind=st.integers(0, 1),
    )
    def define(self, number: int, name: str, kind: int) -> None:
        self.batch.destinations[number] = DestinationRow(number, kind, name, f"name={name}")
        self.batch.subscriptions[number] = SubscriptionRow(number, number, name, name, name, kind)

    @rule(number=small)
    def remove(self, number: int) -> None:
        self.batch.removed_destinations[number] = None
        self.batch.removed_subscriptions[number] = None

    @rule(id=small, state=st.sampled_from([0, 6, 7]), work=octets)
    def prepare(self, id: int, state: int, work: bytes) -> None:
        # As in the broker, only the state and the work of a branch change.
        self.batch.branches[id] = BranchRow(
            id, id, b"global", b"branch" * id, state, 0, "guest", work
        )
        self.batch.removed_branches.pop(id, None)

    @rule(id=small)
    def remove_branch(self, id: int) -> None:
        self.batch.removed_branches[id] = None

    @rule()
    def submit(self) -> None:
        batch = self.batch
        self.number += 1
        self.batch = Batch(self.number)
        state = self.states[-1].copy()
        state.apply(batch)
        self.states.append(state)

        def committed(error: StoreError | None) -> None:
            if self.crashed and isinstance(error, self.lost):
                self.failed += 1
                return
            assert error is None
            assert not self.failed
            self.reported += 1
            assert expected == self.reported

        expected = len(self.states) - 1
        self.store.submit(batch, committed)

    @rule()
    def wait(self) -> None:
        self.reactor.until(lambda: self.reported == len(self.states) - 1)

    @rule(asked=st.lists(st.integers(1, 60), unique=True))
    def fetch(self, asked: list[int]) -> None:
        held = self.states[-1].rows
        assert self.reactor.fetch(self.store, asked) == [held[seq] for seq in asked if seq in held]

    @precondition(lambda self: len(self.states) > 1)
    @rule()
    def reopen(self) -> None:
        self.reactor.close(self.store)
        assert self.reported == len(self.states) - 1
        state = self.states[-1]
        self.states = [state]
        self.open()
        assert self.recovered.clean
        state.restart()
        assert self.found() == state.contents()
        self.begin_with(state)

    @precondition(lambda self: len(self.states) > 1)
    @rule()
    def crash(self) -> None:
        """Lose the store at any moment, and go on with what it has."""
        self.crashed = True
        self.recovered = self.lose()
        self.crashed = False
        assert not self.recovered.clean
        states, self.states = self.states[self.reported :], [self.states[self.reported]]
        self.is_opened()
        found = self.found()
        for state in states:
            state.restart()
            if state.contents() == found:
                break
        else:
            pytest.fail(f"neither batch {self.reported} nor a later one is what was found")
        self.begin_with(state)

    def begin_with(self, state: Model) -> None:
        """What was not submitted is gone with the process."""
        self.states = [state]
        self.reported = self.failed = 0
        self.batch = Batch(self.number)

    @invariant()
    def what_was_reported_was_submitted(self) -> None:
        assert self.reported < len(self.states)

    def teardown(self) -> None:
        self.reactor.close(self.store)
