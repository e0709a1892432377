"""Group commit: what goes to the disk together, in which order it is told, and what a full or
failing disk leaves.
"""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from gateway.broker.durability.commit import (
    FEW,
    LINGER,
    MOST_OCTETS,
    MOST_OPERATIONS,
    MOST_WAITING,
    PROVEN,
    SETTLING,
    GroupCommit,
)
from gateway.broker.store.interface import (
    Batch,
    Committed,
    DestinationRow,
    Store,
    StoreError,
    StoreFailed,
    StoreFull,
)
from gateway.messaging.destination import Queue
from gateway.messaging.message import Headers, Message
from gateway.reactor.turn import Turn

HEADERS = Headers(Queue("q"))
FULL = StoreFull("no room")


class Disk:
    """Takes batches, and answers when told."""

    def __init__(self) -> None:
        self.submitted: list[Batch] = []
        self.answers: list[Committed] = []
        self.draining = False

    def submit(self, batch: Batch, committed: Committed) -> None:
        self.submitted.append(batch)
        self.answers.append(committed)

    def answer(self, error: StoreError | None = None) -> None:
        self.answers.pop(0)(error)


class Scene:
    """A commit between a reactor's turns and a disk."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.turn = Turn(self.clock)
        self.disk = Disk()
        self.failures: list[StoreError] = []
        store: Store = self.disk  # type: ignore[assignment]
        self.commits = GroupCommit(store, self.turn, self.failures.append)
        self.told: list[tuple[object, StoreError | None]] = []

    def wait(self, name: object) -> None:
        self.commits.wait(lambda error: self.told.append((name, error)))

    def passes(self, count: int) -> None:
        """The reactor passes that often, and no time does."""
        for _ in range(count):
            self.clock.advance(0)

    def run_reactor(self) -> None:
        """Whatever lingers is handed off."""
        self.passes(2)
        self.clock.advance(LINGER)
        self.passes(1)

    def insert(self, *seqs: int, body: bytes = b"body") -> None:
        for seq in seqs:
            self.commits.insert(Message(HEADERS, body, seq=seq), 1, True)

    def done(self, error: StoreError | None = None) -> Batch:
        """The disk answers for the batch it has. :returns: the batch."""
        batch = self.disk.submitted[-len(self.disk.answers)]
        self.disk.answer(error)
        self.run_reactor()
        return batch


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_gathers_while_the_disk_is_busy_is_one_batch(scene: Scene) -> None:
    scene.insert(1)
    assert scene.disk.submitted == [], "nothing is handed off inside a call"
    scene.run_reactor()
    scene.insert(2)
    scene.run_reactor()
    scene.insert(3)
    scene.commits.delete(1)
    scene.run_reactor()
    assert [list(batch.inserts) for batch in scene.disk.submitted] == [[1]]
    scene.done()
    assert [list(batch.inserts) for batch in scene.disk.submitted] == [[1], [2, 3]]
    assert list(scene.disk.submitted[1].deletes) == [1]
    assert [batch.number for batch in scene.disk.submitted] == [1, 2]


def test_waiters_are_told_in_order_each_after_the_batch_that_holds_what_came_before(
    scene: Scene,
) -> None:
    scene.insert(1)
    scene.wait("a")
    scene.run_reactor()
    scene.wait("b")
    scene.insert(2)
    scene.wait("c")
    scene.run_reactor()
    assert scene.told == []
    scene.done()
    assert scene.told == [("a", None)]
    scene.done()
    assert scene.told == [("a", None), ("b", None), ("c", None)]


def test_a_waiter_with_nothing_to_wait_for_is_told_in_a_turn_and_not_inside_the_call(
    scene: Scene,
) -> None:
    scene.wait("a")
    assert scene.told == []
    scene.run_reactor()
    assert (scene.told, scene.disk.submitted) == ([("a", None)], [])


def test_a_batch_that_nobody_waits_for_lingers_a_moment(scene: Scene) -> None:
    scene.insert(1)
    scene.passes(10)
    assert scene.disk.submitted == []
    scene.clock.advance(LINGER / 2)
    scene.insert(2)
    scene.passes(10)
    assert scene.disk.submitted == []
    scene.clock.advance(LINGER / 2)
    assert [list(batch.inserts) for batch in scene.disk.submitted] == [[1, 2]]
    assert scene.clock.getDelayedCalls() == []


def prove(scene: Scene, batches: int = PROVEN) -> int:
    """So many batches are settled while the disk has them.

    :returns: a seq that is free.
    """
    for seq in range(1, batches + 1):
        scene.insert(seq)
        scene.wait(seq)
        scene.passes(1)
        scene.commits.delete(seq)
        scene.disk.answer()
    scene.run_reactor()
    scene.disk.answer()
    scene.run_reactor()
    scene.told.clear()
    scene.disk.submitted.clear()
    return batches + 1


def test_where_consumers_are_fast_a_batch_waits_to_be_settled_instead_of_stored(
    scene: Scene,
) -> None:
    seq = prove(scene)
    scene.insert(seq, seq + 1)
    scene.wait("a")
    scene.passes(10)
    scene.commits.delete(seq)
    scene.passes(10)
    assert (scene.disk.submitted, scene.told) == ([], [])
    scene.commits.delete(seq + 1)
    scene.passes(1)
    assert (scene.disk.submitted, scene.told) == ([], [("a", None)])
    assert scene.clock.getDelayedCalls() == []


def test_a_batch_waits_a_moment_only_and_the_next_ones_not_at_all(scene: Scene) -> None:
    seq = prove(scene)
    for name in ("a", "b"):
        scene.insert(seq)
        scene.wait(name)
        scene.passes(1)
        if name == "a":
            assert scene.disk.submitted == []
            scene.clock.advance(SETTLING)
        assert [list(batch.inserts) for batch in scene.disk.submitted] == [[seq]]
        scene.done()
        scene.disk.submitted.clear()
        seq += 1
    assert scene.told == [("a", None), ("b", None)]


@pytest.mark.parametrize(("proven", "count"), [(PROVEN - 1, 1), (PROVEN, FEW)])
def test_a_batch_does_not_wait_without_proof_nor_with_many_messages(
    scene: Scene, proven: int, count: int
) -> None:
    seq = prove(scene, proven)
    scene.insert(*range(seq, seq + count))
    scene.wait("a")
    scene.passes(1)
    assert len(scene.disk.submitted) == 1


def test_a_batch_that_was_not_settled_while_it_was_stored_disproves(scene: Scene) -> None:
    seq = prove(scene, PROVEN - 1)
    for _ in range(2):
        scene.insert(seq)
        scene.wait(seq)
        scene.passes(1)
        assert len(scene.disk.submitted) == 1
        scene.done()
        scene.disk.submitted.clear()
        seq += 1


def test_what_the_writes_of_the_turn_settle_is_not_stored(scene: Scene) -> None:
    scene.turn.begin()
    scene.insert(1, 2)
    scene.wait("a")
    scene.turn.write(lambda: [scene.commits.delete(seq) for seq in (1, 2)])  # type: ignore[arg-type,func-returns-value]
    scene.turn.end()
    assert (scene.told, scene.disk.submitted) == ([("a", None)], [])


def submitted_by_the_writes(scene: Scene, seq: int, *, settled: bool = False) -> int:
    """A turn inserts a message, and its writes look at the disk and may settle the message.

    :returns: how many batches the disk had got when the writes were made.
    """
    seen: list[int] = []

    def write() -> None:
        seen.append(len(scene.disk.submitted))
        if settled:
            scene.commits.delete(seq)

    scene.turn.begin()
    scene.insert(seq)
    scene.wait(seq)
    scene.turn.write(write)
    scene.turn.end()
    return seen[0]


@pytest.mark.parametrize("settled", ["by the writes", "while it is stored"])
def test_where_nothing_is_settled_of_late_a_batch_does_not_wait_for_the_writes(
    scene: Scene, settled: str
) -> None:
    seqs = iter(range(1, 100))

    def unsettled(batches: int) -> list[int]:
        seen = []
        for _ in range(batches):
            scene.disk.submitted.clear()
            seen.append(submitted_by_the_writes(scene, next(seqs)))
            assert len(scene.disk.submitted) == 1
            scene.done()
        return seen

    assert unsettled(PROVEN + 2) == [0] * PROVEN + [1] * 2
    scene.disk.submitted.clear()
    if settled == "by the writes":
        # Its delete comes too late for that, once.
        assert submitted_by_the_writes(scene, next(seqs), settled=True) == 1
    else:
        seq = next(seqs)
        assert submitted_by_the_writes(scene, seq) == 1
        scene.commits.delete(seq)
    scene.done()
    scene.done()
    assert unsettled(PROVEN + 1) == [0] * PROVEN + [1]


def test_one_message_of_a_turn_that_its_writes_settle_keeps_all_from_being_early(
    scene: Scene,
) -> None:
    for seq in range(1, 3 * PROVEN, 2):
        scene.turn.begin()
        scene.insert(seq, seq + 1)
        scene.wait(seq)
        scene.turn.write(lambda seq=seq: scene.commits.delete(seq))  # type: ignore[misc]
        scene.turn.end()
        assert list(scene.disk.submitted[-1].inserts) == [seq + 1]
        scene.done()


def test_what_gathered_meanwhile_goes_to_the_store_before_the_receipts_are_written(
    scene: Scene,
) -> None:
    for seq in range(1, PROVEN + 1):
        scene.insert(seq)
        scene.wait(seq)
        scene.passes(1)
        scene.done()
    seen: list[int] = []
    scene.insert(100)
    scene.commits.wait(lambda _: scene.turn.write(lambda: seen.append(len(scene.disk.submitted))))
    scene.passes(1)
    before = len(scene.disk.submitted)
    scene.insert(101)
    scene.wait("b")
    scene.done()
    assert seen == [before + 1]


def test_a_message_that_somebody_waits_for_does_not_linger(scene: Scene) -> None:
    scene.insert(1)
    scene.wait("a")
    scene.passes(1)
    assert (len(scene.disk.submitted), scene.clock.getDelayedCalls()) == (1, [])


def test_acknowledgements_that_somebody_waits_for_do_not_linger(scene: Scene) -> None:
    scene.commits.delete(1)
    scene.wait("a")
    scene.passes(1)
    assert len(scene.disk.submitted) == 1


def test_what_gathers_behind_a_busy_disk_does_not_linger_when_it_is_sealed(scene: Scene) -> None:
    scene.insert(1)
    scene.run_reactor()
    scene.insert(2, body=bytes(MOST_WAITING))
    scene.disk.answer()
    scene.passes(1)
    assert len(scene.disk.submitted) == 2


def test_waiting_for_a_batch_by_number(scene: Scene) -> None:
    scene.insert(1)
    number = scene.commits.number
    scene.run_reactor()
    scene.insert(2)
    scene.commits.wait_for(number, lambda error: scene.told.append(("first", error)))
    scene.commits.wait_for(scene.commits.number, lambda error: scene.told.append(("second", error)))
    assert scene.commits.durable == 0
    scene.done()
    assert (scene.told, scene.commits.durable) == ([("first", None)], 1)
    scene.done()
    assert (scene.told, scene.commits.durable) == ([("first", None), ("second", None)], 2)


def test_an_insert_and_its_delete_in_the_gathering_batch_are_left_out(scene: Scene) -> None:
    scene.insert(1, 2)
    scene.commits.redelivery(0, 1, 3, 0)
    scene.commits.delete(1)
    assert scene.commits.unstored(1) is None
    scene.run_reactor()
    (batch,) = scene.disk.submitted
    assert (list(batch.inserts), list(batch.deletes), list(batch.redeliveries)) == ([2], [], [])
    assert scene.commits.octets_waiting == batch.octets


def test_nothing_is_left_out_of_a_batch_that_is_on_its_way(scene: Scene) -> None:
    scene.insert(1)
    scene.run_reactor()
    scene.commits.delete(1)
    assert list(scene.disk.submitted[0].inserts) == [1]
    scene.done()
    assert list(scene.disk.submitted[1].deletes) == [1]


def test_nothing_is_left_out_across_a_sealed_batch(scene: Scene) -> None:
    scene.insert(1)
    scene.run_reactor()
    scene.insert(2)
    scene.insert(3, body=bytes(MOST_WAITING))
    scene.insert(4)
    scene.commits.delete(2)
    scene.commits.delete(4)
    scene.done()
    assert (list(scene.disk.submitted[1].inserts), list(scene.disk.submitted[1].deletes)) == (
        [2, 3],
        [],
    )
    scene.done()
    assert (list(scene.disk.submitted[2].inserts), list(scene.disk.submitted[2].deletes)) == (
        [],
        [2],
    )


def test_what_is_owed_and_taken_in_one_batch_is_left_out(scene: Scene) -> None:
    scene.insert(1)
    scene.commits.owe(5, 1)
    scene.commits.owe(6, 1)
    scene.commits.redelivery(5, 1, 1, 0)
    scene.commits.settle(5, 1)
    scene.run_reactor()
    (batch,) = scene.disk.submitted
    assert (list(batch.owed), list(batch.settled), list(batch.redeliveries)) == ([(6, 1)], [], [])


@pytest.mark.parametrize("octets", [False, True])
def test_a_batch_is_bounded_in_operations_and_octets(scene: Scene, octets: bool) -> None:
    scene.insert(1)
    scene.run_reactor()
    if octets:
        scene.insert(2, 3, 4, body=bytes(MOST_WAITING // 2))
    else:
        scene.insert(*range(2, MOST_OPERATIONS + 10))
    scene.wait("last")
    scene.run_reactor()
    while scene.disk.answers:
        batch = scene.done()
        assert batch.operations <= MOST_OPERATIONS
        assert batch.octets < MOST_WAITING + MOST_WAITING // 2 + 1000
    assert (len(scene.disk.submitted), scene.told) == (3, [("last", None)])
    assert scene.commits.octets_waiting == 0


def test_long_messages_settled_while_the_disk_has_others_to_write_are_left_out(
    scene: Scene,
) -> None:
    with scene.turn:
        scene.insert(1, 2, 3, 4, body=bytes(MOST_OCTETS // 2))
    (first,) = scene.disk.submitted
    assert list(first.inserts) == [1, 2], "an idle disk is not kept waiting for more"
    scene.insert(5, body=bytes(MOST_OCTETS // 2))
    scene.wait("all")
    for seq in (3, 4):
        scene.commits.delete(seq)
    scene.done()
    second = scene.done()
    assert (list(second.inserts), list(second.deletes)) == ([5], [])
    assert scene.told == [("all", None)]


def test_what_belongs_together_is_not_divided(scene: Scene) -> None:
    scene.commits.begin()
    scene.insert(*range(1, 2 * MOST_OPERATIONS))
    scene.commits.begin()
    scene.insert(2 * MOST_OPERATIONS)
    scene.commits.end()
    scene.insert(2 * MOST_OPERATIONS + 1)
    scene.commits.end()
    scene.insert(2 * MOST_OPERATIONS + 2)
    scene.run_reactor()
    assert len(scene.disk.submitted[0].inserts) == 2 * MOST_OPERATIONS + 1


def test_one_who_fails_when_told_does_not_take_the_others_turn(scene: Scene) -> None:
    def fails(error: StoreError | None) -> None:
        raise ZeroDivisionError("on purpose")

    scene.insert(1)
    scene.commits.wait(fails)
    scene.wait("other")
    scene.run_reactor()
    scene.insert(2)
    scene.done()
    assert (scene.told, len(scene.disk.submitted)) == ([("other", None)], 2)


def test_a_failed_disk_is_final(scene: Scene) -> None:
    failure = StoreFailed("the disk is gone")
    scene.insert(1)
    scene.wait("first")
    scene.run_reactor()
    scene.insert(2)
    scene.wait("second")
    scene.done(failure)
    assert (scene.told, scene.failures) == ([("first", failure), ("second", failure)], [failure])
    assert scene.commits.trouble() == "the disk is gone"
    scene.insert(3)
    scene.wait("third")
    scene.run_reactor()
    assert (scene.told[-1], len(scene.disk.submitted)) == (("third", failure), 1)
    assert scene.failures == [failure]


def test_senders_are_held_while_too_much_waits_and_let_go_in_a_turn(scene: Scene) -> None:
    resumed: list[int] = []
    scene.insert(1)
    scene.run_reactor()
    count = MOST_WAITING // MOST_OCTETS + 1
    for seq in range(2, count + 2):
        scene.insert(seq, body=bytes(MOST_OCTETS))
    assert scene.commits.crowded()
    scene.commits.on_relief(lambda: resumed.append(1))
    while scene.commits.crowded():
        assert resumed == []
        scene.done()
    assert resumed == [1]
    assert scene.disk.answers, "not only when all is on the disk"
    while scene.disk.answers:
        scene.done()
    assert (resumed, scene.commits.octets_waiting) == ([1], 0)


def test_senders_are_let_go_when_what_waits_is_settled_before_the_disk_has_answered(
    scene: Scene,
) -> None:
    resumed: list[int] = []
    scene.insert(1, body=bytes(MOST_OCTETS))
    scene.run_reactor()
    scene.insert(2, 3, body=bytes(MOST_WAITING // 2 - MOST_OCTETS // 4))
    assert scene.commits.crowded()
    scene.commits.on_relief(lambda: resumed.append(1))
    scene.passes(1)
    assert resumed == []
    scene.commits.delete(3)
    scene.passes(1)
    assert (resumed, len(scene.disk.answers)) == ([1], 1)


def test_whole_messages_are_at_hand_until_they_can_be_read(scene: Scene) -> None:
    scene.insert(1)
    scene.run_reactor()
    scene.insert(2, body=bytes(MOST_OCTETS))
    scene.insert(3)
    found = [scene.commits.unstored(seq) for seq in (1, 2, 3, 4)]
    assert [message.seq if message else None for message in found] == [1, 2, 3, None]
    scene.done()
    assert scene.commits.unstored(1) is None


def test_a_destination_that_is_made_and_removed_in_one_batch_is_left_out_unless_messages_are_in_it(
    scene: Scene,
) -> None:
    scene.commits.destination(DestinationRow(1, 0, "q", ""))
    scene.commits.remove_destination(1)
    scene.run_reactor()
    assert list(scene.disk.submitted[0].destinations) == []
    scene.commits.destination(DestinationRow(2, 0, "q", ""))
    scene.insert(1)
    scene.commits.remove_destination(2)
    scene.done()
    batch = scene.disk.submitted[1]
    assert (list(batch.destinations), list(batch.removed_destinations)) == ([2], [2])
