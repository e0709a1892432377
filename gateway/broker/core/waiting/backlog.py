"""Waiting messages of one queue or subscription, in delivery order.

Order is priority, then seq. Of each priority the first messages are in memory, as far as memory may
be used, and of those behind them only the seqs are, while the messages are in the store.

Owns order and counts of what waits. Knows no consumers, no limits, and not how the store is asked:
the caller that puts a message behind those in memory has it stored, and feeds what it read back to
:meth:`Backlog.refill`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

from gateway.broker.core.waiting.detached import DetachedBacklog
from gateway.broker.core.waiting.expiries import Expiries
from gateway.broker.core.waiting.lane import BEYOND, PriorityLane
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.core.waiting.sorted_window import seq_of
from gateway.messaging.message import OVERHEAD, Message


class Backlog:
    """What waits.

    :param memory: the bound on whole messages, shared with all other backlogs.
    :param spill: whether there is a store to put messages in; without one everything stays in
        memory.
    """

    __slots__ = (
        "_expiries",
        "_lanes",
        "_memory",
        "_order",
        "_sorts",
        "_spill",
        "behind",
        "delayed",
        "expiring",
        "octets",
        "outweighs",
        "reading",
        "resting",
        "waiting",
        "window_octets",
    )

    def __init__(self, memory: Memory, spill: bool) -> None:
        self._memory = memory
        self._spill = spill
        self._sorts = False
        self._lanes: dict[int, PriorityLane] = {}
        #: Lanes from the highest priority down.
        self._order: list[PriorityLane] = []
        #: Messages that may expire while they are in the store only; some may have left.
        self._expiries = Expiries()
        #: Messages, and their octets, here; in memory or not.
        self.waiting = 0
        self.octets = 0
        #: Octets of whole messages in memory, overhead included.
        self.window_octets = 0
        #: Rejected messages that wait for their pause to end, by seq. They are in no lane, and in no
        #: sum here.
        self.delayed: dict[int, Message] = {}
        #: The same for messages that are in the store only since a restart: their sizes, by seq.
        self.resting: dict[int, int] = {}
        #: How many messages here may expire; where the store lost some, not less than that.
        self.expiring = 0
        #: Messages that are in the store only, and how many of them are being read back.
        self.behind = 0
        self.reading = 0
        #: The largest difference of weight and size among the messages spilled or read back last.
        self.outweighs = OVERHEAD

    def sort(self, sorts: bool) -> None:
        """Have messages taken out of the middle quickly, or no longer.

        Putting and taking others takes longer for that.
        """
        self._sorts = sorts
        for lane in self._order:
            lane.sort(sorts)

    # --- in

    def put(self, run: Sequence[Message]) -> Sequence[Message]:
        """Add messages with rising seqs behind all others of their priority.

        :returns: those that memory has no room for. They are in the store only now: the caller must
            have them stored.
        """
        size = held = 0
        for message in run:
            size += message.size
            held += message.weight
            if message.expires:
                self.expiring += 1
        self.waiting += len(run)
        self.octets += size
        full = self._spill and self._memory.full(self.window_octets)
        if self.behind or full:
            return self._put_behind(run, full)
        self.window_octets += held
        self._memory.used += held
        first = run[0].headers.priority
        lane = self._lanes.get(first) or self.lane(first)
        if len(run) == 1:
            lane.window.append(run[0])
            return ()
        for message in run:
            if message.headers.priority != first:
                break
        else:
            lane.window.extend(run)
            return ()
        for message in run:
            self.lane(message.headers.priority).window.append(message)
        return ()

    def _put_behind(self, run: Sequence[Message], full: bool) -> Sequence[Message]:
        """Put messages behind those in memory: memory is full, or for order."""
        spilled: list[Message] = []
        for message in run:
            lane = self.lane(message.headers.priority)
            if not full and not lane.behind:
                lane.window.append(message)
                self._count(message)
            elif not message.stored and not self._memory.spilling:
                # The disk is full and does not have it: it stays in memory, out of the window's
                # order.
                lane.return_messages([message])
                self._count(message)
            else:
                lane.append(message.seq, message.size)
                self._put_in_store()
                self.outweighs = max(self.outweighs, message.weight - message.size)
                self._may_expire(message.headers.priority, message.seq, message.expires)
                spilled.append(message)
        return spilled

    def restore(self, priority: int, seq: int, size: int, expires: int) -> None:
        """Add a message that the store held when it was opened."""
        self.lane(priority).append(seq, size)
        self._put_in_store()
        self.waiting += 1
        self.octets += size
        if expires:
            self.expiring += 1
            self._may_expire(priority, seq, expires)

    def put_back(self, messages: Iterable[Message], spill: bool = False) -> Sequence[Message]:
        """Messages that were taken, or plucked, wait again in their old places.

        :param spill: those that memory has no room for may go to the store.
        :returns: these; the caller must have them stored, as with :meth:`put`.
        """
        parts: dict[int, list[Message]] = {}
        behind: dict[int, dict[int, int]] = {}
        spilled: list[Message] = []
        spill = spill and self._spill
        for message in messages:
            priority = message.headers.priority
            if spill and self._memory.full(self.window_octets):
                behind.setdefault(priority, {})[message.seq] = message.size
                spilled.append(message)
                self.outweighs = max(self.outweighs, message.weight - message.size)
                self._put_in_store()
                self._may_expire(priority, message.seq, message.expires)
            else:
                parts.setdefault(priority, []).append(message)
                self._count(message)
            self.waiting += 1
            self.octets += message.size
            if message.expires:
                self.expiring += 1
        for priority, part in parts.items():
            self.lane(priority).return_messages(part)
        for priority, sizes in behind.items():
            self.lane(priority).return_stored(sizes)
        return spilled

    def wanted(self, most: int) -> list[int]:
        """Return the seqs to read back now, in delivery order.

        Empty when there is no need, and until :meth:`refill` is called for the last ones.
        """
        if not self.behind or self.reading:
            return []
        octets = self._memory.room(self.window_octets)
        seqs: list[int] = []
        for lane in self._order:
            if not octets and lane.blocked():
                # Memory is full of what comes later. Without these nothing would be delivered any
                # more.
                octets = self._memory.least
            if octets > 0 and lane.behind:
                # A message of the usual weight counts by its size, and a heavier one by what it has
                # in excess, too.
                asked = lane.read(most - len(seqs), octets, self.outweighs - OVERHEAD)
                octets -= sum([lane.reading[seq] + self.outweighs for seq in asked])
                seqs += asked
            if (
                lane.behind > len(lane.reading)
                or len(seqs) >= most
                or (octets <= 0 and (seqs or lane.first() is not None))
            ):
                break
        self.reading = len(seqs)
        return seqs

    def refill(self, asked: Sequence[int], messages: Iterable[Message]) -> tuple[int, int]:
        """Take in messages that were :meth:`wanted` and have been read back.

        Seqs that were asked for and did not come are dropped: the store does not have them.

        :returns: how many are gone, and their octets.
        """
        missing = set(asked)
        outweighs = OVERHEAD
        for message in messages:
            outweighs = max(outweighs, message.weight - message.size)
            missing.discard(message.seq)
            lane = self._lanes.get(message.headers.priority)
            if lane is not None and lane.reading.pop(message.seq, None) is not None:
                if lane.mixed and lane.window and lane.window[-1].seq > message.seq:
                    lane.return_messages([message])
                else:
                    lane.window.append(message)
                lane.behind -= 1
                self._take_from_store()
                self.reading -= 1
                self._count(message)
        if len(missing) < len(asked):
            self.outweighs = outweighs
        return self.drop_behind(missing)

    def unread(self) -> None:
        """What was :meth:`wanted` did not come, and may be wanted again."""
        for lane in self._order:
            lane.unread()
        self.reading = 0

    def drop_behind(self, seqs: Iterable[int]) -> tuple[int, int]:
        """Drop messages that the store does not have.

        Those that are in memory stay.

        :returns: how many, and their octets.
        """
        count = octets = 0
        for seq in seqs:
            for priority in self._lanes:
                size = self.pluck_behind(priority, seq, 0)
                if size is not None:
                    count += 1
                    octets += size
                    break
        return count, octets

    # --- out

    def take(self, most: int, octets: int, now_ms: int) -> tuple[list[Message], list[Message]]:
        """Take up to ``most`` messages from the front.

        :param octets: stop after the message whose body exceeds what remains of these; negative is
            no bound.
        :returns: the messages to deliver, and those found expired; neither waits any longer.
        """
        taken: list[Message] = []
        expired: list[Message] = []
        size = held = 0
        for lane in self._order:
            window = lane.window
            if lane.returned or self.expiring or lane.mixed:
                gone, weight, octets = self._take_careful(
                    lane, most, octets, now_ms, taken, expired
                )
                size += gone
                held += weight
            else:
                pop = window.popleft
                count = min(most - len(taken) - len(expired), len(window))
                if octets < 0:
                    run = [pop() for _ in range(count)]
                    for message in run:
                        size += message.size
                        held += message.weight
                    taken = taken + run if taken else run
                else:
                    while count and octets > 0:
                        message = pop()
                        taken.append(message)
                        size += message.size
                        held += message.weight
                        octets -= len(message.body)
                        count -= 1
                    octets = max(octets, 0)
            if lane.behind or not octets or len(taken) + len(expired) >= most:
                break
        count = len(taken) + len(expired)
        if count:
            self.window_octets -= held
            self._memory.used -= held
            self.waiting -= count
            self.octets -= size
        return taken, expired

    def _take_careful(
        self,
        lane: PriorityLane,
        most: int,
        octets: int,
        now_ms: int,
        taken: list[Message],
        expired: list[Message],
    ) -> tuple[int, int, int]:
        """Take from one lane, merging what was returned, leaving out what expired.

        :returns: the size of what was taken, its weight, and what is left of ``octets``.
        """
        size = held = 0
        returned, window = lane.returned, lane.window
        before = lane.first_behind() or BEYOND
        if lane.mixed and not lane.reading and (not window or window[-1].seq < before):
            lane.mixed = False
        count = most - len(taken) - len(expired)
        while count > 0 and octets:
            if returned and (not window or returned[-1].seq < window[0].seq):
                if returned[-1].seq > before:
                    break
                message = returned.pop()
            elif window and window[0].seq < before:
                message = window.popleft()
            else:
                break
            count -= 1
            size += message.size
            held += message.weight
            if message.expires:
                self.expiring -= 1
                if message.expires <= now_ms:
                    expired.append(message)
                    continue
            taken.append(message)
            if octets > 0:
                octets = max(octets - len(message.body), 0)
        return size, held, octets

    def pluck(self, seqs: Iterable[int], priority: int) -> list[Message]:
        """Take out those of these messages that are in memory.

        :returns: the messages.
        """
        lane = self._lanes.get(priority)
        if lane is None:
            return []
        found = lane.pluck(list(seqs))
        for message in found:
            self._forget(message.size, message.expires)
            self._stop_counting(message)
        return found

    def pluck_messages(self, messages: Iterable[Message]) -> list[Message]:
        """Take out of memory those of these that are there. :returns: them."""
        seqs: dict[int, list[int]] = {}
        for message in messages:
            seqs.setdefault(message.headers.priority, []).append(message.seq)
        return [
            message for priority, part in seqs.items() for message in self.pluck(part, priority)
        ]

    def pluck_behind(self, priority: int, seq: int, expires: int) -> int | None:
        """Take out a message that is in the store only.

        :returns: its size; None when it is in memory, or was taken.
        """
        lane = self._lanes.get(priority)
        if lane is None:
            return None
        reading = seq in lane.reading
        size = lane.pluck_behind(seq)
        if size is not None:
            self.reading -= reading
            self._take_from_store()
            self._forget(size, expires)
        return size

    def take_out(self, priority: int, seq: int, expires: int) -> tuple[int, int] | None:
        """Take out one message, wherever it waits, also if it paused.

        :returns: its size, and 1 if the store has its row, else 0; None when it does not wait.
        """
        found = [self.delayed.pop(seq)] if seq in self.delayed else self.pluck([seq], priority)
        for message in found:
            stored, message.stored = message.stored, 0
            return message.size, stored
        size = self.resting.pop(seq, None)
        if size is None:
            size = self.pluck_behind(priority, seq, expires)
        return None if size is None else (size, 1)

    def take_expired(self, now_ms: int) -> tuple[list[Message], list[tuple[int, int]]]:
        """Take out what has expired.

        :returns: the whole messages, and seq and size of those that are in the store only.
        """
        here = [message for message in self.waiting_in_memory() if 0 < message.expires <= now_ms]
        stored: list[tuple[int, int]] = []
        while (found := self._expiries.take(now_ms)) is not None:
            expires, priority, seq = found
            size = self.pluck_behind(priority, seq, expires)
            if size is not None:
                stored.append((seq, size))
        return self.pluck_messages(here), stored

    def oldest(self) -> Message | None:
        """Find the message that has waited longest, whatever its priority.

        :returns: None when there is no message in memory.
        """
        return min(
            [message for lane in self._order if (message := lane.first()) is not None],
            key=seq_of,
            default=None,
        )

    def least(self) -> Message | None:
        """Find the oldest message of the lowest priority.

        :returns: None when it is not in memory.
        """
        for lane in reversed(self._order):
            message = lane.first()
            if message is not None:
                return message
            if lane.behind:
                return None
        return None

    # --- looking

    def waiting_in_memory(self) -> Iterator[Message]:
        """Yield whole messages, those of higher priority first.

        The caller must not change the backlog meanwhile.
        """
        for lane in self._order:
            yield from lane.in_memory()

    def size_of(self, priority: int, seq: int) -> int | None:
        """Return the size of a message; None when it does not wait, nor pauses."""
        if seq in self.delayed:
            return self.delayed[seq].size
        lane, size = self._lanes.get(priority), self.resting.get(seq)
        return lane.size_of(seq) if size is None and lane is not None else size

    def lanes(self) -> Iterator[tuple[int, PriorityLane]]:
        """Yield the priorities in use, now or before, from the highest down.

        Callers only read, and change nothing.
        """
        for priority in sorted(self._lanes, reverse=True):
            yield priority, self._lanes[priority]

    def stored_only(self) -> array[int]:
        """The seqs of all messages that are in the store only."""
        seqs = array("Q")
        for lane in self._order:
            seqs += lane.seqs_behind()
        return seqs

    @property
    def pausing(self) -> int:
        """How many wait for their pause to end."""
        return len(self.delayed) + len(self.resting)

    def clear(self) -> tuple[list[Message], array[int], int]:
        """Everything is gone, also what paused.

        :returns: the whole messages, the seqs of those that are in the store only, and the octets
            of these.
        """
        messages, seqs = list(self.waiting_in_memory()), self.stored_only()
        octets = self.octets - sum([message.size for message in messages])
        messages += self.delayed.values()
        seqs.extend(self.resting)
        octets += sum(self.resting.values())
        self._memory.used -= self.window_octets
        self._memory.behind -= self.behind
        self.detach()
        return messages, seqs, octets

    def detach(self) -> DetachedBacklog:
        """Remove everything at once, however much there is.

        :returns: what was removed.
        """
        detached = DetachedBacklog(
            self._memory, self._order, self.delayed, self.resting, self.waiting, self.octets
        )
        self.delayed, self.resting = {}, {}
        self._lanes, self._order, self._expiries = {}, [], Expiries()
        self.window_octets = self.waiting = self.octets = self.expiring = self.behind = (
            self.reading
        ) = 0
        return detached

    # --- inside

    def lane(self, priority: int) -> PriorityLane:
        """One priority, made if it is not in use."""
        lane = self._lanes.get(priority)
        if lane is None:
            lane = self._lanes[priority] = PriorityLane()
            lane.sort(self._sorts)
            self._order = [self._lanes[number] for number in sorted(self._lanes, reverse=True)]
        return lane

    def _count(self, message: Message) -> None:
        self.window_octets += message.weight
        self._memory.used += message.weight

    def _stop_counting(self, message: Message) -> None:
        self.window_octets -= message.weight
        self._memory.used -= message.weight

    def _put_in_store(self) -> None:
        self.behind += 1
        self._memory.behind += 1

    def _take_from_store(self) -> None:
        self.behind -= 1
        self._memory.behind -= 1

    def _forget(self, size: int, expires: int) -> None:
        self.waiting -= 1
        self.octets -= size
        if expires:
            self.expiring -= 1
        elif not self.waiting:
            self.expiring = 0

    def _may_expire(self, priority: int, seq: int, expires: int) -> None:
        if expires:
            self._expiries.add(expires, priority, seq)
            if len(self._expiries) > 1_000 + 2 * self.behind:
                self._expiries.keep(self._is_behind)

    def _is_behind(self, priority: int, seq: int) -> bool:
        return self._lanes[priority].is_behind(seq)
