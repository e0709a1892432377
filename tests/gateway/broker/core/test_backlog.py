"""What waits, in memory and in the store only, against lists and a dict.

The store reads back when told, and there is very little memory.
"""

from __future__ import annotations

from typing import Any, Final, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from gateway.broker.core.delivery.cursor import Cursor
from gateway.broker.core.waiting.backlog import Backlog
from gateway.broker.core.waiting.expiries import Expiries
from gateway.broker.core.waiting.memory import OVERHEAD, Memory
from gateway.broker.core.waiting.spilled import Spilled
from gateway.messaging.destination import Queue
from gateway.messaging.message import Headers, Message

HEADERS = {priority: Headers(Queue("q"), priority=priority) for priority in range(10)}


def make(seq: int, priority: int = 4, size: int = 10, expires: int = 0) -> Message:
    message = Message(HEADERS[priority], b"x" * size, expires=expires, seq=seq)
    message.size = size
    return message


def order(message: Message) -> tuple[int, int]:
    return -message.headers.priority, message.seq


class BacklogModel(RuleBasedStateMachine):
    """Two backlogs share a memory, so that what the other one holds counts too."""

    @initialize(spill=st.booleans(), sorts=st.booleans())
    def begin(self, spill: bool, sorts: bool) -> None:
        self.memory = Memory(total=12 * OVERHEAD, share=6 * OVERHEAD, least=2 * OVERHEAD)
        self.spill = spill
        self.backlog = Backlog(self.memory, spill)
        self.backlog.sort(sorts)
        self.other = Backlog(self.memory, spill)
        self.seq = 0
        self.now = 0
        #: All that wait, by seq; in memory or not.
        self.waiting: dict[int, Message] = {}
        self.taken: list[Message] = []
        #: What was asked for and not read yet, the oldest first.
        self.asked: list[list[int]] = []
        #: What the store has lost.
        self.lost: set[int] = set()
        self.stored: dict[int, Message] = {}
        self.cursor = Cursor(self.backlog)
        self.seen: dict[int, int] = {}

    # --- in

    @rule(
        run=st.lists(
            st.tuples(
                st.sampled_from([4, 4, 4, 9, 0]),
                st.integers(0, 300),
                st.sampled_from([0, 0, 0, 5, 50]),
            ),
            min_size=1,
        )
    )
    def put(self, run: list[tuple[int, int, int]]) -> None:
        messages = []
        for priority, size, ttl in run:
            self.seq += 1
            messages.append(make(self.seq, priority, size, self.now + ttl if ttl else 0))
        spilled = self.backlog.put(messages)
        assert set(map(id, spilled)) <= set(map(id, messages))
        assert self.spill or not spilled
        self.waiting.update({message.seq: message for message in messages})
        self.stored.update({message.seq: message for message in spilled})

    @rule(count=st.integers(1, 20))
    def put_beside(self, count: int) -> None:
        self.other.put([make(index + 1) for index in range(count)])

    @rule()
    def clear_beside(self) -> None:
        self.other.clear()

    @precondition(lambda self: self.spill)
    @rule(priority=st.sampled_from([4, 9]), size=st.integers(0, 300), ttl=st.sampled_from([0, 20]))
    def restore(self, priority: int, size: int, ttl: int) -> None:
        if any(
            message.headers.priority == priority and message.seq not in self.behind()
            for message in self.waiting.values()
        ):
            # Only when it is opened, when nothing is in memory.
            return
        self.seq += 1
        message = make(self.seq, priority, size, self.now + ttl if ttl else 0)
        self.backlog.restore(priority, message.seq, size, message.expires)
        self.waiting[message.seq] = self.stored[message.seq] = message

    @rule(data=st.data(), spill=st.booleans())
    def put_back(self, data: st.DataObject, spill: bool) -> None:
        if self.taken:
            back = data.draw(
                st.lists(st.sampled_from(self.taken), unique_by=lambda message: message.seq)
            )
            self.taken = [message for message in self.taken if message not in back]
            spilled = self.backlog.put_back(back, spill)
            assert not spilled or (self.spill and spill)
            self.stored.update({message.seq: message for message in spilled})
            self.waiting.update({message.seq: message for message in back})
            for message in back:
                priority = message.headers.priority
                if self.cursor.has_passed(message):
                    self.cursor.go_back_to(message)
                    self.seen[priority] = message.seq - 1

    @rule(sorts=st.booleans())
    def sort(self, sorts: bool) -> None:
        self.backlog.sort(sorts)

    @rule()
    def disk_fills_and_is_free_again(self) -> None:
        self.memory.spilling = not self.memory.spilling

    # --- out

    @rule(most=st.integers(1, 30), octets=st.one_of(st.just(-1), st.integers(1, 600)))
    def take(self, most: int, octets: int) -> None:
        behind = self.behind()
        taken, expired = self.backlog.take(most, octets, self.now)
        assert len(taken) + len(expired) <= most
        expected = sorted(self.waiting.values(), key=order)[: len(taken) + len(expired)]
        assert sorted([*taken, *expired], key=order) == expected, "not the first of all that wait"
        assert taken == [message for message in expected if not 0 < message.expires <= self.now]
        if octets >= 0 and taken:
            assert sum(len(message.body) for message in taken[:-1]) < octets
        for message in expected:
            del self.waiting[message.seq]
        self.taken += taken
        stopped = len(taken) + len(expired) == most or (
            octets >= 0 and sum(len(message.body) for message in taken) >= octets
        )
        if not stopped and self.waiting:
            # Only what is in the store only may hold the rest up.
            assert min(self.waiting.values(), key=order).seq in behind

    @rule(data=st.data())
    def pluck(self, data: st.DataObject) -> None:
        if not self.waiting:
            return
        wanted = data.draw(
            st.lists(st.sampled_from(sorted(self.waiting)), unique=True, max_size=40)
        )
        behind = self.behind()
        found = self.backlog.pluck_messages([self.waiting[seq] for seq in wanted])
        assert {message.seq for message in found} == set(wanted) - behind
        for message in found:
            self.taken.append(self.waiting.pop(message.seq))

    @rule(data=st.data())
    def pluck_behind(self, data: st.DataObject) -> None:
        if not self.waiting:
            return
        message = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        is_behind = message.seq in self.behind()
        size = self.backlog.pluck_behind(message.headers.priority, message.seq, message.expires)
        assert size == (message.size if is_behind else None)
        assert (
            self.backlog.pluck_behind(message.headers.priority, message.seq, message.expires)
            is None
        )
        if is_behind:
            self.taken.append(self.waiting.pop(message.seq))

    @rule(passed=st.integers(1, 30))
    def expire(self, passed: int) -> None:
        self.now += passed
        behind = self.behind()
        here, stored = self.backlog.take_expired(self.now)
        expected = {seq for seq, message in self.waiting.items() if 0 < message.expires <= self.now}
        assert {message.seq for message in here} == expected - behind
        assert dict(stored) == {seq: self.waiting[seq].size for seq in expected & behind}
        for seq in expected:
            del self.waiting[seq]

    @rule()
    def evict(self) -> None:
        here = [message for seq, message in self.waiting.items() if seq not in self.behind()]
        oldest = self.backlog.oldest()
        assert oldest is min(here, key=lambda message: message.seq, default=None)
        least = self.backlog.least()
        if least is not None:
            assert least is min(here, key=lambda message: (message.headers.priority, message.seq))
        else:
            lowest = min([message.headers.priority for message in self.waiting.values()], default=0)
            assert not [message for message in here if message.headers.priority == lowest]

    @rule()
    def clear(self) -> None:
        behind = self.behind()
        messages, seqs, _ = self.backlog.clear()
        assert set(seqs) == behind
        assert [message.seq for message in messages] == [
            message.seq
            for message in sorted(self.waiting.values(), key=order)
            if message.seq not in behind
        ]
        self.waiting.clear()

    # --- the store

    @rule(most=st.integers(1, 10))
    def ask(self, most: int) -> None:
        seqs = self.backlog.wanted(most)
        assert len(seqs) <= most
        if seqs:
            self.asked.append(seqs)
            assert self.backlog.wanted(most) == []
            behind = self.behind()
            first = [
                message.seq
                for message in sorted(self.waiting.values(), key=order)
                if message.seq in behind
            ]
            assert first[: len(seqs)] == seqs

    @precondition(lambda self: bool(self.asked))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        seqs = self.asked.pop(0)
        lost = set(data.draw(st.lists(st.sampled_from(seqs), max_size=1)))
        # Some were taken since, and the store gives them or not: it makes no difference.
        still = [seq for seq in seqs if seq in self.waiting and seq in self.behind()]
        gone = [seq for seq in still if seq in lost]
        count, octets = self.backlog.refill(
            seqs, [self.stored[seq] for seq in seqs if seq not in lost]
        )
        assert (count, octets) == (len(gone), sum(self.waiting[seq].size for seq in gone))
        for seq in gone:
            del self.waiting[seq]

    @rule()
    def drain(self) -> None:
        """Whoever takes all and reads all gets all, in order, however full memory is."""
        self.memory.spilling = True
        expected = sorted(self.waiting.values(), key=order)
        got: list[Message] = []
        for asked in self.asked:
            self.backlog.refill(asked, [self.stored[seq] for seq in asked])
        self.asked.clear()
        for _ in range(2 * len(expected) + 2):
            got += self.backlog.take(7, -1, 0)[0]
            seqs = self.backlog.wanted(3)
            self.backlog.refill(seqs, [self.stored[seq] for seq in seqs])
        assert got == expected
        self.waiting.clear()
        self.taken += got

    # --- looking

    @rule(most=st.integers(1, 5))
    def look(self, most: int) -> None:
        """A reader who takes nothing comes to everything once, in order, and again to what came
        back.
        """
        wanted = sorted(
            [
                message
                for message in self.waiting.values()
                if message.seq > self.seen.get(message.headers.priority, 0)
            ],
            key=order,
        )
        behind = self.behind()
        ahead = list(self.cursor.ahead())
        assert ahead == wanted[: len(ahead)]
        assert len(ahead) == len(wanted) or wanted[len(ahead)].seq in behind
        if ahead:
            read: list[Message] = ahead[:most]
        else:
            seqs = self.cursor.stored_ahead(most)
            if seqs is None:
                assert wanted[0].seq in {
                    seq for _, lane in self.backlog.lanes() for seq in lane.reading
                }
                return
            assert seqs == [message.seq for message in wanted[: len(seqs)]]
            assert bool(seqs) == bool(wanted)
            read = list(self.cursor.still_ahead([self.stored[seq] for seq in seqs]))
            assert len(read) == len(seqs)
        for message in read:
            self.cursor.looked_at(message)
            self.seen[message.headers.priority] = message.seq

    # --- what always holds

    def behind(self) -> set[int]:
        return set(self.backlog.stored_only())

    @invariant()
    def counts_are_those_of_the_list(self) -> None:
        if not hasattr(self, "backlog"):
            return
        backlog, behind = self.backlog, self.behind()
        here = list(backlog.waiting_in_memory())
        assert here == [
            message
            for message in sorted(self.waiting.values(), key=order)
            if message.seq not in behind
        ]
        assert behind <= self.waiting.keys()
        assert backlog.waiting == len(self.waiting)
        assert backlog.octets == sum(message.size for message in self.waiting.values())
        assert backlog.behind == len(behind)
        assert backlog.window_octets == sum(message.weight for message in here)
        assert self.memory.used == backlog.window_octets + self.other.window_octets
        assert self.memory.behind == backlog.behind + self.other.behind
        assert backlog.expiring >= sum(message.expires > 0 for message in self.waiting.values())
        assert backlog.reading == sum(len(lane.reading) for _, lane in backlog.lanes())
        assert self.spill or not behind


