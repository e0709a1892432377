"""Messages that are delivered later, or again and again.

A *scheduled* message is accepted and stored like any other, and counts at its destination. It waits
in no backlog; the store has it, with its time in a row like those of redeliveries, and memory has
its seq, size and time only. When it is due it is read, and a copy arrives at the destination, in one
batch with the removal of the original, or with its next time. So a crash leaves either the one or
the other. Of a topic, subscribers at that time get it.

Times are of the wall clock, the only one that outlives the process. It is looked at every ten
seconds at least, so that a clock that was set makes a difference soon.

Owns when they are due, and what arrives then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import ClassVar, Final

from twisted.logger import Logger

from gateway.broker.core.physical import PhysicalDestination
from gateway.broker.core.virtual_topics import arrive, make_room
from gateway.broker.core.waiting.memory import Memory
from gateway.broker.core.waiting.timetable import Due, Timetable
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.durability.rows import Rows
from gateway.broker.properties.pause import Pause
from gateway.broker.timing.schedule import Schedule
from gateway.messaging import scheduled
from gateway.messaging.errors import DestinationFull, InvalidSchedule
from gateway.messaging.message import OVERHEAD, Message
from gateway.messaging.scheduled import JOB_ID, SCHEDULES
from gateway.messaging.values import Value
from gateway.reactor.turn import Turn

#: Owner of the rows that have the times, in place of 0 for a queue or a subscription's number.
SCHEDULED: Final = 1 << 62
#: Messages that arrive in one turn at one destination.
_MOST: Final = 100
#: How long the wall clock is believed before it is looked at again, in milliseconds.
_LOOK_MS: Final = 10_000
#: Milliseconds after which what cannot arrive is tried again.
_AGAIN_MS: Final = 1_000
#: Rows that are deleted in one step.
_DELETED: Final = 1_000


class ScheduledAt:
    """What is scheduled at one destination."""

    def __init__(self, physical: PhysicalDestination) -> None:
        self.physical: Final = physical
        self.timetable: Final = Timetable()
        #: How often messages that recur have arrived, by seq.
        self.fired: Final[dict[int, int]] = {}
        #: When it is to be looked at next, epoch milliseconds; 0 where that is not planned.
        self.planned_ms = 0
        #: What is due is being read.
        self.reading = False


class ScheduledMessages:
    """The scheduled messages of one broker.

    :param give: gives accepted messages their identity, sent by a user.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(
        self,
        turn: Turn,
        schedule: Schedule,
        memory: Memory,
        commits: GroupCommit,
        rows: Rows,
        give: Callable[[Sequence[Message], str, int], None],
    ) -> None:
        self._turn: Final = turn
        self._schedule: Final = schedule
        self._memory: Final = memory
        self._commits: Final = commits
        self._rows: Final = rows
        self._give: Final = give
        self.places: Final[dict[PhysicalDestination, ScheduledAt]] = {}
        #: Times of accepted messages that have not come yet, as they wait for a commit, by seq.
        self._coming: Final[dict[int, int]] = {}
        #: A heap of places by the time at which they are to be looked at.
        self._plan: Final[list[tuple[int, int, ScheduledAt]]] = []
        self._planned = count()
        #: When the next look is due, by the clock of timers; 0 where none is.
        self._armed_ms = 0

    # --- in

    def store(self, physical: PhysicalDestination, run: Sequence[Message]) -> None:
        """Store accepted messages, with their times, in the batch that gathers."""
        now_ms = self._turn.refresh()
        for message in run:
            if not message.stored:
                message.stored = 1
                lasts = message.headers.persistent and not physical.destination.temporary
                self._rows.insert(physical, message, persistent=lasts)
            try:
                due_ms = scheduled.read(message.headers.properties).first(now_ms)
            except InvalidSchedule:
                # A link has sent it, in a branch that was prepared before a restart.
                due_ms = now_ms
            self._coming[message.seq] = due_ms
            self._commits.redelivery(SCHEDULED, message.seq, 0, due_ms)

    def hold(self, physical: PhysicalDestination, run: Sequence[Message]) -> None:
        """Have accepted messages, which were stored, wait for their times."""
        physical.came(len(run), sum([message.size for message in run]))
        for message in run:
            self._add(physical, self._coming.pop(message.seq), message.seq, message.size)

    def forget(self, run: Sequence[Message]) -> None:
        """Accepted messages do not come."""
        for message in run:
            self._coming.pop(message.seq, None)

    def restore(
        self, physical: PhysicalDestination, seq: int, size: int, due_ms: int, fired: int
    ) -> None:
        """A message of an earlier run, which counts already."""
        self._add(physical, due_ms, seq, size)
        if fired:
            self.places[physical].fired[seq] = fired

    def _add(self, physical: PhysicalDestination, due_ms: int, seq: int, size: int) -> None:
        place = self.places.get(physical)
        if place is None:
            place = self.places[physical] = ScheduledAt(physical)
        place.timetable.add(due_ms, seq, size)
        physical.scheduled += 1
        self._count(1, size)
        self._replan(place)

    def _count(self, many: int, octets: int) -> None:
        """Count what memory has of messages.

        It has all of them where the store is memory.
        """
        self._memory.behind += many
        if not self._memory.spills:
            self._memory.used += octets + many * OVERHEAD

    # --- time

    def _replan(self, place: ScheduledAt) -> None:
        next_ms = place.timetable.next_ms
        if next_ms and (not place.planned_ms or next_ms < place.planned_ms):
            place.planned_ms = next_ms
            heappush(self._plan, (next_ms, next(self._planned), place))
            self._arm()

    def _arm(self) -> None:
        if self._plan:
            pause_ms = min(max(self._plan[0][0] - self._turn.refresh(), 0), _LOOK_MS)
            # By the clock of timers: the time of day may have jumped since it was armed.
            when_ms = self._turn.refresh_timer() + pause_ms
            if not self._armed_ms or when_ms < self._armed_ms:
                self._armed_ms = when_ms
                self._schedule.at(when_ms, partial(self._look, when_ms))

    def _look(self, armed_ms: int) -> None:
        if armed_ms != self._armed_ms:
            # An earlier look was asked for since, and has come.
            return
        self._armed_ms = 0
        now_ms = self._turn.refresh()
        while self._plan and self._plan[0][0] <= now_ms:
            when_ms, _, place = heappop(self._plan)
            if place.planned_ms == when_ms:
                place.planned_ms = 0
                self._read_due(place, now_ms)
        self._arm()

    def _read_due(self, place: ScheduledAt, now_ms: int) -> None:
        if place.reading or self.places.get(place.physical) is not place:
            return
        if place.physical.damaged or self._commits.full:
            # It would take room, of which the removal of the original must not be the first part.
            place.planned_ms = now_ms + _AGAIN_MS
            heappush(self._plan, (place.planned_ms, next(self._planned), place))
            return
        due = place.timetable.take(now_ms, _MOST)
        if not due:
            self._replan(place)
            return
        place.reading = True
        self._rows.read_back(
            [entry.seq for entry in due], lambda found: self._arrived(place, due, found)
        )

    def _arrived(self, place: ScheduledAt, due: Sequence[Due], messages: Sequence[Message]) -> None:
        """What is due was read."""
        place.reading = False
        physical = place.physical
        if self.places.get(physical) is not place:
            # It was removed meanwhile, and these with it.
            self._delete([entry.seq for entry in due])
            for entry in due:
                self._ended(place, entry)
            physical.taken()
            return
        found = {message.seq: message for message in messages}
        if physical.damaged or self._commits.full:
            for entry in due:
                place.timetable.add(*entry)
            self._replan(place)
            return
        self._commits.begin()
        try:
            for entry in due:
                message = found.get(entry.seq)
                if message is None:
                    self._log.error(
                        "a scheduled message of {destination} is not in the store any more",
                        destination=str(physical),
                    )
                    self._ended(place, entry)
                else:
                    self._fire(place, entry, message)
        finally:
            self._commits.end()
        make_room(physical)
        self._replan(place)
        physical.taken()

    def _fire(self, place: ScheduledAt, entry: Due, job: Message) -> None:
        """A message is due: a copy arrives."""
        physical, now_ms = place.physical, self._turn.now_ms
        try:
            asked = scheduled.read(job.headers.properties)
        except InvalidSchedule:
            # Another version took it. Its time has come.
            asked = scheduled.Scheduling(0, 0, 0, None, 0)
        following = 0
        if asked.recurs:
            if not _takes(physical, entry.size):
                place.timetable.add(now_ms + _AGAIN_MS, entry.seq, entry.size)
                return
            fired = place.fired.get(entry.seq, 0) + 1
            following = asked.following(entry.due_ms, now_ms, fired)
        if asked.cron is not None and asked.repeat:
            # Each time begins a series of its own.
            series = _copy(job, {scheduled.CRON}, {})
        else:
            job_id = self.job_id(entry.seq)
            series = _copy(job, SCHEDULES, {JOB_ID: job_id})
            if job.expires:
                # The time to live begins with the delivery (JMS 2.0, section 7.9).
                series.expires = max(now_ms, entry.due_ms) + max(0, job.expires - job.timestamp)
        if not asked.recurs:
            series.message_id = job.message_id
        series.timestamp = job.timestamp
        arrive(physical, [series], lambda run: self._give(run, job.user, 0))
        if following:
            place.fired[entry.seq] = fired
            self._commits.redelivery(SCHEDULED, entry.seq, fired, following)
            place.timetable.add(following, entry.seq, entry.size)
            return
        self._commits.delete(entry.seq)
        self._ended(place, entry)
        if not asked.recurs:
            # It came once, although its copy was counted as another.
            physical.come -= 1
            physical.come_octets -= entry.size

    def _ended(self, place: ScheduledAt, entry: Due) -> None:
        place.fired.pop(entry.seq, None)
        physical = place.physical
        physical.scheduled -= 1
        physical.count -= 1
        physical.octets -= entry.size
        self._count(-1, -entry.size)

    # --- administration

    #: What the id of a message that the broker has named begins with.
    prefix = ""

    def job_id(self, seq: int) -> str:
        """Return the id of a scheduled message, whatever its own id is."""
        return f"{self.prefix}{seq}"

    def remove(self, job_id: str) -> PhysicalDestination | None:
        """Remove a scheduled message.

        :returns: its destination; None if there is no such message, or it is due just now.
        """
        digits = job_id.removeprefix(self.prefix)
        if not (job_id.startswith(self.prefix) and digits.isascii() and digits.isdigit()):
            return None
        for place in self.places.values():
            entry = place.timetable.find(int(digits))
            if entry is not None:
                place.timetable.remove(entry)
                self._commits.delete(entry.seq)
                self._ended(place, entry)
                place.physical.taken()
                return place.physical
        return None

    def discard(self, physical: PhysicalDestination) -> None:
        """Delete all of a destination that is removed, slice by slice."""
        place = self.places.pop(physical, None)
        if place is None:
            return
        table = place.timetable
        physical.scheduled -= table.count
        physical.count -= table.count
        physical.octets -= table.octets
        self._count(-table.count, -table.octets)
        physical.clearing += 1

        def steps() -> Iterator[None]:
            for block in table.blocks(_DELETED):
                self._delete([entry.seq for entry in block])
                yield
            physical.cleared()

        self._schedule.one_step_of_all_a_turn(steps(), self._commits.backed_up)

    def _delete(self, seqs: Sequence[int]) -> None:
        for seq in seqs:
            self._commits.delete(seq)


def _takes(physical: PhysicalDestination, octets: int) -> bool:
    """Whether the destination would take another message from a sender now.

    With it must the queues that would get copies.
    """
    if any(not _takes(queue, octets) for queue in physical.copied_to):
        return False
    if physical.pause & Pause.PRODUCERS or physical.at_limit():
        return False
    try:
        physical.admit(1, octets)
    except DestinationFull:
        return False
    return True


def _copy(job: Message, without: frozenset[str] | set[str], more: dict[str, Value]) -> Message:
    """Copy a scheduled message with other properties."""
    properties = {
        name: value for name, value in job.headers.properties.items() if name not in without
    }
    return Message(
        job.headers.replace(properties={**properties, **more}), job.body, expires=job.expires
    )
