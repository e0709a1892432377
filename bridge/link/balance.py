"""The running balance of a link: every message that it took is somewhere.

``taken = out + dead + not transferred + in doubt + held``. Owns what each term means, when a message
moves from one to another, and what becomes of what a process that has crashed had under way. Where
it is kept beyond the process is :mod:`bridge.link.balances`' business.

taken
    Messages that the source has handed over and not been given back.
out
    Of them, those that the target has for good and that the source has forgotten.
dead
    Those that a dead message queue has, and that the source has forgotten.
not transferred
    Those that a rule or a transformer wanted to go nowhere, and that the source has forgotten.
in doubt
    Those that the source was asked to forget, where it is not known yet whether it has: of a
    transaction that is decided and not yet committed everywhere, and of a process that has crashed.
held
    Those under way: received, and not settled.

What is left is a *difference*: messages that were taken and are nowhere. A link whose quality of
service is AT_MOST_ONCE may lose some; for every other it is an alarm. Beside the balance stands how
many messages may be at the target twice, which is 0 for a link that transfers once and only once.

**Crashes.** The whole is written durably about once a second. Between two of these a *mark* is
written at each step that a crash could leave half done. It is handed to the kernel and not synced,
so it costs a link next to nothing, and survives the process, but not the machine.

=======================  ==================================  ==========================================
Link                     Marks                               After a crash
=======================  ==================================  ==========================================
once, by XA or           before the source is asked to       the messages of the mark are in doubt
duplicate ids            forget a batch: its ids             until the link runs again, then what the
                                                             mark says. One that comes again is taken
                                                             back from that, and counts anew
AT_MOST_ONCE             likewise, and when it is sent       likewise; in doubt, then lost
DUPLICATES_OK            before a batch is sent: how many    none is taken; all of them are possibly
                         messages; and when it is settled    twice
=======================  ==================================  ==========================================

A message that is sent once only, and that its source has forgotten, is at its target; one that the
source has not forgotten comes again, with its id. So the first row is exact, whichever it was.

A machine that goes down may take the marks with it. So each durable write reserves a number of
messages: a link takes no more of them than that before the next write. After the machine was down,
what was reserved is an upper bound of what the balance lacks. The next write is made when half of
it is used, so a link waits for the first one only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bridge.link.arrivals import Received
from bridge.link.balance_mark import (
    Fate,
    Mark,
    asked_octets,
    encoded,
    group_octets,
    groups_of,
)
from bridge.link.status import BalanceTerms
from bridge.link.transfer import Dead, Item, NotTransferred

#: Seconds that a message may take to come again after its source was asked to forget it. A broker
#: may find out late that the connection is gone.
AGAIN_S: Final = 3600.0
#: Messages at most that may come again; of more, the last.
MOST_AGAIN: Final = 5000
#: Messages that are reserved at least.
RESERVED: Final = 1000


@dataclass(slots=True, eq=False)
class UnderWay:
    """A batch that a crash could leave half done.

    :param sending: messages of it that the target may have while the source gives them out again;
        0 where that does no harm.
    :param octets: what becomes of its messages if the source forgets them.
    """

    sending: int = 0
    octets: bytes = b""

    @property
    def fates(self) -> Mapping[str, Fate]:
        """What the octets say, by id."""
        return groups_of(self.octets)[0]


class BalancesNotKept(Exception):
    """Balances cannot be read or written. ``str`` says why."""


class BalanceMarks(Protocol):
    """Where the marks of one link are kept: two places, written by turns."""

    def read(self) -> Sequence[bytes]:
        """Return what is in each place. :raises BalancesNotKept:"""

    def write(self, place: int, data: bytes) -> None:
        """Replace what is in a place, 0 or 1, so that it survives the process.

        :raises BalancesNotKept:
        """

    def close(self) -> None:
        """Let go of the places; another write takes them again."""


class Balance:
    """The balance of one link.

    :param terms: as they are kept.
    :param changed: called when a term has changed.
    :param log: is told of a difference.
    :param clock: the reactor.
    :param marks: where its marks are; None keeps no marks.
    :param hurry: asks for a durable write now; None where nothing is kept.
    """

    def __init__(
        self,
        link: str,
        terms: BalanceTerms,
        changed: Callable[[], None],
        log: Logger,
        clock: Any = None,
        marks: BalanceMarks | None = None,
        hurry: Callable[[], None] | None = None,
    ) -> None:
        self.terms: Final = terms
        #: Of the last mark.
        self.number = 0
        self._link: Final = link
        self._changed: Final = changed
        self._log: Final = log
        self._clock: Final = clock
        self._marks: Final = marks
        self._under_way: Final[list[UnderWay]] = []
        #: In doubt until the link runs again.
        self._doubted: list[UnderWay] = []
        #: In doubt, and it is not known which: an earlier release has left them.
        self._left_in_doubt = 0
        #: Those that count as forgotten and may come again, their octets, and when to let them go.
        self._presumed: Final[dict[str, Fate]] = {}
        self._presumed_octets = b""
        self._presumed_until = 0.0
        #: A failure was logged, and no mark has been written since.
        self._failed = False
        self._hurry: Final = hurry
        #: Messages that this process has taken, at the last durable write, and as many as it may.
        self._count = 0
        self._count_written = 0
        self._allowed = 0
        self._ahead = 0
        self._waiting: Final[list[Deferred[None]]] = []
        #: Whether the link may have what it moves twice at its target.
        self.doubles = False
        #: The difference that the log was told of last.
        self._told = terms.difference

    # --- from one process to the next

    def goes_on(self, mark: Mark, from_mark: bool) -> None:
        """Take up where an earlier process was.

        :param from_mark: the mark is newer than what was written durably, or as new.
        """
        terms = self.terms
        for each in fields(BalanceTerms):
            setattr(terms, each.name, getattr(mark.terms, each.name))
        self.number = mark.number
        # What was under way then was given back.
        terms.taken -= terms.held
        terms.held = 0
        terms.possibly_twice += mark.sending
        self.doubles = mark.doubles
        if from_mark:
            terms.taken += len(mark.asked) - terms.in_doubt
            terms.in_doubt = len(mark.asked)
            if mark.asked:
                self._doubted.append(UnderWay(0, group_octets(mark.asked)))
            self._presume(mark.presumed)
        else:
            self._left_in_doubt = terms.in_doubt
        self._told = terms.difference

    def mark(self) -> None:
        """Write what a crash must not forget."""
        if self._marks is None:
            return
        if self._presumed and self._clock.seconds() > self._presumed_until:
            self._presumed.clear()
            self._presumed_octets = b""
        self.number += 1
        groups = [each.octets for each in (*self._doubted, *self._under_way)]
        groups.append(self._presumed_octets)
        sending = sum([each.sending for each in self._under_way])
        try:
            self._marks.write(self.number & 1, encoded(self.number, self.terms, sending, groups))
            self._failed = False
        except BalancesNotKept as error:
            if not self._failed:
                self._failed = True
                self._log.error(
                    "link {link}: its balance may be wrong after a crash, as its marks cannot be kept: {error}",
                    link=self._link,
                    error=error,
                )

    def close(self) -> None:
        """Let go of the marks' files; the next mark takes them again."""
        if self._marks is not None:
            self._marks.close()

    # --- reserved messages

    def room(self, size: int) -> Deferred[None] | None:
        """Wait until a batch of this size is reserved; None where it is, as usual."""
        if self._hurry is None or self._count + size <= self._allowed:
            return None
        self._ahead = max(self._ahead, 2 * size)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        self._hurry()
        return waiting

    def reserve(self) -> tuple[int, int]:
        """Return what a durable write that is made now reserves, and where from."""
        lately, self._count_written = self._count - self._count_written, self._count
        self._ahead = max(self._ahead, RESERVED, 2 * lately)
        return self._ahead, self._count

    def reserved(self, ahead: int, count: int) -> None:
        """What :meth:`reserve` has returned is durable, or nothing can be made so."""
        self._allowed = count + ahead
        waiting = self._waiting[:]
        self._waiting.clear()
        for each in waiting:
            each.callback(None)

    def lacks(self, ahead: int) -> None:
        """The machine went down, and may have taken the marks of these with it."""
        if self.doubles:
            self.terms.possibly_twice += ahead
        self._log.warn(
            "link {link}: the machine went down while it ran: its balance may lack up to {ahead} messages that it has moved then",
            link=self._link,
            ahead=ahead,
        )

    # --- a batch

    def taken(self, received: Sequence[Received]) -> None:
        """The source has handed some over."""
        if self._presumed:
            self._again(received)
        self.terms.taken += len(received)
        self.terms.held += len(received)
        self._count += len(received)
        if self._hurry is not None and self._allowed - self._count < self._ahead // 2:
            self._hurry()
        self._changed()

    def sending(self, count: int) -> UnderWay:
        """Some are about to be sent that the source may give out again."""
        self.doubles = True
        under_way = UnderWay(count)
        self._under_way.append(under_way)
        self.mark()
        return under_way

    def asking(self, items: Sequence[Item], unsent: Fate) -> UnderWay:
        """The source is about to be asked to forget these.

        :param unsent: what becomes of those that are not sent yet.
        """
        under_way = UnderWay(0, asked_octets(items, unsent))
        self._under_way.append(under_way)
        self.mark()
        return under_way

    def returned(self, count: int, under_way: UnderWay | None = None) -> None:
        """The source has them again."""
        self._over(under_way)
        self.terms.taken -= count
        self.terms.held -= count
        self._check()

    def settled(
        self,
        items: Sequence[Item],
        count: int,
        under_way: UnderWay | None = None,
        *,
        doubted: bool = False,
        exactly: bool = True,
    ) -> None:
        """The source has forgotten these, for good.

        :param count: messages of the batch; more than there are items where some were not judged.
        :param doubted: they were in doubt.
        :param exactly: the mark before is as good; else a crash would count them otherwise.
        """
        self._over(under_way)
        terms = self.terms
        if doubted:
            terms.in_doubt -= count
        else:
            terms.held -= count
        terms.out += sum([item.sent for item in items])
        for item in items:
            if isinstance(item.outcome, NotTransferred):
                terms.not_transferred += 1
            elif isinstance(item.outcome, Dead) and not item.sent:
                if item.lost:
                    terms.lost += 1
                else:
                    terms.dead += 1
        if under_way is not None and not exactly:
            self.mark()
        self._check()

    def doubted(self, count: int) -> None:
        """Their transaction is decided, and not yet committed everywhere."""
        self.terms.held -= count
        self.terms.in_doubt += count
        self._changed()

    def unconfirmed(self, count: int, under_way: UnderWay) -> None:
        """It is not known whether the source has forgotten these."""
        self._over(under_way)
        left = count - len(under_way.fates)
        # Two with one id are told apart no more, and the source has one of them again.
        self.terms.taken -= left
        self.terms.held -= count
        self.terms.in_doubt += count - left
        self._doubted.append(under_way)
        self._check()

    def recovered(self) -> None:
        """The link runs again: what is in doubt is over, or comes again.

        What an earlier process has decided is committed.
        """
        left, self._left_in_doubt = self._left_in_doubt, 0
        doubted, self._doubted = self._doubted, []
        if not left and not doubted:
            return
        terms = self.terms
        terms.out += left
        terms.in_doubt -= left
        for each in doubted:
            fates = each.fates
            terms.in_doubt -= len(fates)
            for fate in fates.values():
                setattr(terms, fate.value, getattr(terms, fate.value) + 1)
            self._presume(fates)
        self.mark()
        self._check()

    def doubled(self, count: int) -> None:
        """These may be at the target twice."""
        self.terms.possibly_twice += count
        self._changed()

    def _over(self, under_way: UnderWay | None) -> None:
        if under_way is not None and under_way in self._under_way:
            self._under_way.remove(under_way)

    def _presume(self, ids: Mapping[str, Fate]) -> None:
        presumed = self._presumed
        presumed.update(ids)
        for id in list(presumed)[: max(0, len(presumed) - MOST_AGAIN)]:
            del presumed[id]
        self._presumed_octets = group_octets(presumed, presumed=True)
        if self._clock is not None:
            self._presumed_until = self._clock.seconds() + AGAIN_S

    def _again(self, received: Sequence[Received]) -> None:
        """Take back what was presumed of messages that have come again."""
        presumed, terms = self._presumed, self.terms
        known = len(presumed)
        for each in received:
            fate = presumed.pop(each.message.message_id, None)
            if fate is not None:
                terms.taken -= 1
                setattr(terms, fate.value, getattr(terms, fate.value) - 1)
        if len(presumed) != known:
            self._presumed_octets = group_octets(presumed, presumed=True)
            self.mark()

    def _check(self) -> None:
        difference = self.terms.difference
        if difference != self._told:
            self._told = difference
            level = self._log.error if difference else self._log.info
            level(
                "link {link}: its balance has a difference of {difference} messages: {taken} taken, {out} out, {dead} dead, "
                "{not_transferred} not transferred, {in_doubt} in doubt, {held} held, {lost} lost as AT_MOST_ONCE allows",
                link=self._link,
                difference=difference,
                **asdict(self.terms),
            )
        self._changed()
