"""The journal's lines about messages on links, for each step of a batch.

The pump and its delivery report each step of a batch, and this makes lines of them. Owns what a
line contains and the numbers of transfers.

Nothing here waits. Slow work (hashes, lists of what each message contains) runs on the journal's
thread, so whatever a provider may change by then is captured at once.

=====================  ====================================================  ======================================================================
Steps of a line        When                                                  What it has besides ids, transfers, link, destination and provider
=====================  ====================================================  ======================================================================
received               a batch was taken from the source                     sizes, hashes as received, timestamps, attempts
transformed            the link's rules and transformer had them
transformed, not       these wanted them to go nowhere
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

All lines identify a message by its id at the source. Destination and provider are the source's,
except in *sent* and *arrived*. A line has one destination and one reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from twisted.internet.defer import Deferred

from bridge.connections.administered import AdministeredFactory
from bridge.dead.chain import DeadMessage, NotBuried
from bridge.link.arrivals import Received
from bridge.link.errors import NotDecided, Refused, SourceLost, TargetLost
from bridge.link.transfer import Item
from bridge.xa.errors import RolledBack
from gateway.journal import contents
from gateway.journal.journal import Journal
from gateway.journal.lines import numbered
from gateway.journal.schema import Level, Step
from gateway.journal.tracer import TRACES
from gateway.messaging.dead import BridgeDeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.digest import digest_of_body, digest_of_headers
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.message import Headers, Message

#: Why a batch is given back.
SOURCE_LOST: Final = "source lost"
STOPPED: Final = "stopped"
#: Reason of ``arrived``: the target keeps only one message with the same duplicate id.
DUPLICATE_ID: Final = "duplicate id"
#: Reasons of ``rolled back``, by the error; any other error is :data:`FAILED`.
_REASONS: Final[dict[type, str]] = {
    Refused: "refused",
    RolledBack: "refused",
    TargetLost: "target lost",
    SourceLost: SOURCE_LOST,
    NotBuried: "not buried",
    NotDecided: "not decided",
    ProviderUnavailable: STOPPED,
}
FAILED: Final = "failed"

#: What a line takes in memory for each message while it waits, beside bodies.
_OCTETS: Final = 200


#: Which messages of a batch: their places, from 0.
Places: TypeAlias = Sequence[int]


class BridgeLines:
    """The lines of all links of a gateway.

    :param journal: None for none.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal: Final = journal
        #: The next number of a transfer, by link: they go on when a link is made anew.
        self._numbers: Final[defaultdict[str, int]] = defaultdict(lambda: 1)

    def of_link(
        self,
        bridge: str,
        link: str,
        source: AdministeredFactory,
        target: AdministeredFactory,
        transforms: bool,
    ) -> LinkLines:
        """Return the lines of one link.

        :param source: the source's connection factory.
        :param target: likewise.
        :param transforms: whether it has rules or a transformer.
        """
        name = f"{bridge}/{link}"
        # A STOMP broker does not say which id it gives a message.
        tells_ids = target.kind != "stomp"
        return LinkLines(
            self._journal,
            name,
            source.config.ref_name,
            target.config.ref_name,
            transforms,
            tells_ids,
            self._numbers,
        )


@dataclass(frozen=True, slots=True)
class LinkLines:
    """The lines of one link. Made by :meth:`BridgeLines.of_link`."""

    journal: Journal | None
    link: str
    source: str
    target: str
    transforms: bool
    tells_ids: bool
    numbers: defaultdict[str, int]

    def received(self, received: Sequence[Received]) -> BatchLines:
        """A batch was received: tell that, and what becomes of it."""
        journal = self.journal
        if journal is None or journal.level is Level.OFF:
            return SILENT
        return BatchLines(self, journal, received)


