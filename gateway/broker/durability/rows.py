"""The rows of messages, destinations and durable subscriptions.

Owns which rows there are, how many subscriptions share the row of one message, and reading whole
messages back. When a row becomes durable is ``commit``'s business; what a message means where it
waits is its destination's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final, Protocol

from twisted.logger import Logger

from gateway.broker.durability.batch import REMOVED
from gateway.broker.durability.commit import GroupCommit
from gateway.broker.properties.administered_properties import to_text
from gateway.broker.properties.destination_properties import DestinationProperties
from gateway.broker.properties.pause import Pause, add_to
from gateway.broker.store.interface import (
    DestinationRow,
    Row,
    Store,
    StoreDamaged,
    StoreError,
    StoreFailed,
)
from gateway.messaging.dead import DeadReason
from gateway.messaging.destination import Destination
from gateway.messaging.envelope import decode_row
from gateway.messaging.message import Message
from gateway.reactor.turn import Turn

#: The properties of a pattern whose ``>`` means none or more levels; others have none. A destination's
#: row has this room, whatever the store, and a checksum over it. So tables stay as they are, and an
#: earlier version of this software reads the pattern as one level or more.
_NONE_OR_MORE: Final = "rest=none-or-more"

#: Messages read back from the store at once.
BLOCK = 500


class Destined(Protocol):
    """A queue or a topic, as known below and beside the core.

    See :class:`gateway.broker.core.physical.PhysicalDestination`.
    """

    destination: Destination
    number: int
    properties: DestinationProperties
    administered: dict[str, str] | None
    auto_created: bool
    pause: Pause
    stored: bool
    idle_since: int
    removed: bool
    purged: bool
    damaged: bool
    octets: int
    died: dict[DeadReason, int]
    dropped: int
    last_death: str
    last_death_ms: int

    @property
    def has_rows(self) -> bool: ...

    @property
    def dead_queue(self) -> Destination: ...


class Rows:
    """What the broker has in its store."""

    _log: ClassVar = Logger(namespace="gateway.broker")

    def __init__(self, store: Store, commits: GroupCommit, turn: Turn) -> None:
        self._store = store
        self._commits = commits
        self._turn = turn
        #: Seqs of messages that could not be read, and the numbers of their destinations. They stay
        #: in the store as long as these do.
        self.damaged: dict[int, int | None] = {}
        #: Told of each.
        self.on_damaged: Callable[[StoreDamaged], None] = _unheard
        #: Messages of topics whose row more than one subscription needs: how many others.
        self.shared: dict[int, int] = {}
        #: Numbers of the patterns that durable subscriptions name, and whether their ``>`` means none
        #: or more levels.
        self._patterns: dict[tuple[Destination, bool], int] = {}

    # --- messages

    def insert(self, physical: Destined, message: Message, *, persistent: bool) -> None:
        """Insert a row for the message.

        Insert one for its destination if the store has none.
        """
        if not physical.stored:
            self.store_destination(physical)
        self._commits.insert(message, physical.number, persistent)

    def hold(self, topic: Destined, message: Message, *, persistent: bool) -> None:
        """One more subscription needs the message's row."""
        if message.stored:
            self.share(message.seq)
        else:
            message.stored = 1
            self.insert(topic, message, persistent=persistent)

    def share(self, seq: int) -> None:
        """One more subscription needs a row that is there."""
        self.shared[seq] = self.shared.get(seq, 0) + 1

    def release(self, seq: int) -> None:
        """Drop one reference to the row; the last one deletes it."""
        others = self.shared.get(seq)
        if others is None:
            self._commits.delete(seq)
        elif others == 1:
            del self.shared[seq]
        else:
            self.shared[seq] = others - 1

    # --- what they belong to

    def store_destination(self, physical: Destined) -> None:
        """Insert or rewrite the row of a destination with its properties."""
        physical.stored = True
        destination = physical.destination
        administered = physical.administered is not None
        if physical.administered is not None:
            text = to_text(physical.administered)
        else:
            properties = physical.properties
            text = properties.own_text if physical.auto_created else properties.to_text()
        self._commits.destination(
            DestinationRow(
                physical.number,
                int(destination.kind),
                destination.name,
                add_to(text, physical.pause),
                int(administered),
            )
        )

    def delete_damaged(self, number: int) -> None:
        """The destination goes, and what could not be read of it with it."""
        for seq in [seq for seq, destination in self.damaged.items() if destination == number]:
            del self.damaged[seq]
            self._commits.delete(seq)

    def mark_removed(self, physical: Destined) -> None:
        """Mark the row of a destination that is removed.

        Messages of it may still be in the store: a restart is to delete these, too.
        """
        destination = physical.destination
        self._commits.destination(
            DestinationRow(physical.number, int(destination.kind), destination.name, "", REMOVED)
        )

    def number_of_pattern(
        self, meant: tuple[Destination, bool], new_number: Callable[[], int]
    ) -> int:
        """Return the number of a pattern, which has a row like a destination.

        :param meant: the pattern, and whether its ``>`` means none or more levels.
        """
        number = self._patterns.get(meant)
        if number is None:
            number = self._patterns[meant] = new_number()
            pattern, none_or_more = meant
            properties = _NONE_OR_MORE if none_or_more else ""
            self._commits.destination(
                DestinationRow(number, int(pattern.kind), pattern.name, properties)
            )
        return number

    def restore_pattern(self, pattern: Destination, row: DestinationRow) -> bool:
        """A pattern that the store knows.

        :returns: whether its ``>`` means none or more levels.
        """
        none_or_more = row.properties == _NONE_OR_MORE
        self._patterns[pattern, none_or_more] = row.id
        return none_or_more

    def forget_pattern(self, meant: tuple[Destination, bool]) -> None:
        """No durable subscription names the pattern any more."""
        number = self._patterns.pop(meant, None)
        if number is not None:
            self._commits.remove_destination(number)

    # --- reading back

    def read_back(
        self,
        seqs: Sequence[int],
        done: Callable[[Sequence[Message]], None],
        *,
        in_order: bool = False,
    ) -> None:
        """Read messages that are in the store only, in the order asked.

        ``done`` is called later, in a turn.

        :param in_order: read them before anything is changed that is asked later, such as their
            deletion.

        Those that cannot be read are left out, as are those that are gone; their destinations are
        stopped before ``done`` is called.
        """
        unstored = {
            seq: message for seq in seqs if (message := self._commits.unstored(seq)) is not None
        }
        wanted = [seq for seq in seqs if seq not in unstored]

        def found(messages: Sequence[Message]) -> None:
            if unstored:
                here = {message.seq: message for message in messages} | unstored
                messages = [here[seq] for seq in seqs if seq in here]
            done(messages)

        if wanted:
            self._fetch(wanted, found, in_order)
        else:
            self._turn.deliver(partial(found, ()))

    def _fetch(
        self, seqs: Sequence[int], done: Callable[[Sequence[Message]], None], in_order: bool = False
    ) -> None:
        def fetched(rows: Sequence[Row] | StoreError) -> None:
            with self._turn:
                if isinstance(rows, StoreError):
                    self._failed(rows, seqs, done)
                else:
                    done([_message(row) for row in rows])

        self._store.fetch(seqs, fetched, in_order=in_order)

    def _failed(
        self, error: StoreError, seqs: Sequence[int], done: Callable[[Sequence[Message]], None]
    ) -> None:
        if isinstance(error, StoreFailed):
            # Whoever waits for a commit hears of it, and everything ends.
            self._log.error(
                "{count} messages could not be read from the store: {error}",
                count=len(seqs),
                error=str(error),
            )
            done(())
        elif len(seqs) > 1:
            # Find the good ones: each half alone, until the damaged row is alone.
            middle = len(seqs) // 2
            self._fetch(
                seqs[:middle],
                lambda first: self._fetch(seqs[middle:], lambda second: done([*first, *second])),
            )
        else:
            # Its destination is stopped before anybody is given what was read behind it.
            assert isinstance(error, StoreDamaged), (
                "the store tells of one message what is wrong with it"
            )
            self.damaged[seqs[0]] = error.destination
            self.on_damaged(error)
            done(())


def _unheard(error: StoreDamaged) -> None:
    raise error


def _message(row: Row) -> Message:
    message = decode_row(row.head, row.body)
    message.seq = row.seq
    message.size = row.size
    message.stored = 1
    return message