def test_a_backlog_is_as_the_model_has_it() -> None:
    run_state_machine_as_test(
        BacklogModel, settings=settings(stateful_step_count=40, deadline=None)
    )


def test_a_run_goes_behind_memory_and_comes_back_in_order() -> None:
    memory = Memory(total=100 * OVERHEAD, share=10 * OVERHEAD, least=OVERHEAD)
    backlog = Backlog(memory, True)
    messages = [make(seq, size=0) for seq in range(1, 31)]
    spilled = [message for message in messages if backlog.put([message])]
    assert [message.seq for message in spilled] == list(range(11, 31))
    taken = backlog.take(100, -1, 0)[0]
    seqs = backlog.wanted(500)
    assert backlog.refill(seqs, messages[10:]) == (0, 0)
    taken += backlog.take(100, -1, 0)[0]
    assert (taken, backlog.waiting, memory.used) == (messages, 0, 0)


def test_a_message_of_high_priority_behind_full_memory_is_read_all_the_same() -> None:
    memory = Memory(total=100 * OVERHEAD, share=10 * OVERHEAD, least=OVERHEAD)
    backlog = Backlog(memory, True)
    backlog.put([make(seq, 4, 0) for seq in range(1, 11)])
    urgent = make(11, 9, 0)
    assert backlog.put([urgent]) == [urgent]
    assert backlog.take(1, -1, 0) == ([], []), "the urgent one is first"
    assert backlog.wanted(500) == [11]
    backlog.refill([11], [urgent])
    assert [message.seq for message in backlog.take(3, -1, 0)[0]] == [11, 1, 2]