class BatchLines:
    """A batch's messages and their lines. Made by :meth:`LinkLines.received`.

    A message is named by its place in the batch. What is told is as the journal's level was when
    the batch was received.
    """

    __slots__ = (
        "_alike",
        "_contents",
        "_first",
        "_journal",
        "_judged",
        "_last",
        "_lines",
        "_messages",
        "everything",
    )

    def __init__(self, lines: LinkLines, journal: Journal, received: Sequence[Received]) -> None:
        self._lines = lines
        self._journal = journal
        self.everything = journal.level is not Level.DEAD
        messages = self._messages = [arrived.message for arrived in received]
        self._first = lines.numbers[lines.link]
        lines.numbers[lines.link] += len(messages)
        self._contents = BatchContents(messages)
        #: How many are judged.
        self._judged = 0
        #: The last line of what was received and sent; 0 where nothing was sent.
        self._last = 0
        if not self.everything:
            return
        batch = self._contents
        bodies = batch.octets
        tracer = journal.tracer
        traces = None if tracer is None else tracer.contexts(messages, False)
        parts = _parted([headers.destination for headers in batch.received])
        #: Where all are from, if they are from one place.
        self._alike = parts[0][0] if len(parts) == 1 else None
        for destination, places in parts:
            fields = self._fields((Step.RECEIVED,), places, destination, lines.source)
            mine = self._chosen(places)
            fields["sizes"] = partial(batch.sizes, places)
            fields["bodies_hash"] = partial(batch.bodies, places)
            fields["headers_hash"] = partial(batch.headers, places)
            fields["timestamps"] = partial(batch.timestamps, places)
            fields["attempts"] = partial(attempts, received, places)
            self._whole(fields, mine)
            if traces:
                fields[TRACES] = traces
            journal.add(
                fields,
                _OCTETS * len(places)
                + sum(
                    map(len, bodies if mine is messages else [bodies[place] for place in places])
                ),
            )

    # --- the steps

    def judged(self, items: Sequence[Item]) -> None:
        """Note that rules and transformer had these, in the order of the batch.

        May be called again when there are more.
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
        self._add((Step.TRANSFORMED,), gone)
        self._add((Step.TRANSFORMED, Step.NOT_TRANSFERRED), dropped)

    def sent(self, items: Sequence[Item], messages: Sequence[Message]) -> None:
        """Note messages handed to the target, which does not have them yet.

        :param messages: as sent, one for each.
        """
        if not self.everything:
            return
        sent = [message.headers for message in messages]
        bodies = [message.body for message in messages]
        for destination, chosen in _parted([headers.destination for headers in sent]):
            places = [items[at].place for at in chosen]
            fields = self._fields((Step.SENT,), places, destination, self._lines.target)
            fields["bodies_hash"] = partial(
                self._contents.sent_bodies,
                places,
                [sent[at] for at in chosen],
                [bodies[at] for at in chosen],
            )
            fields["headers_hash"] = partial(
                self._contents.sent_headers, places, [sent[at] for at in chosen]
            )
            # What is not as it was received is held in memory, too.
            octets = sum([len(bodies[at]) for at in chosen]) if self._lines.transforms else 0
            self._journal.add(fields, octets + _OCTETS * len(chosen))
        self._last = self._journal.hurry()

    def arrived(
        self, items: Sequence[Item], messages: Sequence[Message], remembered: bool = False
    ) -> None:
        """Note messages that the target has.

        :param messages: as sent.
        :param remembered: it keeps only one message with the same duplicate id.
        """
        self._arrived((Step.ARRIVED,), items, messages, DUPLICATE_ID if remembered else "")

    def committed(self, items: Sequence[Item]) -> None:
        """Note that the target has these, and the source has forgotten the batch.

        :param items: those that were sent.
        """
        if not self.everything:
            return
        messages = [item.outgoing for item in items if item.outgoing is not None]
        self._arrived((Step.ARRIVED, Step.SETTLED), items, messages, "")
        arrived = {item.place for item in items}
        self._add(
            (Step.SETTLED,), [place for place in range(len(self._messages)) if place not in arrived]
        )

    def settled(self) -> None:
        """The source has forgotten all of them."""
        self._add((Step.SETTLED,), range(len(self._messages)))

    def rolled_back(self, items: Iterable[Item] | None, error: BaseException, comment: str) -> None:
        places = range(len(self._messages)) if items is None else [item.place for item in items]
        self._add((Step.ROLLED_BACK,), places, reason=_reason_of(error), comment=comment)

    def given_back(self, items: Sequence[Item], reason: str) -> None:
        """Note that the source delivers all again.

        Those that may have arrived anyway are not reported.
        """
        gone = {item.place for item in items if item.sent or item.doubtful}
        places = [place for place in range(len(self._messages)) if place not in gone]
        self._add((Step.ROLLED_BACK,), places, reason=reason)

    def buried(self, buried: Sequence[tuple[Item, DeadMessage]]) -> None:
        """A dead message queue has these."""
        if self is SILENT:
            return
        alike: dict[tuple[BridgeDeadReason, str], list[int]] = {}
        for item, dead in buried:
            # How late each of them was would be a line for each.
            comment = "" if dead.reason is BridgeDeadReason.MESSAGE_EXPIRED else dead.exception
            alike.setdefault((dead.reason, comment), []).append(item.place)
        for (reason, comment), places in alike.items():
            steps = (
                (Step.EXPIRED, Step.BURIED)
                if reason is BridgeDeadReason.MESSAGE_EXPIRED
                else (Step.BURIED,)
            )
            self._add(steps, places, True, reason=reason.value, comment=comment)

    def expired(self, item: Item) -> None:
        """Its time was over, and no dead message queue has it."""
        if self is not SILENT:
            self._add(
                (Step.EXPIRED,), [item.place], True, reason=BridgeDeadReason.MESSAGE_EXPIRED.value
            )

    def written(self) -> Deferred[None] | None:
        """Fire when the kernel has the lines of what was received and sent.

        It also fires when the journal stops. Return None if there is nothing to wait for.
        """
        if not self.everything or (self._last and self._journal.has(self._last)):
            return None
        return self._journal.written()

    # --- lines

    def _add(
        self, steps: tuple[str, ...], places: Places, whole: bool = False, **more: str
    ) -> None:
        """Write lines of the source's side.

        :param whole: of the level ``dead``, and with headers and bodies where these are wanted.
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
            fields.update(more)
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
            "ids": partial(self._contents.ids, places),
            "prefix": self._contents.prefix,
            "numbers": partial(self._contents.ends, places),
            "destination": str(destination),
            "provider": provider,
            "link": self._lines.link,
            "transfers": partial(numbers, self._first, places),
        }

    def _chosen(self, places: Places) -> list[Message]:
        messages = self._messages
        return messages if len(places) == len(messages) else [messages[place] for place in places]

    def _whole(self, fields: dict[str, object], messages: list[Message]) -> int:
        """Add headers and bodies, where these are wanted.

        :returns: the bytes that they hold.
        """
        journal = self._journal
        if journal.headers:
            fields["headers"] = partial(contents.headers, messages)
        if journal.bodies:
            fields["bodies"] = partial(contents.bodies, messages)
            fields["body_types"] = partial(contents.body_types, messages)
            return sum([len(message.body) for message in messages])
        return 0


