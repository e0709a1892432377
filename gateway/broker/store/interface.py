"""What the broker asks of a store: batches of plain values in, rows out.

The broker gathers changes in a :class:`Batch` while the store is busy with the one before, so one
synced commit serves all that came meanwhile (group commit). A batch is plain tuples and numbers, so
that a store may live on another thread or in another process.

Nothing here knows what a message means: a row's ``head`` is the broker's own encoding
(``gateway.messaging.envelope``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias


class StoreError(Exception):
    """A store cannot be opened, read or written.

    The message names the file and the place, and is meant for the operator.
    """


class StoreDamaged(StoreError):
    """The file holds something that a store never wrote.

    It is refused, and nothing is repaired by dropping what follows.

    :param path: the file.
    :param place: where in it (an offset, a page, a row).
    :param seq: the message that is damaged, when it is about one.
    :param destination: its destination's id; None when that cannot be read.
    """

    def __init__(
        self,
        path: str,
        place: str,
        what: str,
        *,
        seq: int | None = None,
        destination: int | None = None,
    ) -> None:
        super().__init__(f"{path} is damaged at {place}: {what}")
        self.path = path
        self.place = place
        self.what = what
        self.seq = seq
        self.destination = destination


class StoreVersionUnknown(StoreError):
    """The file was written by another version of the schema.

    :param found: its schema version.
    :param known: the latest that this program reads, and all before it.
    """

    def __init__(self, path: str, found: object, known: int) -> None:
        super().__init__(
            f"{path} has schema version {found}; this program reads versions up to {known}"
        )
        self.path = path
        self.found = found
        self.known = known


class StoreHeld(StoreError):
    """Another process owns the store; the message says which."""


class StoreFull(StoreError):
    """The disk is full.

    Nothing of the batch was written; it may be submitted again.
    """


class StoreFailed(StoreError):
    """A write or its fsync failed.

    This is final: what is on disk is unknown until the store is opened anew, and it accepts no
    further batch.
    """


class Row(NamedTuple):
    """One stored message.

    :param persistent: 0 for a message that is here only because memory is bounded; it does not
        survive a restart.
    :param expires: epoch milliseconds, 0 for never.
    :param size: octets it counts for in limits.
    :param head: the broker's encoding of everything but the body.
    """

    seq: int
    destination: int
    priority: int
    expires: int
    size: int
    persistent: int
    head: bytes
    body: bytes


class IndexRow(NamedTuple):
    """The narrow part of a stored message, which the start-up scan reads."""

    seq: int
    destination: int
    priority: int
    expires: int
    size: int


class DestinationRow(NamedTuple):
    """A destination the store knows.

    :param properties: ``name=value`` lines in UTF-8, the broker's business.
    :param administered: 1 when an administrator gave them; 2 when the destination was removed, and
        messages of it may still be there.
    """

    id: int
    kind: int
    name: str
    properties: str
    administered: int = 0


class SubscriptionRow(NamedTuple):
    """A durable subscription.

    :param selector: "" for none.
    :param no_local: 0 or 1.
    :param destination: the topic's id.
    """

    id: int
    destination: int
    client_id: str
    name: str
    selector: str
    no_local: int


class RedeliveryRow(NamedTuple):
    """The delivery attempts of a message, or the time of a scheduled one.

    :param owner: 0 for the queue it is in, else the subscription. One above those of all
        subscriptions stands for messages that are delivered later; ``attempts`` counts the messages
        that have come of it then.

    :param not_before: epoch milliseconds before which it is not delivered again; 0 when there is no
        pause.
    """

    owner: int
    seq: int
    attempts: int
    not_before: int


class DuplicateRow(NamedTuple):
    """A duplicate id that is remembered.

    :param seq: that of the message that came with it; unlike the message it need not be stored.
    :param at: when it came, epoch milliseconds.
    :param id: UTF-8.
    """

    seq: int
    destination: int
    at: int
    id: bytes


class BranchRow(NamedTuple):
    """A branch that is prepared or was completed heuristically.

    :param state: 0 when it is prepared, else the X/Open code of the heuristic outcome.
    :param since: when it was prepared, epoch milliseconds.
    :param user: who has prepared it.
    :param work: the broker's encoding of what the branch has sent and acknowledged.
    """

    id: int
    format_id: int
    gtrid: bytes
    bqual: bytes
    state: int
    since: int
    user: str
    work: bytes


class Batch:
    """Changes that become durable together.

    Filled by the broker until it is submitted, untouched afterwards. Applied in this order: new
    destinations and subscriptions, ``inserts``, ``owed``, ``redeliveries``, ``settled``,
    ``deletes``, removed subscriptions and destinations, ``duplicates``, ``forgotten``,
    ``branches``, removed branches. An insert and its delete in one batch are taken out by the
    broker, so ``deletes`` never names a message of ``inserts``.
    """

    __slots__ = (
        "branches",
        "deletes",
        "destinations",
        "duplicates",
        "forgotten",
        "inserts",
        "number",
        "octets",
        "operations",
        "owed",
        "redeliveries",
        "removed_branches",
        "removed_destinations",
        "removed_subscriptions",
        "reserved",
        "settled",
        "subscriptions",
    )

    def __init__(self, number: int) -> None:
        #: Commit number, rising by one.
        self.number = number
        #: Messages by seq, rising.
        self.inserts: dict[int, Row] = {}
        #: Seqs of messages that are gone.
        self.deletes: dict[int, None] = {}
        #: (subscription id, seq): durable subscriptions a message is owed to.
        self.owed: dict[tuple[int, int], None] = {}
        #: (subscription id, seq): no longer owed.
        self.settled: dict[tuple[int, int], None] = {}
        #: (owner, seq): as it now stands; replaces what was there. Rows of a deleted or settled
        #: message go with it.
        self.redeliveries: dict[tuple[int, int], RedeliveryRow] = {}
        #: New or changed destinations and new subscriptions, by id.
        self.destinations: dict[int, DestinationRow] = {}
        self.subscriptions: dict[int, SubscriptionRow] = {}
        #: Ids to remove. The messages of a destination were named above; what is still owed to a
        #: subscription goes with it.
        self.removed_destinations: dict[int, None] = {}
        self.removed_subscriptions: dict[int, None] = {}
        #: Duplicate ids that are remembered from now on, by seq, rising; and seqs of those that no
        #: longer are.
        self.duplicates: dict[int, DuplicateRow] = {}
        self.forgotten: dict[int, None] = {}
        #: Branches that are prepared now, or as they now stand, by id; and ids of those that no
        #: longer exist.
        self.branches: dict[int, BranchRow] = {}
        self.removed_branches: dict[int, None] = {}
        #: When not 0: every seq below this may be in use; the next start begins here.
        self.reserved = 0
        #: Octets of head and body in ``inserts``, for the bound on a batch.
        self.octets = 0
        self.operations = 0

    def __bool__(self) -> bool:
        return bool(
            self.inserts
            or self.deletes
            or self.owed
            or self.settled
            or self.redeliveries
            or self.destinations
            or self.subscriptions
            or self.removed_destinations
            or self.removed_subscriptions
            or self.duplicates
            or self.forgotten
            or self.branches
            or self.removed_branches
            or self.reserved
        )


#: Called on the reactor thread with None when the batch is durable.
Committed: TypeAlias = Callable[[StoreError | None], None]


class Recovered(NamedTuple):
    """The contents of a store when it was opened, except messages.

    Messages come from :meth:`Store.scan`.

    :param store_id: random, made with the store, in every message id it gives out.
    :param next_seq: the first seq never used.
    :param clean: whether it was closed in order.
    :param notes: sentences for the log (a torn tail that was cut off, and the like).
    :param path: the file, for errors about rows; "" where it has no file.
    :param full: that and why persistent messages wait from the beginning: the disk is full; else
        "".
    :param log: what its log had, a sentence; "" where it has no log.
    """

    store_id: str
    next_seq: int
    clean: bool
    destinations: Sequence[DestinationRow]
    subscriptions: Sequence[SubscriptionRow]
    notes: Sequence[str]
    path: str = ""
    full: str = ""
    log: str = ""


class Store(Protocol):
    """Keeps rows.

    :meth:`open` and the scans, such as :meth:`scan`, may block and are called before the reactor
    runs, the scans between opening and the first batch. A block has at most 500 rows.

    Everything else raises StoreError when the store is not open.
    """

    #: Called on the reactor thread with whether the disk is full, when that changes; and before
    #: a batch is answered with StoreFull. While it is full, inserts are not to be submitted.
    on_full: Callable[[bool], None] | None
    #: Called on the reactor thread with False when the database cannot be reached, or this process
    #: may no longer answer for it, and with True when it is reached again and still this process's.
    #: Between the two no batch and no fetch is answered, and the broker sends no MESSAGE and no
    #: RECEIPT.
    on_reachable: Callable[[bool], None] | None
    #: Called on the reactor thread with the seconds for which this process owns the broker for sure,
    #: from now: until then no other process can have become its owner, and it may answer for it.
    #: Called again and again while that is so. A store that cannot be taken over never calls it.
    on_owned: Callable[[float], None] | None
    #: Called on the reactor thread with each message that the store finds damaged by itself, while
    #: no caller has asked for it.
    on_damaged: Callable[[StoreDamaged], None] | None
    #: Called once on the reactor thread when the store has failed for good, after the callback of a
    #: batch that it failed with, if any. Batches that were waiting then are answered after it.
    on_failed: Callable[[StoreFailed], None] | None

    @property
    def largest(self) -> int:
        """Bytes of messages that one batch may insert, as last measured.

        That is what the disk could hold if the store were empty.
        """

    def measure(self) -> int:
        """Measure :attr:`largest` anew. May block for a moment."""

    def open(self) -> Recovered:
        """Open the store; make it if it does not exist.

        Messages that are not persistent are gone, with the rows that say to whom they are owed and
        how often they were tried.

        :raises StoreDamaged, StoreVersionUnknown, StoreError: and nothing was changed.
        """

    def scan(self) -> Iterator[Sequence[IndexRow]]:
        """The narrow part of every message by rising seq, in blocks."""

    def scan_owed(self) -> Iterator[Sequence[tuple[int, int]]]:
        """(subscription id, seq) of everything owed, by rising seq, in blocks."""

    def scan_redeliveries(self) -> Iterator[Sequence[RedeliveryRow]]:
        """Redelivery counts and times by rising seq, in blocks."""

    def scan_duplicates(self) -> Iterator[Sequence[DuplicateRow]]:
        """Duplicate ids that are remembered, by rising seq, in blocks.

        :raises StoreDamaged: a checksum is wrong; names the seq.
        """

    def scan_branches(self) -> Iterator[Sequence[BranchRow]]:
        """Transaction branches by rising id, in blocks.

        :raises StoreDamaged: a checksum is wrong; names the id.
        """

    def submit(self, batch: Batch, committed: Committed) -> None:
        """Make a batch durable, completely or not at all.

        Batches are committed, and ``committed`` called, in the order submitted, never from inside
        this call.

        ``committed`` gets StoreFull (nothing of it was written, submit it again when there is room)
        or StoreFailed (final: every later batch fails too).
        """

    def fetch(
        self,
        seqs: Sequence[int],
        fetched: Callable[[Sequence[Row] | StoreError], None],
        *,
        in_order: bool = False,
    ) -> None:
        """Read messages of committed or submitted batches, in the order asked.

        Messages that are gone are left out.

        Batches that are submitted later may be committed first, so that commits never wait for a
        queue of reads.

        :param in_order: read before any batch that is submitted later, although it may delete these
            messages.

        A row whose checksum is wrong gives StoreDamaged that names its seq.
        """

    def close(self, closed: Callable[[], None]) -> None:
        """Finish what was submitted, mark the store clean, release the files.

        Then call ``closed`` on the reactor thread. While the database cannot be reached, that is
        after a time-out of the store's own; what it could not write by then was never confirmed.
        """
