"""What the journal is told of messages on links: each step of a batch as one line.

Owns which steps are told, what a line has, and the numbers of transfers. When a step is taken is
the pumps' to know. Nothing here waits, and what takes long is done on the journal's thread: hashes,
and lists of what each message says. What may change meanwhile, as a provider owns what it was
given, is kept hold of at once.

=====================  ====================================================  ======================================================================
Steps of a line        When                                                  What it has besides ids, transfers, link, destination and provider
=====================  ====================================================  ======================================================================
received               a batch was taken from the source                     sizes, hashes as received, timestamps, attempts
transformed            the link's transformer had them
transformed, not       it wanted them to go nowhere
transferred
sent                   a run is handed to the target                         hashes as sent
arrived                the target has the run                                target ids; reason, where the target keeps one of several
settled                the source has forgotten the batch
arrived, settled       a transaction of both is committed                    target ids
rolled back            what was handed over never took effect                reason, comment
buried                 a dead message queue has them                         reason, comment
expired, buried        the same of those whose time was over                 reason
expired                their time was over, and no dead message queue has    reason
                       them
=====================  ====================================================  ======================================================================

A message is called by its id at the source in all of them, and destination and provider are the
source's but in *sent* and *arrived*. One line has one destination, and one reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from bridge.journal_contents import BatchContents, Places, attempts, numbers, target_ids
from gateway.journal import contents
from gateway.journal.schema import Level, Step
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.message import Message

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from bridge.connections.administered import AdministeredFactory
    from bridge.dead.chain import DeadMessage
    from bridge.link.arrivals import Received
    from bridge.link.batch import Item
    from gateway.journal.journal import Journal

#: Of ``arrived``: the target keeps one of several with one duplicate id.
DUPLICATE_ID: Final = "duplicate id"
#: Of ``rolled back``.
REFUSED: Final = "refused"
TARGET_LOST: Final = "target lost"
SOURCE_LOST: Final = "source lost"
FAILED: Final = "failed"
STOPPED: Final = "stopped"

#: The same, by the names of errors.
_WHY: Final = {
    "Refused": REFUSED,
    "RolledBack": REFUSED,
    "TargetLost": TARGET_LOST,
    "SourceLost": SOURCE_LOST,
    "NotBuried": "not buried",
    "NotDecided": "not decided",
    "ProviderUnavailable": STOPPED,
}

#: What a line takes in memory for each message while it waits, beside bodies.
_OCTETS: Final = 200


class _Numbers:
    """Numbers of transfers, from 1."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 1

    def take(self, count: int) -> int:
        """The first of the next so many."""
        first = self._next
        self._next += count
        return first