def test_other_priorities_do_not_go_behind_memory_because_one_did() -> None:
    memory = Memory(total=100 * OVERHEAD, share=10 * OVERHEAD, least=OVERHEAD)
    backlog = Backlog(memory, True)
    backlog.put([make(seq, 4, 0) for seq in range(1, 12)])
    backlog.put([make(12, 4, 0)])
    backlog.take(5, -1, 0)
    assert backlog.put([make(13, 9, 0)]) == []
    assert len(backlog.put([make(14, 4, 0)])) == 1, "order within its priority is kept"


def test_an_answer_to_a_question_from_before_a_purge_is_nobodys() -> None:
    memory = Memory(total=100 * OVERHEAD, share=4 * OVERHEAD, least=OVERHEAD)
    backlog = Backlog(memory, True)
    for seq in range(1, 11):
        backlog.restore(4, seq, 5, 0)
    first = backlog.wanted(5)
    backlog.clear()
    for seq in range(11, 16):
        backlog.restore(4, seq, 5, 0)
    second = backlog.wanted(2)
    assert backlog.refill(first, [make(seq) for seq in first]) == (0, 0)
    assert backlog.waiting == 5
    assert backlog.refill(second, [make(seq, size=5) for seq in second]) == (0, 0)
    assert [message.seq for message in backlog.take(9, -1, 0)[0]] == second == [11, 12]