class _Silent(BatchLines):
    """A batch of which nothing is reported."""

    __slots__ = ()

    def __init__(self) -> None:
        self.everything = False
        self._messages = []
        self._judged = 0


#: Where there is no journal, or it is off.
SILENT: Final = _Silent()
NO_LINES: Final = LinkLines(None, "", "", "", False, False, defaultdict(int))
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


def _reason_of(error: BaseException) -> str:
    return next((_REASONS[kind] for kind in type(error).__mro__ if kind in _REASONS), FAILED)


class BatchContents:
    """A batch as it was received.

    Keeps its messages' content, since a provider may change what it was given.
    """

    __slots__ = ("_hashes", "_messages", "_named", "octets", "received")

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        #: The bodies.
        self.octets = [message.body for message in messages]
        #: What is said about them.
        self.received = [message.headers for message in messages]
        self._hashes: list[str] | None = None
        #: What the ids begin with and the numbers that they end in, or None; empty before that is
        #: known.
        self._named: list[tuple[str, list[int]] | None] = []

    def ids(self, places: Places) -> list[str] | None:
        """The ids; None where they are numbers with a prefix."""
        messages = self._messages
        return (
            [messages[place].message_id for place in places] if self._numbered() is None else None
        )

    def prefix(self) -> str | None:
        """What the ids begin with; None where they have no numbers."""
        named = self._numbered()
        return None if named is None else named[0]

    def ends(self, places: Places) -> Sequence[int] | None:
        """The numbers that the ids end in; None where they have none."""
        named = self._numbered()
        if named is None:
            return None
        found = named[1]
        return found if len(places) == len(found) else [found[place] for place in places]

    def sizes(self, places: Places) -> list[int]:
        """Bytes of the bodies."""
        octets = self.octets
        return [len(octets[place]) for place in places]

    def timestamps(self, places: Places) -> list[int]:
        messages = self._messages
        return [messages[place].timestamp for place in places]

    def bodies(self, places: Places) -> list[str]:
        """Hashes of the bodies as received."""
        hashes = self._hashes
        if hashes is None:
            kinds = [headers.body_type for headers in self.received]
            hashes = self._hashes = list(map(digest_of_body, kinds, self.octets))
        return hashes if len(places) == len(hashes) else [hashes[place] for place in places]

    def headers(self, places: Places) -> list[str]:
        """Hashes of the headers as received."""
        received = self.received
        return [digest_of_headers(received[place]) for place in places]

    def sent_bodies(
        self, places: Places, sent: Sequence[Headers], bodies: Sequence[bytes]
    ) -> list[str]:
        """Return hashes of bodies as sent.

        :param sent: the headers that they are sent with, which say what kind of body that is.
        """
        octets, received, known = self.octets, self.received, self.bodies(range(len(self.octets)))
        return [
            known[place]
            if body is octets[place] and headers.body_type is received[place].body_type
            else digest_of_body(headers.body_type, body)
            for place, headers, body in zip(places, sent, bodies, strict=True)
        ]

    def sent_headers(self, places: Places, sent: Sequence[Headers]) -> list[str]:
        """Hashes of headers as sent."""
        received = self.received
        return [
            digest_of_headers(headers, received[place])
            for place, headers in zip(places, sent, strict=True)
        ]

    def _numbered(self) -> tuple[str, list[int]] | None:
        if not self._named:
            self._named.append(numbered([message.message_id for message in self._messages]))
        return self._named[0]


def target_ids(messages: Sequence[Message]) -> list[str] | None:
    """Return the messages' ids at the target; None if it does not say."""
    ids = [message.message_id for message in messages]
    return ids if any(ids) else None


def numbers(first: int, places: Places) -> list[int]:
    """Numbers of transfers. :param first: that of the batch's first message."""
    return [first + place for place in places]


def attempts(received: Sequence[Received], places: Places) -> list[int] | None:
    """How often each was delivered; None where each was once."""
    found = [received[place].attempts for place in places]
    return found if max(found) > 1 else None