class BridgeLines:
    """The lines of all links of a gateway.

    :param journal: None for none.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal: Final = journal
        #: By link: they go on when a link is made anew.
        self._numbers: Final[dict[str, _Numbers]] = {}

    def of_link(
        self,
        bridge: str,
        link: str,
        source: AdministeredFactory,
        target: AdministeredFactory,
        transforms: bool,
    ) -> LinkLines:
        """Those of one link. :param source: the source's connection factory. :param target:
        likewise. :param transforms: whether it has a transformer.
        """
        name = f"{bridge}/{link}"
        numbers = self._numbers.setdefault(name, _Numbers())
        # A STOMP broker does not say which id it gives a message.
        tells_ids = target.kind != "stomp"
        return LinkLines(
            self._journal,
            name,
            source.config.ref_name,
            target.config.ref_name,
            transforms,
            tells_ids,
            numbers,
        )


class LinkLines:
    """The lines of one link. Made by :meth:`BridgeLines.of_link`."""

    def __init__(
        self,
        journal: Journal | None,
        link: str,
        source: str,
        target: str,
        transforms: bool,
        tells_ids: bool,
        numbers: _Numbers,
    ) -> None:
        self.journal: Final = journal
        self.link: Final = link
        self.source: Final = source
        self.target: Final = target
        self.transforms: Final = transforms
        self.tells_ids: Final = tells_ids
        self.numbers: Final = numbers

    def transfers(self, received: Sequence[Received]) -> Transfers:
        """A batch was received: tell that, and what becomes of it."""
        journal = self.journal
        if journal is None or journal.level is Level.OFF:
            return UNTOLD
        return Transfers(self, journal, received)


class Transfers:
    """The messages of a batch, and what the journal is told of them. Made by
    :meth:`LinkLines.transfers`.

    A message is named by its place in the batch. What is told is as the journal's level was when
    the batch was received.
    """

    __slots__ = (
        "_alike",
        "_first",
        "_journal",
        "_judged",
        "_lines",
        "_messages",
        "_told",
        "_written",
        "everything",
    )

    def __init__(self, lines: LinkLines, journal: Journal, received: Sequence[Received]) -> None:
        self._lines = lines
        self._journal = journal
        self.everything = journal.level is not Level.DEAD
        messages = self._messages = [arrived.message for arrived in received]
        self._first = lines.numbers.take(len(messages))
        self._told = BatchContents(messages)
        #: How many are judged.
        self._judged = 0
        self._written: Deferred[None] | None = None
        if not self.everything:
            return
        told = self._told
        bodies = told.octets
        parts = _parted([headers.destination for headers in told.said])
        #: Where all are from, if they are from one place.
        self._alike = parts[0][0] if len(parts) == 1 else None
        for destination, places in parts:
            fields = self._fields((Step.RECEIVED,), places, destination, lines.source)
            mine = self._chosen(places)
            fields["sizes"] = partial(told.sizes, places)
            fields["bodies_hash"] = partial(told.bodies, places)
            fields["headers_hash"] = partial(told.headers, places)
            fields["timestamps"] = partial(told.timestamps, places)
            fields["attempts"] = partial(attempts, received, places)
            self._whole(fields, mine)
            journal.add(
                fields,
                _OCTETS * len(places)
                + sum(
                    map(len, bodies if mine is messages else [bodies[place] for place in places])
                ),
            )

    # --- the steps

    def judged(self, items: Sequence[Item]) -> None:
        """The transformer has had all of them that it is to have, in the order of the batch. May be
        called again when there are more.
        """
        begin, self._judged = self._judged, len(items)
        if not self.everything or not self._lines.transforms:
            return
        gone, dropped = [], []
        for item in items[begin:]:
            if item.to_be_sent:
                gone.append(item.place)
            elif item.dead is None:
                dropped.append(item.place)
        self._tell((Step.TRANSFORMED,), gone)
        self._tell((Step.TRANSFORMED, Step.NOT_TRANSFERRED), dropped)

    def sent(self, items: Sequence[Item], messages: Sequence[Message]) -> None:
        """These are handed to the target. :param messages: as sent, one for each; the target does
        not have them yet.
        """
        if not self.everything:
            return
        given = [message.headers for message in messages]
        bodies = [message.body for message in messages]
        for destination, chosen in _parted([headers.destination for headers in given]):
            places = [items[at].place for at in chosen]
            fields = self._fields((Step.SENT,), places, destination, self._lines.target)
            fields["bodies_hash"] = partial(
                self._told.sent_bodies,
                places,
                [given[at] for at in chosen],
                [bodies[at] for at in chosen],
            )
            fields["headers_hash"] = partial(
                self._told.sent_headers, places, [given[at] for at in chosen]
            )
            # What is not as it was received is held in memory, too.
            octets = sum([len(bodies[at]) for at in chosen]) if self._lines.transforms else 0
            self._journal.add(fields, octets + _OCTETS * len(chosen))
        self._written = self._journal.written()

    def arrived(
        self, items: Sequence[Item], messages: Sequence[Message], remembered: bool = False
    ) -> None:
        """The target has these. :param messages: as sent. :param remembered: it keeps of several
        with one duplicate id one.
        """
        self._arrived((Step.ARRIVED,), items, messages, DUPLICATE_ID if remembered else "")

    def committed(self, items: Sequence[Item]) -> None:
        """The target has these, and the source has forgotten all of the batch. :param items: those
        that were sent.
        """
        if not self.everything:
            return
        messages = [item.outgoing for item in items if item.outgoing is not None]
        self._arrived((Step.ARRIVED, Step.SETTLED), items, messages, "")
        arrived = {item.place for item in items}
        self._tell(
            (Step.SETTLED,), [place for place in range(len(self._messages)) if place not in arrived]
        )

    def settled(self) -> None:
        """The source has forgotten all of them."""
        self._tell((Step.SETTLED,), range(len(self._messages)))

    def rolled_back(self, items: Iterable[Item] | None, reason: str, comment: str = "") -> None:
        """What was handed over of these never took effect. :param items: None for the whole
        batch.
        """
        places = range(len(self._messages)) if items is None else [item.place for item in items]
        self._tell((Step.ROLLED_BACK,), places, reason=reason, comment=comment)

    def given_back(self, items: Sequence[Item], reason: str) -> None:
        """The source gives all of them out again; those that may have arrived all the same are not
        told of.
        """
        gone = {item.place for item in items if item.sent or item.doubtful}
        places = [place for place in range(len(self._messages)) if place not in gone]
        self._tell((Step.ROLLED_BACK,), places, reason=reason)

    def buried(self, buried: Sequence[tuple[Item, DeadMessage]]) -> None:
        """A dead message queue has these."""
        if self is UNTOLD:
            return
        alike: dict[tuple[BridgeDeadReason, str], list[int]] = {}
        for item, dead in buried:
            # How late each of them was would be a line for each.
            said = "" if dead.reason is BridgeDeadReason.MESSAGE_EXPIRED else dead.exception
            alike.setdefault((dead.reason, said), []).append(item.place)
        for (reason, comment), places in alike.items():
            steps = (
                (Step.EXPIRED, Step.BURIED)
                if reason is BridgeDeadReason.MESSAGE_EXPIRED
                else (Step.BURIED,)
            )
            self._tell(steps, places, True, reason=reason.value, comment=comment)

    def expired(self, item: Item) -> None:
        """Its time was over, and no dead message queue has it."""
        if self is not UNTOLD:
            self._tell(
                (Step.EXPIRED,), [item.place], True, reason=BridgeDeadReason.MESSAGE_EXPIRED.value
            )

    def written(self) -> Deferred[None] | None:
        """Fires when the kernel has the lines that tell what was received and sent, or the journal
        has stopped; None where that is so already.
        """
        if not self.everything:
            return None
        if self._written is None:
            self._written = self._journal.written()
        return None if self._written.called else self._written

    # --- lines

    def _tell(
        self, steps: tuple[str, ...], places: Places, whole: bool = False, **said: str
    ) -> None:
        """Lines of the source's side. :param whole: of the level ``dead``, and with headers and
        bodies where these are wanted.
        """
        if not places or not (self.everything or whole):
            return
        messages = self._messages
        if self.everything and self._alike is not None:
            parts: list[tuple[Destination, Places]] = [(self._alike, range(len(places)))]
        else:
            parts = _parted([messages[place].headers.destination for place in places])
        for destination, chosen in parts:
            mine = places if len(parts) == 1 else [places[at] for at in chosen]
            fields = self._fields(steps, mine, destination, self._lines.source)
            fields.update(said)
            octets = self._whole(fields, self._chosen(mine)) if whole else 0
            self._journal.add(fields, octets + _OCTETS * len(mine))

    def _arrived(
        self,
        steps: tuple[str, ...],
        items: Sequence[Item],
        messages: Sequence[Message],
        reason: str,
    ) -> None:
        if not self.everything or not items:
            return
        for destination, chosen in _parted([message.headers.destination for message in messages]):
            fields = self._fields(
                steps, [items[at].place for at in chosen], destination, self._lines.target
            )
            if self._lines.tells_ids:
                fields["target_ids"] = partial(target_ids, [messages[at] for at in chosen])
            fields["reason"] = reason
            self._journal.add(fields, _OCTETS * len(chosen))

    def _fields(
        self, steps: tuple[str, ...], places: Places, destination: Destination, provider: str
    ) -> dict[str, object]:
        return {
            "steps": steps,
            "ids": partial(self._told.ids, places),
            "prefix": self._told.prefix,
            "numbers": partial(self._told.ends, places),
            "destination": str(destination),
            "provider": provider,
            "link": self._lines.link,
            "transfers": partial(numbers, self._first, places),
        }

    def _chosen(self, places: Places) -> list[Message]:
        messages = self._messages
        return messages if len(places) == len(messages) else [messages[place] for place in places]

    def _whole(self, fields: dict[str, object], messages: list[Message]) -> int:
        """Headers and bodies, where these are wanted. :returns: octets that they hold."""
        journal = self._journal
        if journal.headers:
            fields["headers"] = partial(contents.headers, messages)
        if journal.bodies:
            fields["bodies"] = partial(contents.bodies, messages)
            fields["body_types"] = partial(contents.body_types, messages)
            return sum([len(message.body) for message in messages])
        return 0


class _Untold(Transfers):
    """A batch of which nothing is told."""

    __slots__ = ()

    def __init__(self) -> None:
        self.everything = False
        self._messages = []
        self._judged = 0


#: Where there is no journal, or it is off.
UNTOLD: Final = _Untold()
NO_LINES: Final = LinkLines(None, "", "", "", False, False, _Numbers())
NO_JOURNAL: Final = BridgeLines(None)


def _parted(destinations: list[Destination]) -> list[tuple[Destination, Places]]:
    """Which of them are where. Mostly all are at one place."""
    first = destinations[0]
    if destinations.count(first) == len(destinations):
        return [(first, range(len(destinations)))]
    parts: dict[Destination, list[int]] = {}
    for at, destination in enumerate(destinations):
        parts.setdefault(destination, []).append(at)
    return list(parts.items())


def reason_of(error: BaseException) -> str:
    """The reason of a batch that is rolled back for this."""
    return next(
        (_WHY[kind.__name__] for kind in type(error).__mro__ if kind.__name__ in _WHY), FAILED
    )


async def known(transfers: Transfers, check: Callable[[], None]) -> None:
    """Wait until what was received and sent is known whatever becomes of this process. :param
    check: called after a wait, which may raise.
    """
    waiting = transfers.written()
    if waiting is not None:
        await waiting
        check()
