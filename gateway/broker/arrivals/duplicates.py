"""Duplicate ids: drop a message that repeats the id of an earlier one.

The repeat comes to the same destination; it is accepted and dropped.

Owns which ids are remembered, for how long, and their rows; and the numbers of destinations that
went although ids of theirs are remembered. The accepting side, a session or a branch, asks for the
order that it needs: the repeats are sifted out by ``Routing.route``, before limits count them;
when the others were numbered, they are remembered in the batch that stores them. Who sends a repeat
waits for its original to be durable. Knows nothing of where messages wait.

In memory an id is its octets in a dictionary, the oldest first, with the seq of its message as the
value: negative where the store has no row of it, because the message does not survive a restart
either. Ages are marks in the order of all seqs, as a time for each id would cost as much as the id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import ClassVar, Final, TypeAlias

from twisted.logger import Logger

from gateway.broker.arrivals.numbering import Numbering
from gateway.broker.core.destinations.queue import PhysicalQueue
from gateway.broker.core.destinations.topic import PhysicalTopic
from gateway.broker.core.virtual_topics import Copied
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.durability.rows import Rows
from gateway.broker.properties.settings import BrokerOptions
from gateway.broker.store.interface import DuplicateRow
from gateway.broker.timing.schedule import Schedule
from gateway.messaging.destination import Destination
from gateway.messaging.errors import DuplicateInDoubt, InvalidDuplicateId, MessageRejected
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import DUPLICATE_ID
from gateway.reactor.turn import Turn

Destined: TypeAlias = PhysicalQueue | PhysicalTopic
Arrivals: TypeAlias = list[tuple[Destined, Sequence[Message]]]
Before: TypeAlias = set[tuple[Destined, bytes]]

#: The longest id, octets in UTF-8.
LONGEST: Final = 1024
#: Octet before which an id names the run that it is counted in.
_RUN_END: Final = b"/"
#: Runs of one destination; what would begin another is counted with the ids that name none.
_MOST_RUNS: Final = 256
#: Parts of a bound that are forgotten at once: of the count of a run, of the count of all, and of
#: the age.
_RUN_PARTS: Final = 16
_ALL_PARTS: Final = 256
_AGE_PARTS: Final = 16
#: About how many octets of memory an id takes besides its own, and a run, and a destination, in
#: dictionaries of which most are small.
_ID_OCTETS: Final = 150
_RUN_OCTETS: Final = 300
_DESTINATION_OCTETS: Final = 600
#: Destinations of which dropped messages are counted.
_MOST_COUNTED: Final = 10_000
#: Ids, and destinations, looked at in one turn, or ids forgotten because of their age.
_SLICE: Final = 1000


def check_id(value: object) -> None:
    """Whether a property is a duplicate id.

    :raises InvalidDuplicateId: it is no String, is empty, or has more than 1,024 bytes.
    """
    if not isinstance(value, str):
        raise InvalidDuplicateId(f"it is of type {type(value).__name__}, and must be a String")
    if not value:
        raise InvalidDuplicateId("it is empty")
    size = len(_octets(value))
    if size > LONGEST:
        raise InvalidDuplicateId(f"it has {size} octets, and {LONGEST} are the most")


class DuplicateIds:
    """The ids that one broker remembers.

    Of each run of a destination the last ``duplicate_count`` are remembered, of all destinations
    together the last ``duplicate_total``, and each for ``duplicate_age`` seconds, and no more than
    take ``duplicate_octets`` of memory; up to a sixteenth more, since they are forgotten many at a
    time.

    :param sent: the seqs of messages that prepared branches have sent.
    """

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(
        self,
        options: BrokerOptions,
        turn: Turn,
        schedule: Schedule,
        commits: GroupCommit,
        rows: Rows,
        numbering: Numbering,
        sent: Container[int],
    ) -> None:
        self._turn = turn
        self._schedule = schedule
        self._commits = commits
        self._rows = rows
        self._numbering = numbering
        self._sent = sent
        self._options = options
        self._age_ms = options.duplicate_age * 1000
        #: By destination, run, then id.
        self._ids: dict[Destination, dict[bytes, dict[bytes, int]]] = {}
        #: The store's numbers of unused destinations, of which only their ids and their row
        #: are left.
        self._away: dict[Destination, int] = {}
        #: What the store remembers is coming in: of those that are away more may come.
        self._restoring = False
        #: Ids remembered, and about how many octets of memory they take.
        self.count = 0
        self.octets = 0
        #: (when, seq): ids of messages before that seq came before then, in milliseconds of the
        #: clock of timers.
        self._marks: deque[tuple[int, int]] = deque()
        self._ticking = False
        #: Messages that were dropped because they repeat an id, since the start, by destination.
        self.dropped: dict[Destination, int] = {}

    # --- what a message may be

    def repeats(self, physical: Destined, headers: Headers) -> bool:
        """Whether a message with these headers would be dropped."""
        id = _id(headers)
        return id is not None and _find(self._ids.get(physical.destination, _NO_RUNS), id)[1] != 0

    # --- destinations that go, and come again

    def keep_away(self, destination: Destination, number: int) -> bool:
        """Note that the destination goes, if ids of it are remembered.

        :returns: whether they are: then its row, of that number, stays for them.
        """
        if destination not in self._ids:
            return False
        self._away[destination] = number
        return True

    def stay_away(self, destination: Destination, number: int) -> None:
        """Note a row for a destination that has not been made.

        The store has the row, of that number; it is not yet known which ids the destination has.
        """
        self._away[destination] = number

    def needless(self) -> list[Destination]:
        """End restoring, and find destinations whose rows are not needed.

        :returns: destinations that are away although no id of them is remembered.
        """
        self._restoring = False
        return [destination for destination in self._away if destination not in self._ids]

    def come_back(self, destination: Destination) -> int:
        """Note that the destination is made.

        :returns: the number of the row that stayed; 0 if none did.
        """
        return self._away.pop(destination, 0)

    # --- what arrives

    def sift(self, arrivals: Arrivals, before: Before | None = None) -> tuple[Arrivals, int]:
        """The same arrivals without duplicates; changes nothing.

        A duplicate has an id that is remembered, or that came earlier among these.

        :param before: ids that come before these in the same transaction, to which those of these
            are added.
        :returns: those, and how many messages were left out.
        :raises MessageRejected: an original is of a transaction branch whose outcome is not known
            yet, so that of the duplicate is not either.
        """
        left: Arrivals = []
        new: Before = set() if before is None else before
        repeats, place = 0, -1
        for physical, run in arrivals:
            kept: list[Message] = []
            runs = self._ids.get(physical.destination, _NO_RUNS)
            for message in run:
                place += 1
                id = _id(message.headers)
                if id is not None:
                    seq = _find(runs, id)[1]
                    if seq or (physical, id) in new:
                        if abs(seq) in self._sent:
                            raise MessageRejected(place, DuplicateInDoubt())
                        repeats += 1
                        self._count_dropped(physical.destination)
                        continue
                    new.add((physical, id))
                kept.append(message)
            if kept:
                left.append((physical, kept))
        if repeats:
            self._log.debug(
                "{count} messages had duplicate ids that are remembered, and were dropped",
                count=repeats,
            )
        return left, repeats

    def _count_dropped(self, destination: Destination) -> None:
        if destination in self.dropped or len(self.dropped) < _MOST_COUNTED:
            self.dropped[destination] = self.dropped.get(destination, 0) + 1

    def where(self, id: str) -> Iterator[tuple[Destination, int]]:
        """Yield where an id is remembered, with the seq of its message.

        For operators: it asks each destination that has ids.
        """
        octets = _octets(id)
        for destination in list(self._ids):
            seq = _find(self._ids.get(destination, _NO_RUNS), octets)[1]
            if seq:
                yield destination, abs(seq)

    # --- remembering

    def remember(self, arrivals: Arrivals) -> None:
        """Remember the ids of accepted messages in the batch that gathers.

        The messages were sifted and have seqs; what else they need is put into the same batch.
        Copies for the queues of virtual topics are left out.
        """
        commits, rows = self._commits, self._rows
        for physical, run in arrivals:
            if isinstance(run, Copied):
                # Their originals' ids decide whether there are copies at all.
                continue
            kept = not physical.destination.temporary
            for message in run:
                id = _id(message.headers)
                if id is None:
                    continue
                seq = message.seq
                stored = kept and message.headers.persistent
                if stored:
                    if not physical.stored:
                        rows.store_destination(physical)
                    commits.remember(DuplicateRow(seq, physical.number, self._turn.now_ms, id))
                self._add(physical.destination, id, seq if stored else -seq)
        self._tick_later()

    def restore(self, rows: Sequence[DuplicateRow], there: Mapping[int, Destination]) -> None:
        """Restore ids that the store remembers from an earlier run.

        There is at least one; they come by rising seq.
        :param there: destinations by number.
        """
        self._restoring = True
        between = self._age_ms // _AGE_PARTS
        # Only the wall clock outlives a process: what it says of how old an id is cannot be less
        # than nothing.
        timer_ms, now_ms = self._turn.refresh_timer(), self._turn.now_ms
        for row in rows:
            destination = there.get(row.destination)
            if destination is None:
                self._commits.forget(row.seq)
                continue
            came_ms = timer_ms - max(0, now_ms - row.at)
            if not self._marks or came_ms >= self._marks[-1][0] + between:
                self._marks.append((came_ms, row.seq))
            self._add(destination, row.id, row.seq)
        self._marks.append((timer_ms - max(0, now_ms - rows[-1].at), rows[-1].seq + 1))
        self._tick_later()

    # --- forgetting

    def forget_messages(self, arrivals: Arrivals) -> None:
        """These never came: the branch that has sent them is rolled back."""
        for physical, run in arrivals:
            for message in run:
                id = _id(message.headers)
                if id is not None:
                    run_of, seq = _find(self._ids.get(physical.destination, _NO_RUNS), id)
                    if abs(seq) == message.seq:
                        self._drop(physical.destination, run_of, [id])

    def forget(self, destination: Destination) -> None:
        """The destination goes, and its ids with it."""
        for run in list(self._ids.get(destination, ())):
            self._drop(destination, run, list(self._ids[destination][run]))

    def _drop(self, destination: Destination, run: bytes, old: Sequence[bytes]) -> None:
        runs = self._ids[destination]
        ids = runs[run]
        seqs = [seq for id in old if (seq := ids.pop(id)) > 0]
        self.count -= len(old)
        self.octets -= sum(map(len, old)) + len(old) * _ID_OCTETS
        for seq in seqs:
            self._commits.forget(seq)
        if not ids:
            del runs[run]
            self.octets -= _RUN_OCTETS
            if not runs:
                del self._ids[destination]
                self.octets -= _DESTINATION_OCTETS + len(destination.name)
                number = 0 if self._restoring else self._away.pop(destination, 0)
                if number:
                    self._commits.remove_destination(number)

    def _add(self, destination: Destination, id: bytes, seq: int) -> None:
        runs = self._ids.get(destination)
        if runs is None:
            runs = self._ids[destination] = {}
            self.octets += _DESTINATION_OCTETS + len(destination.name)
        run = _run_of(id)
        if run not in runs and len(runs) >= _MOST_RUNS:
            run = b""
        ids = runs.get(run)
        if ids is None:
            ids = runs[run] = {}
            self.octets += _RUN_OCTETS
        if id not in ids:
            self.count += 1
            self.octets += len(id) + _ID_OCTETS
        ids[id] = seq
        most_of_run, most = self._options.duplicate_count, self._options.duplicate_total
        if len(ids) > most_of_run + most_of_run // _RUN_PARTS:
            self._drop(destination, run, list(islice(ids, len(ids) - most_of_run)))
        if self.count > most + most // _ALL_PARTS:
            self._drop_oldest(self.count - most)
        while self.octets > self._options.duplicate_octets and self.count > 1:
            self._drop_oldest(max(1, self.count // _ALL_PARTS))

    def _drop_oldest(self, count: int) -> None:
        everywhere = [
            _in_order(destination, run, ids)
            for destination, runs in self._ids.items()
            for run, ids in runs.items()
        ]
        for _, destination, run, id in list(islice(merge(*everywhere), count)):
            self._drop(destination, run, [id])

    def _tick_later(self) -> None:
        if self._ids and not self._ticking:
            self._ticking = True
            self._schedule.after(max(1000, self._age_ms // _AGE_PARTS), self._tick)

    def _tick(self) -> None:
        self._ticking = False
        now_ms = self._turn.refresh_timer()
        marks = self._marks
        if not self._ids:
            marks.clear()
            return
        marks.append((now_ms, self._numbering.last + 1))
        before = 0
        while marks and marks[0][0] <= now_ms - self._age_ms:
            before = marks.popleft()[1]
        if before:
            self._schedule.one_step_a_turn(self._drop_before(before))
        self._tick_later()

    def _drop_before(self, before: int) -> Iterator[None]:
        for looked, destination in enumerate(list(self._ids)):
            if looked % _SLICE == _SLICE - 1:
                yield
            for run in list(self._ids.get(destination, ())):
                while ids := self._ids.get(destination, {}).get(run):
                    old = [id for id, seq in islice(ids.items(), _SLICE) if abs(seq) < before]
                    if old:
                        self._drop(destination, run, old)
                    if len(old) < _SLICE:
                        break
                    yield


_NONE: Final[dict[bytes, int]] = {}
_NO_RUNS: Final[dict[bytes, dict[bytes, int]]] = {}


def _find(runs: dict[bytes, dict[bytes, int]], id: bytes) -> tuple[bytes, int]:
    """The run that an id is in, and its value; 0 if it is not remembered."""
    for run in (_run_of(id), b""):
        seq = runs.get(run, _NONE).get(id, 0)
        if seq:
            return run, seq
    return b"", 0


def _octets(id: str) -> bytes:
    # Java's strings may hold half a pair of surrogates.
    return id.encode("utf-8", "surrogatepass")


def _id(headers: Headers) -> bytes | None:
    value = (headers.repeated or headers).properties.get(DUPLICATE_ID)
    return _octets(value) if isinstance(value, str) else None


def _run_of(id: bytes) -> bytes:
    """The run that an id names; empty when it names none."""
    run, slash, _ = id.partition(_RUN_END)
    return run if slash else b""


def _in_order(
    destination: Destination, run: bytes, ids: Mapping[bytes, int]
) -> Iterator[tuple[int, Destination, bytes, bytes]]:
    for id, seq in ids.items():
        yield abs(seq), destination, run, id