def test_large_messages_are_not_read_by_the_hundred() -> None:
    memory = Memory(total=1 << 26, share=1 << 25, least=1 << 18)
    backlog = Backlog(memory, True)
    for seq in range(1, 101):
        backlog.restore(4, seq, 1 << 23, 0)
    assert len(backlog.wanted(500)) <= 4


def test_a_hundred_thousand_messages_are_given_back_by_one_sort() -> None:
    comparisons = 0

    class Counted(int):
        def __lt__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return int.__lt__(self, cast("int", other))

    backlog = Backlog(Memory(total=1 << 40, share=1 << 40), True)
    messages = [make(Counted(seq)) for seq in range(1, 2_001)]
    backlog.put(messages)
    taken = backlog.take(2_000, -1, 0)[0]
    backlog.put_back(taken[1_000:])
    comparisons = 0
    backlog.put_back(taken[:1_000])
    assert comparisons < 10_000, "two runs in order are merged"
    assert backlog.take(2_000, -1, 0)[0] == messages


def test_many_that_expire_behind_memory_and_are_read_in_time_leave_nothing() -> None:
    memory = Memory(total=100 * OVERHEAD, share=4 * OVERHEAD, least=OVERHEAD)
    backlog = Backlog(memory, True)
    seq = 0
    for _ in range(100):
        run = [make(seq + index, expires=10**12) for index in range(1, 101)]
        seq += 100
        for message in run:
            backlog.put([message])
        while backlog.waiting:
            backlog.take(100, -1, 0)
            seqs = backlog.wanted(500)
            backlog.refill(seqs, [run[one - run[0].seq] for one in seqs])
    assert len(backlog._expiries) < 2_000
    assert backlog.expiring == 0


def test_what_comes_back_while_a_reader_reads_is_looked_at_in_its_place() -> None:
    memory = Memory(total=100 * OVERHEAD, share=10 * OVERHEAD, least=OVERHEAD)
    backlog = Backlog(memory, True)
    messages = [make(seq, size=0) for seq in range(1, 21)]
    for message in messages:
        backlog.put([message])
    cursor = Cursor(backlog)
    for message in list(cursor.ahead()):
        cursor.looked_at(message)
    # Another reader has taken one from behind, and gives it back while this one waits for what it
    # asked for.
    assert backlog.pluck_behind(4, 15, 0) == 0
    seqs = cursor.stored_ahead(500)
    assert seqs == [11, 12, 13, 14, 16, 17, 18, 19, 20]
    backlog.put_back([messages[14]])
    read = [messages[seq - 1] for seq in seqs]
    assert [message.seq for message in cursor.still_ahead(read)] == [11, 12, 13, 14]
    cursor.looked_at(messages[13])
    assert [message.seq for message in cursor.ahead()] == [15]
    cursor.looked_at(messages[14])
    assert cursor.stored_ahead(500) == [16, 17, 18, 19, 20]
    # Taken by another one meanwhile: the rest is asked for again.
    assert backlog.pluck_behind(4, 16, 0) == 0
    assert list(cursor.still_ahead(read[4:])) == []


_entries = st.tuples(st.integers(1, 40), st.integers(0, 9), st.integers(1, 1 << 62))


@given(st.lists(st.one_of(_entries, st.integers(0, 45), st.sets(st.integers(0, 9)))))
def test_the_earliest_comes_first(steps: list[tuple[int, int, int] | int | set[int]]) -> None:
    """Entries are added, a number takes out what has expired by then, and a set of priorities is
    what stays.
    """
    expiries = Expiries()
    known: list[tuple[int, int, int]] = []
    for step in steps:
        if isinstance(step, tuple):
            expiries.add(*step)
            known.append(step)
        elif isinstance(step, int):
            taken = []
            while (found := expiries.take(step)) is not None:
                taken.append(found)
            assert [entry[:2] for entry in taken] == sorted(
                entry[:2] for entry in known if entry[0] <= step
            )
            assert sorted(taken) == sorted(entry for entry in known if entry[0] <= step)
            known = [entry for entry in known if entry[0] > step]
        else:
            priorities = step
            expiries.keep(lambda priority, seq, stay=priorities: priority in stay)  # type: ignore[misc]
            known = [entry for entry in known if entry[1] in priorities]
        assert len(expiries) == len(known)


def test_any_time_can_be_named() -> None:
    expiries = Expiries()
    expiries.add((1 << 63) - 1, 9, 7)
    expiries.add(-5, 0, 8)
    assert expiries.take(1) == (1, 0, 8)
    assert expiries.take((1 << 60) - 2) is None
    assert expiries.take((1 << 60) - 1) == ((1 << 60) - 1, 9, 7)


_TOPICS: Final[tuple[Any, ...]] = ("first", "second")

_steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"), st.sampled_from(_TOPICS), st.lists(st.integers(1, 60), unique=True)
        ),
        st.tuples(
            st.just("run"),
            st.sampled_from(_TOPICS),
            st.tuples(st.integers(1, 60), st.integers(0, 20)),
        ),
        st.tuples(st.just("discard"), st.none(), st.lists(st.integers(1, 80), unique=True)),
        st.tuples(
            st.just("discard run"), st.none(), st.tuples(st.integers(1, 60), st.integers(0, 20))
        ),
    )
)


@given(_steps)
def test_it_is_a_dict_in_order(steps: list[tuple[str, Any, Any]]) -> None:
    spilled, known = Spilled[Any](), dict[int, Any]()
    for what, topic, given_seqs in steps:
        seqs = (
            sorted(given_seqs)
            if isinstance(given_seqs, list)
            else list(range(given_seqs[0], sum(given_seqs)))
        )
        if topic is not None:
            new = [seq for seq in seqs if seq not in known]
            spilled.add_all(new, topic)
            known |= dict.fromkeys(new, topic)
        elif what == "discard":
            for seq in seqs:
                assert spilled.discard(seq) is (known.pop(seq, None) is not None)
        else:
            assert list(spilled.discard_all(seqs)) == [seq for seq in seqs if seq not in known]
            known = {seq: of for seq, of in known.items() if seq not in seqs}
        assert (list(spilled), len(spilled)) == (sorted(known), len(known))
        for seq, of in known.items():
            assert spilled.topic(seq) is of
        for seq in set(range(90)) - known.keys():
            with pytest.raises(KeyError):
                spilled.topic(seq)


def test_what_leaves_in_the_order_of_its_coming_leaves_nothing() -> None:
    """Every other seq, which makes a run of each."""
    spilled = Spilled[Any]()
    seqs = range(1, 20_000, 2)
    spilled.add_all(seqs, _TOPICS[0])
    kept = []
    for seq in seqs:
        assert spilled.discard(seq)
        kept.append(len(spilled._firsts))
    assert kept[len(seqs) // 2] <= len(seqs) // 2 + 1
    assert kept[-1] == 0
